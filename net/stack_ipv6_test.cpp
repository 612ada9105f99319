// SPDX-License-Identifier: BSL-1.0
// IPv6 through the stacks of a machine with several cores: what any core receives and sends, and what goes to the first core.
#include "net/stack_ipv6.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "net/bring_up.hpp"
#include "net/stack.hpp"
#include "net/testing/ipv6_world.hpp"
#include "net/testing/wire.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {
namespace {

namespace v6 = ipv6;
using host::HostMachine;
using v6::testing::of;
using v6::testing::Packet;

constexpr unsigned cores = 3;
constexpr std::uint16_t port = 9000;
constexpr MacAddress own_mac{2, 0, 0, 0, 0, 1}, peer_mac{2, 0, 0, 0, 0, 0xFE};
const Address own = of("fe80::ff:fe00:1"), peer = of("fe80::fe"), group = of("ff05::1234");

Bytes frame_of(const Packet& packet, const MacAddress& to = own_mac) {
  Bytes frame;
  for (const std::uint8_t byte : to) frame.push_back(static_cast<std::byte>(byte));
  for (const std::uint8_t byte : peer_mac) frame.push_back(static_cast<std::byte>(byte));
  frame.push_back(std::byte{0x86});
  frame.push_back(std::byte{0xDD});
  frame.insert(frame.end(), packet.begin(), packet.end());
  return frame;
}

Packet udp_packet(const Address& to, const std::string& text, std::uint16_t to_port = port, std::uint16_t from_port = 1'234) {
  Packet datagram;
  v6::testing::append(datagram, from_port, 2);
  v6::testing::append(datagram, to_port, 2);
  v6::testing::append(datagram, 8 + text.size(), 2);
  v6::testing::append(datagram, 0, 2);
  for (const char letter : text) v6::testing::append(datagram, static_cast<unsigned char>(letter), 1);
  v6::write_16(datagram.data() + 6, static_cast<std::uint16_t>(~v6::transport_sum(peer, to, v6::next_header::udp, datagram)));
  return v6::testing::packet_of({.next = v6::next_header::udp, .hops = 64, .from = peer, .to = to}, datagram);
}

class StackIpv6Test : public ::testing::Test {
 protected:
  StackIpv6Test() {
    card_.tap([this](const Bytes& frame) {
      const std::lock_guard guard(lock_);
      sent_.push_back(frame);
      return false;
    });
    machine_.emplace(cores);
    machine_->run(0, [&]() -> task<void> {
      AddressSetting setting{.dhcp = false, .ipv4 = false};
      setting.ipv6.mode = Ipv6Setting::Mode::automatic;
      network_ = std::move(*co_await bring_up(card_, setting, 0, cores));
      const Result<void> receiving = co_await network_->receive_datagrams(port, [this](Datagram datagram) {
        std::string text(datagram.data.bytes(), '\0');
        datagram.data.peek(std::as_writable_bytes(std::span(text)));
        const std::lock_guard guard(lock_);
        got_.push_back({.core = this_core(), .to = datagram.to, .from = datagram.from, .text = text});
      });
      EXPECT_TRUE(receiving.has_value());
    });
  }
  ~StackIpv6Test() override {
    card_.cut();
    machine_->run(0, [this] { return network_->take_down(); });
    EXPECT_EQ(card_.buffers_out(), 0);
  }

  struct Got {
    unsigned core;
    Endpoint to, from;
    std::string text;
  };

  std::vector<unsigned> cores_that_got(const std::string& text) {
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
  /// True if, after all events, exactly the cores in `expected` have received `text`.
  bool comes_to(const std::vector<unsigned>& expected, const std::string& text) {
    return HostMachine::wait_until([&] { return cores_that_got(text) == expected; }) && cores_that_got(text) == expected;
  }
  /// The packets that the machine has sent, without their Ethernet headers.
  std::vector<v6::testing::Sent> sent() {
    std::vector<v6::testing::Sent> packets;
    const std::lock_guard guard(lock_);
    for (const Bytes& frame : sent_) {
      if (frame.size() < 54 || v6::read_16(frame, 12) != v6::ethertype) continue;
      v6::testing::Sent one{.to = v6::read_mac(frame, 0)};
      const v6::Header header = v6::Header::read(v6::Octets(frame).subspan(14));
      one.packet.assign(frame.begin() + 14, frame.begin() + 14 + static_cast<std::ptrdiff_t>(v6::header_bytes + header.payload_bytes));
      packets.push_back(one);
    }
    return packets;
  }
  bool sends(unsigned type, std::size_t count = 1) {
    return HostMachine::wait_until([&] {
      return static_cast<std::size_t>(std::ranges::count_if(sent(), [&](const auto& one) { return one.type() == type; })) >= count;
    });
  }
  std::optional<v6::testing::Sent> find_udp() {
    for (const auto& one : sent()) {
      if (one.header().next == v6::next_header::udp) return one;
    }
    return std::nullopt;
  }
  void clear() {
    const std::lock_guard guard(lock_);
    sent_.clear();
  }
  void introduce() {
    card_.arrive(frame_of(v6::testing::solicitation(peer, own.solicited_node(), own, &peer_mac), v6::mac_of_group(own.solicited_node())),
                 0);
    ASSERT_TRUE(sends(v6::icmp::neighbour_advertisement));
    clear();
  }
  /// Sends `text` from `core`; returns the error's code, 0: none.
  int send(unsigned core, const Address& to, const std::string& text) {
    return machine_->value_on(core, [&] {
      const auto done = network_->send_datagram(port, {.address = to, .port = 1'234}, std::as_bytes(std::span(text)));
      return done ? 0 : static_cast<int>(done.error().code);
    });
  }
  Counters sum() {
    Counters all;
    for (unsigned core = 0; core < cores; ++core) {
      const Counters one = machine_->value_on(core, [&] { return counters(core); });
      all.dropped_checksum += one.dropped_checksum;
      all.dropped_malformed += one.dropped_malformed;
    }
    return all;
  }

  std::mutex lock_;
  std::vector<Bytes> sent_;
  std::vector<Got> got_;
  WireCard card_{{.cores = cores, .mac = own_mac}};
  std::optional<HostMachine> machine_;
  std::unique_ptr<NetworkControl> network_;
};

TEST_F(StackIpv6Test, EveryCoreReceivesAndAnswersDatagrams) {
  EXPECT_EQ(network_->ipv6_addresses(), std::vector{own});
  for (unsigned core = 0; core < cores; ++core) {
    card_.arrive(frame_of(udp_packet(own, "to " + std::to_string(core))), static_cast<int>(core));
    EXPECT_TRUE(comes_to({core}, "to " + std::to_string(core)));
  }
  EXPECT_EQ(got_[0].from, (Endpoint{.address = peer, .port = 1'234}));
  EXPECT_EQ(got_[0].to, (Endpoint{.address = own, .port = port}));
  // The peer is not known yet: the first core asks for it, and the datagram of core 2 waits there.
  clear();
  EXPECT_EQ(send(2, peer, "answer"), 0);
  ASSERT_TRUE(sends(v6::icmp::neighbour_solicitation));
  EXPECT_FALSE(find_udp().has_value());
  card_.arrive(frame_of(v6::testing::advertisement(peer, own, &peer_mac)), 1);
  ASSERT_TRUE(HostMachine::wait_until([&] { return find_udp().has_value(); }));
  EXPECT_EQ(find_udp()->to, peer_mac);
  EXPECT_EQ(v6::transport_sum(own, peer, v6::next_header::udp, v6::Octets(find_udp()->packet).subspan(v6::header_bytes)), 0xFFFF);
  // Now core 1 sends it alone.
  clear();
  EXPECT_EQ(send(1, peer, "another"), 0);
  EXPECT_TRUE(HostMachine::wait_until([&] { return find_udp().has_value(); }));
  EXPECT_EQ(send(1, of("2001:db8::1"), "far"), static_cast<int>(ErrorCode::closed));
}

TEST_F(StackIpv6Test, LongDatagramsAreSentAndReceivedInFragments) {
  introduce();
  const std::string text(4'000, 'x');
  EXPECT_EQ(send(2, peer, text), 0);
  const auto fragments = [&] {
    std::vector<v6::testing::Sent> found;
    for (const auto& one : sent()) {
      if (one.header().next == v6::next_header::fragment) found.push_back(one);
    }
    return found;
  };
  ASSERT_TRUE(HostMachine::wait_until([&] { return fragments().size() == 3; }));
  // They come back as the peer's.
  Packet payload;
  for (const auto& one : fragments()) payload.insert(payload.end(), one.packet.begin() + 48, one.packet.end());
  ASSERT_EQ(payload.size(), 4'008U);
  v6::write_16(payload.data(), 1'234);
  v6::write_16(payload.data() + 2, port);
  v6::write_16(payload.data() + 6, 0);
  v6::write_16(payload.data() + 6, static_cast<std::uint16_t>(~v6::transport_sum(peer, own, v6::next_header::udp, payload)));
  for (std::size_t at = 0; at < payload.size(); at += 1'400) {
    const std::size_t end = std::min(at + 1'400, payload.size());
    Packet fragment;
    v6::testing::append(fragment, v6::next_header::udp << 8, 2);
    v6::testing::append(fragment, at | (end < payload.size() ? 1 : 0), 2);
    v6::testing::append(fragment, 7, 4);
    fragment.insert(fragment.end(), payload.begin() + static_cast<std::ptrdiff_t>(at), payload.begin() + static_cast<std::ptrdiff_t>(end));
    card_.arrive(frame_of(v6::testing::packet_of({.next = v6::next_header::fragment, .from = peer, .to = own}, fragment)),
                 static_cast<int>(at % cores));
  }
  EXPECT_TRUE(comes_to({0}, text));
}

TEST_F(StackIpv6Test, AnEchoOrAClosedPortIsAnsweredByTheFirstCore) {
  introduce();
  Packet echo;
  v6::testing::append(echo, 0x8000'0000, 4);
  v6::testing::append(echo, 0x1234'0001, 4);
  card_.arrive(frame_of(v6::testing::icmp_packet(peer, own, echo, 64)), 2);
  EXPECT_TRUE(sends(v6::icmp::echo_reply));
  card_.arrive(frame_of(udp_packet(own, "closed", port + 1)), 2);
  EXPECT_TRUE(sends(v6::icmp::unreachable));
}

TEST_F(StackIpv6Test, AGroupsDatagramsComeToTheCoresThatJoined) {
  const auto change = [&](unsigned core, bool join) {
    int code = 0;
    machine_->run(core, [&]() -> task<void> {
      const Result<void> done = join ? co_await network_->join(group) : co_await network_->leave(group);
      if (!done) code = static_cast<int>(done.error().code);
    });
    return code;
  };
  const Bytes before = frame_of(udp_packet(group, "nobody"), v6::mac_of_group(group));
  card_.arrive(before, 1);
  EXPECT_EQ(change(1, true), 0);
  EXPECT_EQ(change(2, true), 0);
  EXPECT_EQ(change(2, true), static_cast<int>(ErrorCode::invalid));
  EXPECT_TRUE(sends(v6::icmp::listener_report_2));
  const auto filter = card_.multicast();
  EXPECT_TRUE(std::ranges::count(filter, v6::mac_of_group(group)) == 1 &&
              std::ranges::count(filter, v6::mac_of_group(own.solicited_node())) == 1);
  card_.arrive(frame_of(udp_packet(group, "both"), v6::mac_of_group(group)), 1);
  EXPECT_TRUE(comes_to({1, 2}, "both"));
  EXPECT_EQ(change(1, false), 0);
  card_.arrive(frame_of(udp_packet(group, "one"), v6::mac_of_group(group)), 0);
  EXPECT_TRUE(comes_to({2}, "one"));
  EXPECT_TRUE(comes_to({}, "nobody"));
  EXPECT_EQ(change(2, false), 0);
}

TEST_F(StackIpv6Test, DatagramsWithoutAValidChecksumAndSegmentsAreDropped) {
  Packet wrong = udp_packet(own, "wrong");
  wrong.back() ^= std::byte{1};
  card_.arrive(frame_of(wrong), 1);
  Packet none = udp_packet(own, "none");
  v6::write_16(none.data() + v6::header_bytes + 6, 0);
  card_.arrive(frame_of(none), 2);
  card_.arrive(frame_of(v6::testing::packet_of({.next = v6::next_header::tcp, .from = peer, .to = own}, Packet(20))), 1);
  EXPECT_TRUE(HostMachine::wait_until([&] {
    const Counters all = sum();
    return all.dropped_checksum + all.dropped_malformed == 3;
  }));
  EXPECT_TRUE(comes_to({}, "wrong"));
  EXPECT_TRUE(comes_to({}, "none"));
}

TEST_F(StackIpv6Test, TheAddressIsLostWithTheLinkAndComesBack) {
  card_.set_link(false);
  EXPECT_TRUE(HostMachine::wait_until([&] { return network_->ipv6_addresses().empty(); }));
  EXPECT_EQ(send(1, peer, "lost"), static_cast<int>(ErrorCode::closed));
  card_.set_link(true);
  EXPECT_TRUE(HostMachine::wait_until([&] { return network_->ipv6_addresses() == std::vector{own}; }));
}

}  // namespace
}  // namespace neap::net::testing
