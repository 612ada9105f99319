// SPDX-License-Identifier: BSL-1.0
// ICMP errors on a machine of several cores: the core of the connection gets an error, wherever it arrives.
#include "net/owner_search.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "net/testing/handlers.hpp"
#include "net/testing/ipv6_world.hpp"
#include "net/testing/raw_peer.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

constexpr unsigned cores = 3;
constexpr std::uint16_t mtu_of_path = 1300;

struct Steering {
  const char* name;
  bool ipv6, decides;
};

class OwnerSearch : public ::testing::TestWithParam<Steering> {
 protected:
  OwnerSearch() : world(options()) {
    world.listen(7, [this](Connection& connection) {
      remote = connection.remote();
      owner = static_cast<int>(this_core());
      return idle_handler();
    });
    EXPECT_EQ(world.connect(world.service(7), [](Connection&) { return idle_handler(); }), std::nullopt);
    EXPECT_TRUE(HostMachine::wait_until([this] { return owner >= 0; }));
  }

  /// A report that a segment from the service to `peer_port` was too big, with a sequence number that is not in flight.
  [[nodiscard]] Bytes report(std::uint16_t peer_port) const {
    Bytes transport;
    append(transport, 7, 2);
    append(transport, peer_port, 2);
    append(transport, 0x1234'5678, 4);
    append(transport, Bytes(12));
    Bytes message;
    if (!world.ipv6) {
      append(message, 0x0304'0000, 4);
      append(message, mtu_of_path, 4);
      const Bytes quoted = ipv4_frame({.from = server_address, .to = client_address, .protocol = 6}, transport);
      message.insert(message.end(), quoted.begin() + 14, quoted.end());
      put_word(message, 2, static_cast<std::uint16_t>(~internet_sum(message)));
      return with_checksums(ipv4_frame({.from = client_address, .to = server_address, .protocol = 1}, message));
    }
    append(message, std::uint32_t{ipv6::icmp::too_big} << 24, 4);
    append(message, mtu_of_path, 4);
    append(message, ipv6::testing::packet_of({.next = ipv6::next_header::tcp, .from = server_address6, .to = remote.address}, transport));
    Bytes frame;
    append(frame, world.server_card.mac());
    append(frame, neighbour_mac, 6);
    append(frame, 0x86DD, 2);
    append(frame, ipv6::testing::icmp_packet(remote.address, server_address6, message, 64));
    return frame;
  }
  void settle() {
    for (unsigned round = 0; round < 2 * cores + 2; ++round) {
      for (unsigned core = 0; core < cores; ++core) world.machine.on(core, [] {});
    }
  }
  /// Errors that the cores' connections have got.
  [[nodiscard]] std::vector<std::uint64_t> errors() {
    std::vector<std::uint64_t> found;
    for (unsigned core = 0; core < cores; ++core) found.push_back(world.counters_of(core).icmp_errors);
    return found;
  }
  [[nodiscard]] std::uint64_t sum_of(std::uint64_t Counters::* counter) {
    std::uint64_t sum = 0;
    for (unsigned core = 0; core < cores; ++core) sum += world.counters_of(core).*counter;
    return sum;
  }

  /// Keeps the connection open.
  static std::unique_ptr<ConnectionHandler> idle_handler() {
    return std::make_unique<RecordingHandler>(std::make_shared<Record>(), RecordingHandler::Behaviour{.close_when_sent = false});
  }

  std::atomic<int> owner{-1};
  Endpoint remote{};
  TwoMachines world;

 private:
  static TwoMachinesOptions options() {
    TwoMachinesOptions made{.ipv6 = GetParam().ipv6};
    made.server.cores = cores;
    made.server.decides = GetParam().decides;
    return made;
  }
};

TEST_P(OwnerSearch, AnErrorReachesItsConnectionFromEachCoreOnce) {
  std::vector<std::uint64_t> expected(cores);
  for (unsigned core = 0; core < cores; ++core) {
    world.server_card.arrive(report(remote.port), static_cast<int>(core));
    ++expected[static_cast<std::size_t>(owner.load())];
    EXPECT_TRUE(HostMachine::wait_until([&] { return errors() == expected; })) << "arrived at core " << core;
  }
  settle();
  EXPECT_EQ(errors(), expected);
  if (world.ipv6) EXPECT_EQ(world.counters_of(0).ipv6_mtu_refused, cores) << "no such number is in flight";
}

TEST_P(OwnerSearch, AnErrorOfNoConnectionEnds) {
  const std::uint64_t before = sum_of(&Counters::passed_on);
  world.server_card.arrive(report(static_cast<std::uint16_t>(remote.port ^ 1)), 0);
  if (GetParam().decides) {
    EXPECT_TRUE(HostMachine::wait_until([&] { return sum_of(&Counters::passed_on) - before == cores - 1; }));
  }
  settle();
  EXPECT_LE(sum_of(&Counters::passed_on) - before, cores - 1);
  EXPECT_EQ(errors(), std::vector<std::uint64_t>(cores));
  if (world.ipv6) EXPECT_TRUE(HostMachine::wait_until([&] { return world.counters_of(0).ipv6_mtu_refused == 1; }));
}

// A flood must not fill the queues of the other cores.
TEST_P(OwnerSearch, SearchesAreLimited) {
  constexpr unsigned batches = 100, errors_of_batch = 100;
  const Bytes one = report(static_cast<std::uint16_t>(remote.port ^ 1));
  for (unsigned batch = 0; batch < batches; ++batch) {
    world.server_card.arrive_together(std::vector<Bytes>(errors_of_batch, one), 0);
    world.machine.on(0, [] {});
  }
  settle();
  EXPECT_EQ(sum_of(&Counters::icmp_errors_limited) > 0, GetParam().decides);
  EXPECT_EQ(errors(), std::vector<std::uint64_t>(cores));
  world.listen(8, echoing());
  served(world, 8);
}

INSTANTIATE_TEST_SUITE_P(Net, OwnerSearch,
                         ::testing::Values(Steering{"Rss4", false, false}, Steering{"Device4", false, true}, Steering{"Rss6", true, false},
                                           Steering{"Device6", true, true}),
                         [](const auto& steering) { return std::string(steering.param.name); });

}  // namespace
}  // namespace neap::net::testing
