// SPDX-License-Identifier: BSL-1.0
// Datagrams, and multicast groups. The cores that joined a group receive its datagrams, and no other core does. The machine reports its
// groups by IGMP, and no timer runs between reports.
#include "net/groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "net/testing/frames.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

constexpr unsigned cores = 3;
constexpr std::uint16_t port = 9000;
constexpr unsigned igmp = 2, udp = 17;
constexpr unsigned igmp_query = 0x11, igmp_report = 0x16, igmp_leave = 0x17;  // RFC 2236, 2.1
constexpr Ipv4Address all_systems{0xE0000001}, all_routers{0xE0000002};
constexpr Ipv4Address group{0xEF010203};        // 239.1.2.3
constexpr Ipv4Address same_mac{0xEF810203};     // 239.129.2.3: has the same MAC address as `group`
constexpr Ipv4Address other_group{0xEF010204};  // 239.1.2.4

Bytes frame_to(Ipv4Address to, unsigned protocol, const Bytes& payload, unsigned fragment_field = 0) {
  Ipv4Header header{
      .from = client_address, .to = to, .protocol = protocol, .identification = 77, .fragment_field = fragment_field, .hops = 1};
  if (to.value >> 28 == 0xE) {
    const auto part = [&](unsigned shift) { return static_cast<std::uint8_t>(to.value >> shift); };
    header.to_mac = {1, 0, 0x5E, static_cast<std::uint8_t>(part(16) & 0x7F), part(8), part(0)};
  }
  return with_checksums(ipv4_frame(header, payload));
}

/// Returns a UDP header without a checksum, followed by `text`.
Bytes udp_of(const std::string& text, unsigned from_port) {
  Bytes payload;
  append(payload, from_port, 2);
  append(payload, port, 2);
  append(payload, 8 + text.size(), 2);
  append(payload, 0, 2);
  for (const char letter : text) append(payload, static_cast<unsigned char>(letter), 1);
  return payload;
}

Bytes query_for(Ipv4Address wanted, unsigned tenths) {
  Bytes message;
  append(message, igmp_query << 8 | tenths, 2);
  append(message, 0, 2);
  append(message, wanted.value, 4);
  put_word(message, 2, ~internet_sum(message) & 0xFFFFU);
  return frame_to(wanted.value == 0 ? all_systems : wanted, igmp, message);
}

class GroupsTest : public ::testing::Test {
 protected:
  GroupsTest() : card_({.cores = cores, .mac = {2, 0, 0, 0, 0, 1}}) {
    card_.tap([this](const Bytes& frame) {
      const std::lock_guard guard(lock_);
      sent_.push_back(frame);
      return false;
    });
    machine_.emplace(cores);
    machine_->run(0, [&]() -> task<void> {
      network_ = std::move(*co_await bring_up(card_, server_setting, 0, cores));
      const Result<void> receiving = co_await network_->receive_datagrams(port, [this](Datagram datagram) {
        std::string text(datagram.data.bytes(), '\0');
        datagram.data.peek(std::as_writable_bytes(std::span(text)));
        const std::lock_guard guard(lock_);
        got_.push_back({.core = this_core(), .to = datagram.to, .from = datagram.from, .text = text});
      });
      EXPECT_TRUE(receiving.has_value());
    });
  }
  ~GroupsTest() override {
    card_.cut();
    machine_->run(0, [this] { return network_->take_down(); });
    EXPECT_EQ(card_.buffers_out(), 0);
  }

  struct Got {
    unsigned core;
    Endpoint to, from;
    std::string text;
  };

  /// Joins or leaves the group `address` on `core`. Returns the error's code; 0: no error.
  int change(unsigned core, Ipv4Address address, bool join) {
    int code = 0;
    machine_->run(core, [&]() -> task<void> {
      const Result<void> done = join ? co_await network_->join(address) : co_await network_->leave(address);
      if (!done) code = static_cast<int>(done.error().code);
    });
    return code;
  }
  /// Sends `text` to the group `to`. True if, after all events, exactly the cores in `expected` (in ascending order) have received it.
  bool comes_to(const std::vector<unsigned>& expected, Ipv4Address to, const std::string& text, int queue = -1) {
    card_.arrive(frame_to(to, udp, udp_of(text, 1234)), queue);
    return HostMachine::wait_until([&] { return cores_that_got(text) == expected; }) && cores_that_got(text) == expected;
  }
  std::vector<unsigned> cores_that_got(const std::string& text) {
    // A core handles a frame from another core before this loop's next event on it. A frame may be passed on twice, hence three rounds.
    for (unsigned round = 0; round < 3; ++round) {
      for (unsigned core = 0; core < cores; ++core) machine_->on(core, [] {});
    }
    std::vector<unsigned> found;
    const std::lock_guard guard(lock_);
    for (const Got& one : got_) {
      if (one.text == text) found.push_back(one.core);
    }
    std::ranges::sort(found);
    return found;
  }
  /// Returns the number of IGMP messages of this type for `wanted` that the machine has sent.
  std::size_t messages(unsigned type, Ipv4Address wanted) {
    const std::lock_guard guard(lock_);
    return static_cast<std::size_t>(std::ranges::count_if(sent_, [&](const Bytes& frame) {
      // The IPv4 header has 24 bytes with the router alert option (RFC 2113); TTL is 1.
      return frame.size() >= 46 && octet(frame, 23) == igmp && octet(frame, 14) == 0x46 && octet(frame, 22) == 1 &&
             octet(frame, 38) == type && quad(frame, 42) == wanted.value &&
             quad(frame, 30) == (type == igmp_leave ? all_routers : wanted).value &&
             internet_sum(std::span(frame).subspan(38, 8)) == 0xFFFF;
    }));
  }
  [[nodiscard]] bool reports_become(std::size_t count) {
    return HostMachine::wait_until([&] { return messages(igmp_report, group) >= count; });
  }
  Waits waits_of_core_0() {
    return machine_->value_on(0, [] { return waits(); });
  }

  std::mutex lock_;
  std::vector<Bytes> sent_;
  std::vector<Got> got_;
  WireCard card_;
  std::optional<HostMachine> machine_;
  std::unique_ptr<NetworkControl> network_;
};

TEST_F(GroupsTest, ADatagramReachesItsPortOnTheCardsCoreAndAnAnswerIsSent) {
  for (int queue = 0; queue < static_cast<int>(cores); ++queue) {
    const std::string text = "to core " + std::to_string(queue);
    EXPECT_TRUE(comes_to({static_cast<unsigned>(queue)}, server_address, text, queue));
  }
  EXPECT_EQ(got_.front().from.address, client_address);
  EXPECT_EQ(got_.front().from.port, 1234);
  EXPECT_EQ(got_.front().to.address, server_address);
  EXPECT_EQ(got_.front().to.port, port);
  const std::string answer = "an answer";
  machine_->on(1, [&] {
    EXPECT_TRUE(network_->send_datagram(port, {.address = other_group, .port = 7}, std::as_bytes(std::span(answer))).has_value());
    const auto refused = [&](std::uint16_t from, Endpoint to, std::size_t bytes) {
      return network_->send_datagram(from, to, Bytes(bytes)).error().code;
    };
    EXPECT_EQ(refused(port + 1, {.address = group, .port = 7}, 1), ErrorCode::invalid);
    EXPECT_EQ(refused(port, {.address = group, .port = 0}, 1), ErrorCode::invalid);
    EXPECT_EQ(refused(port, {.address = group, .port = 7}, 65508), ErrorCode::invalid);
  });
  EXPECT_TRUE(HostMachine::wait_until([&] {
    const std::lock_guard guard(lock_);
    return std::ranges::any_of(sent_, [](const Bytes& frame) {
      return octet(frame, 23) == udp && octet(frame, 22) == 1 && quad(frame, 30) == other_group.value && octet(frame, 0) == 1;
    });
  }));
  machine_->run(0, [&]() -> task<void> {
    const Result<void> again = co_await network_->receive_datagrams(port, [](const Datagram&) {});
    EXPECT_EQ(again.error().code, ErrorCode::invalid);
  });
}

TEST_F(GroupsTest, ADatagramToAGroupReachesTheCoresThatJoinedAndNoOthers) {
  EXPECT_TRUE(comes_to({}, group, "before"));
  EXPECT_EQ(card_.filtered(), 1U) << "the card accepts joined groups only";
  ASSERT_EQ(change(1, group, true), 0);
  EXPECT_EQ(card_.multicast(), (std::vector<MacAddress>{{1, 0, 0x5E, 0, 0, 1}, {1, 0, 0x5E, 1, 2, 3}}));
  for (int queue = 0; queue < static_cast<int>(cores); ++queue) {
    EXPECT_TRUE(comes_to({1U}, group, "one of " + std::to_string(queue), queue)) << queue;
  }
  ASSERT_EQ(change(2, group, true), 0);
  EXPECT_TRUE(comes_to({1U, 2U}, group, "two", 0));
  EXPECT_TRUE(comes_to({}, other_group, "other"));
  EXPECT_EQ(card_.filtered(), 2U);
  // `group` and `same_mac` have the same MAC address, so the card cannot distinguish them. The stack distinguishes them.
  const auto dropped = [&] {
    std::uint64_t sum = 0;
    for (unsigned core = 0; core < cores; ++core) machine_->on(core, [&, core] { sum += counters(core).dropped_protocol; });
    return sum;
  };
  const std::uint64_t before = dropped();
  EXPECT_TRUE(comes_to({}, same_mac, "twin"));
  EXPECT_TRUE(HostMachine::wait_until([&] { return dropped() == before + 1; }));
  ASSERT_EQ(change(1, group, false), 0);
  EXPECT_TRUE(comes_to({2U}, group, "one again", 1));
  ASSERT_EQ(change(2, group, false), 0);
  EXPECT_EQ(card_.multicast(), std::vector<MacAddress>{});
  EXPECT_TRUE(comes_to({}, group, "after"));
  EXPECT_EQ(card_.filtered(), 3U);
}

TEST_F(GroupsTest, ADatagramInFragmentsReachesAGroupToo) {
  ASSERT_EQ(change(0, group, true), 0);
  ASSERT_EQ(change(2, group, true), 0);
  const Bytes whole = udp_of(std::string(1600, 'x'), 1234);
  constexpr std::size_t first_bytes = 800;
  constexpr unsigned more_fragments = 0x2000;
  card_.arrive(frame_to(group, udp, Bytes(whole.begin(), whole.begin() + first_bytes), more_fragments), 1);
  card_.arrive(frame_to(group, udp, Bytes(whole.begin() + first_bytes, whole.end()), first_bytes / 8), 1);
  EXPECT_TRUE(HostMachine::wait_until([&] { return cores_that_got(std::string(1600, 'x')) == std::vector{0U, 2U}; }));
}

TEST_F(GroupsTest, JoiningLeavingAndQueriesCauseIgmpMessages) {
  ASSERT_EQ(change(1, group, true), 0);
  EXPECT_TRUE(reports_become(2)) << "one report at once, one after a short delay (RFC 2236, 3)";
  ASSERT_EQ(change(2, group, true), 0);
  EXPECT_TRUE(HostMachine::wait_until([&] { return waits_of_core_0().groups_ms == 0; }));
  EXPECT_EQ(messages(igmp_report, group), 2U) << "the machine is a member already";
  card_.arrive(query_for({0}, 2), 2);  // a query need not arrive at the first core
  EXPECT_TRUE(reports_become(3));
  card_.arrive(query_for(group, 2), 1);
  EXPECT_TRUE(reports_become(4));
  EXPECT_TRUE(HostMachine::wait_until([&] { return waits_of_core_0().groups_ms == 0; })) << "no timer is armed without a delayed report";
  EXPECT_EQ(messages(igmp_report, all_systems), 0U);
  ASSERT_EQ(change(1, group, false), 0);
  EXPECT_EQ(messages(igmp_leave, group), 0U) << "the machine is still a member";
  ASSERT_EQ(change(2, group, false), 0);
  EXPECT_TRUE(HostMachine::wait_until([&] { return messages(igmp_leave, group) == 1; }));
}

TEST_F(GroupsTest, InvalidRequestsAreRefusedAndChangeNothing) {
  constexpr int invalid = static_cast<int>(ErrorCode::invalid);
  EXPECT_EQ(change(0, all_systems, true), invalid);
  EXPECT_EQ(change(0, client_address, true), invalid);
  EXPECT_EQ(change(0, {0xF0000001}, true), invalid);
  EXPECT_EQ(change(0, group, false), invalid);
  ASSERT_EQ(change(0, group, true), 0);
  EXPECT_EQ(change(0, group, true), invalid);
  EXPECT_EQ(change(1, group, false), invalid);
  EXPECT_EQ(card_.multicast().size(), 2U);
  // Joins the maximum number of groups, and one more.
  constexpr Ipv4Address last{0xEF020000 + Groups::groups_max - 1};
  machine_->run(1, [&]() -> task<void> {
    for (std::uint32_t address = last.value; address > 0xEF020000; --address)
      EXPECT_TRUE((co_await network_->join(Ipv4Address{address})).has_value());
  });
  EXPECT_EQ(change(0, other_group, true), static_cast<int>(ErrorCode::full));
  EXPECT_EQ(card_.multicast().size(), Groups::groups_max + 1);
  EXPECT_TRUE(comes_to({1U}, last, "last"));
  EXPECT_EQ(change(0, group, false), 0);
  EXPECT_EQ(change(0, other_group, true), 0);
  EXPECT_TRUE(comes_to({0U}, other_group, "in its place"));
}

}  // namespace
}  // namespace neap::net::testing
