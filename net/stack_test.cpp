// SPDX-License-Identifier: BSL-1.0
// A machine of several cores: its connections, neighbours, address, and unexpected frames.
#include "net/stack.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "kernel/log.hpp"
#include "net/testing/dhcp_server.hpp"
#include "net/testing/raw_peer.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

TwoMachinesOptions with_cores(unsigned server, unsigned client) {
  TwoMachinesOptions options;
  options.server.cores = server;
  options.client.cores = client;
  return options;
}

/// Makes an IPv4 frame to the server, without checksums.
Bytes packet(unsigned protocol, const Bytes& payload, unsigned identification = 1, unsigned fragment_field = 0,
             Ipv4Address from = client_address) {
  return ipv4_frame(
      {.from = from, .to = server_address, .protocol = protocol, .identification = identification, .fragment_field = fragment_field},
      payload);
}

/// Opens connections from the two cores from `first_core` on in turn. Each transfers 20,000 bytes both ways. Returns when all have ended.
std::vector<std::shared_ptr<Record>> transfers(TwoMachines& world, unsigned count, unsigned first_core) {
  std::vector<std::shared_ptr<Record>> records;
  for (unsigned i = 0; i < count; ++i) {
    records.push_back(std::make_shared<Record>());
    const int core = static_cast<int>(first_core + i % 2);
    const auto acceptor = recording(records.back(), {.check_seed = 9, .send_seed = 9, .send_bytes = 20'000, .expect_bytes = 20'000});
    EXPECT_EQ(world.connect(
                  service(7),
                  [&, core](Connection& connection) {
                    EXPECT_EQ(this_core(), static_cast<unsigned>(core));
                    return acceptor(connection);
                  },
                  core),
              std::nullopt);
  }
  EXPECT_TRUE(
      HostMachine::wait_until([&] { return std::ranges::all_of(records, [](const auto& record) { return ended(*record); }); }, 100s));
  return records;
}

// RSS selects a connection's core, and each core serves its own connections. Segments of an outgoing connection arrive at the core that
// opened the connection.
class StackOnCores : public ::testing::TestWithParam<unsigned> {};

TEST_P(StackOnCores, EveryCoreServesItsOwnConnections) {
  const unsigned cores = GetParam();
  TwoMachines world(with_cores(cores, 2));
  std::mutex lock;
  std::set<unsigned> serving;
  world.listen(7, [&](Connection&) {
    const std::lock_guard guard(lock);
    serving.insert(this_core());
    return std::make_unique<EchoHandler>();
  });
  // There are enough connections that every core gets at least one, whatever the hash selects.
  const auto records = transfers(world, 20 * (cores + 1), cores);
  for (const auto& record : records) {
    EXPECT_EQ(record->received, 20'000U);
    expect_ended_well(*record);
  }
  EXPECT_EQ(serving.size(), cores);
  EXPECT_EQ(*serving.rbegin(), cores - 1);
  for (unsigned core = 0; core < cores; ++core) EXPECT_EQ(world.counters_of(core).passed_on, 0U) << core;
}

INSTANTIATE_TEST_SUITE_P(Net, StackOnCores, ::testing::Values(1, 2, 4));

// A device that decides by itself may deliver the answers to any core. The local port names the core that began the connection, so these
// segments are passed on to it.
TEST(Stack, AConnectionWhoseSegmentsArriveAtAnotherCoreIsServed) {
  TwoMachinesOptions options = with_cores(1, 2);
  options.client.decides = true;
  TwoMachines world(options);
  world.listen(7, echoing());
  const auto records = transfers(world, 20, 1);
  for (const auto& record : records) expect_ended_well(*record);
  // By the hash, some of twenty flows arrive at the other core.
  EXPECT_GT(world.counters_of(1).passed_on + world.counters_of(2).passed_on, 0U);
}

// Control traffic must not count as the application's work.
TEST(Stack, FramesOfAControlPortAreCountedApart) {
  TwoMachines world(with_cores(2, 1));
  ASSERT_TRUE(count_as_control(7).has_value());
  ASSERT_TRUE(count_as_control(7).has_value()) << "a repeated call";
  ASSERT_TRUE(count_as_control(9).has_value());
  EXPECT_EQ(count_as_control(11).error().code, ErrorCode::full);
  EXPECT_EQ(count_as_control(0).error().code, ErrorCode::invalid);
  const auto exchange = [&](std::uint16_t port) {
    served(world, port);
    EXPECT_TRUE(
        HostMachine::wait_until([&] { return world.counters_of(0).connections_open + world.counters_of(1).connections_open == 0; }));
  };
  const auto counted = [&] {
    log::ControlTraffic sum;
    for (unsigned core = 0; core < 2; ++core) {
      const Counters here = world.counters_of(core);
      sum.rx_frames += here.control_frames_received;
      sum.rx_bytes += here.control_bytes_received;
      sum.tx_frames += here.control_frames_sent;
      sum.tx_bytes += here.control_bytes_sent;
    }
    return sum;
  };
  for (const std::uint16_t port : {7, 8}) world.listen(port, echoing());
  exchange(8);
  EXPECT_EQ(counted().rx_frames + counted().tx_frames, 0U) << "the application's frames";
  const auto segments = [&] {
    const Counters one = world.counters_of(0);
    const Counters two = world.counters_of(1);
    return std::pair(one.segments_received + two.segments_received, one.segments_sent + two.segments_sent);
  };
  const auto before = segments();
  exchange(7);
  const auto after = segments();
  const log::ControlTraffic control = counted();
  EXPECT_EQ(control.rx_frames, after.first - before.first);
  EXPECT_EQ(control.tx_frames, after.second - before.second);
  EXPECT_GE(control.rx_bytes, 20'000 + 54 * control.rx_frames);
  EXPECT_GE(control.tx_bytes, 20'000 + 54 * control.tx_frames);
  EXPECT_LE(control.rx_bytes, 20'000 + 90 * control.rx_frames) << "headers, options and padding";
  EXPECT_LE(control.tx_bytes, 20'000 + 90 * control.tx_frames);
}

// ARP answers reach core 0 only. If another core connects first, it must still learn the neighbour without a delay.
TEST(Stack, NeighboursArePublishedToTheOtherCores) {
  TwoMachines world(with_cores(1, 2));
  world.listen(7, echoing());
  auto record = std::make_shared<Record>();
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(world.connect(service(7), recording(record, {.send_seed = 1, .send_bytes = 100, .expect_bytes = 100}), 2), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 900ms);  // without a second ARP request, which is sent after 1 s
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*record); }));
  EXPECT_GE(world.counters_of(1).neighbours_published, 1U);
}

TEST(Stack, ArpAtAnotherQueueIsPassedOn) {
  TwoMachines world(with_cores(2, 1));
  std::atomic<int> answers{0};
  world.server_card.tap([&](const Bytes& frame) {
    if (is_arp(frame, 2)) ++answers;
    return true;
  });
  world.server_card.arrive(arp_answer({0x0A000009}, server_address, world.server_card.mac(), 1), 1);
  EXPECT_TRUE(HostMachine::wait_until([&] { return answers == 1; }));
  EXPECT_EQ(world.counters_of(1).passed_on, 1U);
}

// The first core reassembles fragments, because only a datagram's first fragment has ports. The whole segment may belong to another core.
TEST(Stack, ReassembledSegmentReachesItsConnectionsCore) {
  TwoMachines world(with_cores(2, 1));
  auto server = std::make_shared<Record>();
  std::atomic<unsigned> serving{99};
  const auto acceptor = recording(server, {.keep_text = true});
  world.listen(7, [&](Connection& connection) {
    serving = this_core();
    return acceptor(connection);
  });
  std::atomic<bool> split{false};
  std::atomic<int> fragments{0};
  // A simulated router splits the client's data segment into two fragments.
  world.client_card.tap([&](const Bytes& frame) {
    if (!split || frame.size() < 200 || word(frame, 12) != 0x0800) return true;
    const Bytes payload(frame.begin() + 34, frame.begin() + 14 + word(frame, 16));
    fragments += 2;
    // The fragments arrive in the wrong order, at the core that does not reassemble.
    world.server_card.arrive(with_checksums(packet(6, Bytes(payload.begin() + 104, payload.end()), 77, 104 / 8)), 1);
    world.server_card.arrive(with_checksums(packet(6, Bytes(payload.begin(), payload.begin() + 104), 77, 0x2000)), 1);
    return false;
  });
  // Repeats until both cores have served a connection.
  std::set<unsigned> cores;
  for (int i = 0; i < 40 && cores.size() < 2; ++i) {
    server->received = 0;
    split = false;
    auto client = std::make_shared<Record>();
    const int sent_before = fragments;
    split = true;
    EXPECT_EQ(world.connect(service(7), recording(client, {.send_seed = 4, .send_bytes = 500, .close_when_sent = true})), std::nullopt);
    EXPECT_TRUE(HostMachine::wait_until([&] { return server->received == 500U && ended(*client); }));
    EXPECT_GE(fragments, sent_before + 2);
    cores.insert(serving.load());
  }
  EXPECT_EQ(cores.size(), 2U);
  EXPECT_GT(world.counters_of(0).passed_on, 0U);  // core 0 passed reassembled segments to core 1
  EXPECT_GT(world.counters_of(1).passed_on, 0U);  // core 1 passed fragments to core 0
}

// A layer 4 checksum covers the whole datagram, so a card's verdict on a fragment is ignored, even if another core passed the fragment on.
TEST(Stack, ReassembledDatagramIsCheckedWhateverTheCardReports) {
  TwoMachinesOptions options = with_cores(2, 1);
  options.server.checks_fragments = true;
  TwoMachines world(options);
  std::atomic<int> received{0};
  world.machine.run(0, [&]() -> task<void> {
    const Result<void> receiving = co_await world.server->receive_datagrams(9, [&](const Datagram&) { ++received; });
    EXPECT_TRUE(receiving.has_value());
  });
  Bytes udp(32);
  udp[1] = udp[3] = std::byte{9};
  udp[5] = std::byte{32};
  const Bytes whole = with_checksums(packet(17, udp));
  unsigned identification = 90;
  for (const int core : {0, 1}) {
    for (const bool valid : {true, false}) {
      ++identification;
      const auto bytes = whole.begin() + 34;
      const Bytes first = with_checksums(packet(17, Bytes(bytes, bytes + 16), identification, 0x2000));
      Bytes second = with_checksums(packet(17, Bytes(bytes + 16, whole.end()), identification, 16 / 8));
      if (!valid) second.back() ^= std::byte{1};
      const int received_before = received;
      const std::uint64_t dropped_before = world.counters_of(0).dropped_checksum;
      world.server_card.arrive(first, core);
      world.server_card.arrive(second, core);
      EXPECT_TRUE(
          HostMachine::wait_until([&] { return received != received_before || world.counters_of(0).dropped_checksum != dropped_before; }));
      EXPECT_EQ(received - received_before, valid ? 1 : 0) << "at core " << core;
      EXPECT_EQ(world.counters_of(0).dropped_checksum - dropped_before, valid ? 0U : 1U) << "at core " << core;
    }
  }
}

TEST(Stack, AnswersAPing) {
  TwoMachines world;
  std::atomic<int> answers{0};
  Bytes echo;
  append(echo, 0x0800'0000'1234'0001, 8);
  for (unsigned i = 0; i < 400; ++i) echo.push_back(pattern(i, 1));
  put_word(echo, 2, ~internet_sum(echo) & 0xFFFFU);
  world.server_card.tap([&](const Bytes& frame) {
    if (word(frame, 12) == 0x0800 && frame[23] == std::byte{1} && frame[34] == std::byte{0}) {
      EXPECT_EQ(internet_sum(std::span(frame).subspan(34, echo.size())), 0xFFFF);
      EXPECT_TRUE(std::equal(echo.begin() + 4, echo.end(), frame.begin() + 38));
      ++answers;
    }
    return true;
  });
  world.server_card.arrive(with_checksums(packet(1, echo)));
  EXPECT_TRUE(HostMachine::wait_until([&] { return answers == 1; }));
}

// A card that checks TCP and UDP only leaves the header of IPv4 to the stack, for frames of a connection and for all others.
TEST(Stack, ChecksTheIpv4HeadersThatTheCardDoesNotCheck) {
  TwoMachinesOptions options = with_cores(2, 1);
  options.server.ip_header_offload = false;
  TwoMachines world(options);
  world.listen(7, echoing());
  std::atomic<unsigned> frames{0}, damaged{0};
  world.client_card.tap([&](Bytes& frame) {
    if (frame.at(12) == std::byte{8} && frame.at(13) == std::byte{0} && ++frames % 3 == 0) {
      frame[24] ^= std::byte{1};
      ++damaged;
    }
    return true;
  });
  served(world, 7, 5000);
  EXPECT_GT(damaged, 0U);
  EXPECT_EQ(world.counters_of(0).dropped_checksum + world.counters_of(1).dropped_checksum, damaged);
}

// Invalid frames are dropped and counted, and the machine continues to serve.
TEST(Stack, SurvivesFramesOfEveryShape) {
  TwoMachinesOptions options = with_cores(2, 1);
  options.server.checksum_offload = false;  // the stack checks every frame
  TwoMachines world(options);
  world.listen(7, echoing());
  std::mt19937 random(4711);
  for (int i = 0; i < 20'000; ++i) {
    Bytes payload(random() % 200);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    if (payload.size() > 20 && random() % 2 == 0) {
      payload[2] = std::byte{0};
      payload[3] = std::byte{7};  // to the listener's port; flags and options are random
    }
    constexpr unsigned protocols[] = {1, 6, 6, 6, 17, 2, 41};
    Bytes frame = packet(protocols[random() % 7], payload, random() % 8, random() % 3 == 0 ? random() & 0x3FFF : 0,
                         {static_cast<std::uint32_t>(0x0A000002 + random() % 3)});
    if (random() % 10 == 0) frame[14] = static_cast<std::byte>(random());
    if (random() % 10 == 0) frame[16 + random() % 2] = static_cast<std::byte>(random());
    if (random() % 10 == 0) frame[12 + random() % 2] = static_cast<std::byte>(random());
    if (random() % 3 != 0) fill_checksums(frame);
    if (random() % 8 == 0) frame.resize(random() % (frame.size() + 1));
    world.server_card.arrive(frame, static_cast<int>(random() % 2));
    if (i % 500 == 0) {
      world.machine.on(0, [] {});
      world.machine.on(1, [] {});
    }
  }
  served(world, 7, 5000);
  const Counters counters = world.counters_of(0);
  EXPECT_GT(counters.dropped_malformed, 0U);
  EXPECT_GT(counters.dropped_checksum, 0U);
}

// Half-open connections are limited, so a flood of SYNs uses a limited amount of memory. Further SYNs are answered by cookies and counted.
TEST(Stack, SynFloodIsBounded) {
  TwoMachinesOptions options;
  options.server.checksum_offload = false;
  TwoMachines world(options);
  world.listen(7, echoing());
  for (unsigned i = 0; i < 5000; ++i) {
    const Endpoint from{.address = Ipv4Address{0x0A000050}, .port = static_cast<std::uint16_t>(0x4000 + i)};
    world.server_card.arrive(frame_of({.from = from, .to = service(7), .sequence = i & 0xFF, .flags = syn_flag}, world.server_card.mac()));
    if (i % 200 == 0) world.machine.on(0, [] {});
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.counters_of(0).frames_received >= 5000; }));
  const Counters counters = world.counters_of(0);
  EXPECT_EQ(counters.connections_accepted, 0U);
  EXPECT_LE(counters.half_open, 1024U);
  EXPECT_EQ(counters.half_open + counters.cookies_sent, 5000U);
  EXPECT_EQ(counters.cookies_accepted, 0U);
}

TEST(Stack, ThousandsOfConnectionsAtOnce) {
  TwoMachines world(with_cores(2, 1));
  constexpr int count = 3000;
  world.listen(7, echoing());
  std::vector<std::shared_ptr<Record>> records;
  for (int i = 0; i < count; ++i) records.push_back(std::make_shared<Record>());
  std::atomic<int> connected{0}, failed{0};
  world.machine.on(world.client_core, [&] {
    for (int i = 0; i < count; ++i) {
      start([](TwoMachines& two, std::shared_ptr<Record> record, std::atomic<int>& good, std::atomic<int>& bad) -> task<void> {
        // On a busy host, `connect` may exceed its limit of ten seconds, so the client tries several times.
        for (int tries = 1;; ++tries) {
          const Result<void> result = co_await two.client->connect(
              service(7), recording(record, {.check_seed = 6, .send_seed = 6, .send_bytes = 3000, .close_when_sent = false}));
          if (!result.has_value() && result.error().code == ErrorCode::timeout && tries < 10) continue;
          ++(result.has_value() ? good : bad);
          co_return;
        }
      }(world, records[static_cast<std::size_t>(i)], connected, failed));
    }
  });
  ASSERT_TRUE(HostMachine::wait_until([&] { return connected + failed == count; }, 120s));
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(HostMachine::wait_until(
      [&] { return std::ranges::all_of(records, [](const auto& record) { return record->received == 3000; }); }, 60s));
  // A connection that the client aborted ends on the server as well.
  const auto open = [&] { return world.counters_of(0).connections_open + world.counters_of(1).connections_open; };
  EXPECT_TRUE(HostMachine::wait_until([&] { return open() == static_cast<std::uint64_t>(count); }, 60s)) << open();
  for (const auto& record : records) EXPECT_EQ(record->mismatches, 0U);
}

// An idle core takes no periodic interrupt: without connections, and with all neighbours known, no timer is due within seconds.
TEST(Stack, IdleStackArmsNoShortTimer) {
  TwoMachines world;
  world.listen(7, echoing());
  std::this_thread::sleep_for(200ms);
  const std::uint64_t alarms = host::alarms_set(0);
  std::this_thread::sleep_for(1500ms);
  EXPECT_LE(host::alarms_set(0), alarms + 1);
}

// --- DHCP --------------------------------------------------------------------------------------------------------------------------------
/// A machine without an address, and a server that offers it one.
struct Dhcp : ::testing::Test {
  Dhcp() : card({.cores = 2, .mac = {2, 0, 0, 0, 0, 0x77}}), machine(2) {}
  ~Dhcp() override {
    card.cut();
    machine.run(0, [this] { return network->take_down(); });
  }
  void bring_up_network() {
    machine.run(0, [this]() -> task<void> { network = std::move(*co_await bring_up(card, {}, 0, 2)); });
    EXPECT_EQ(network->address(), (Ipv4Address{0xC0A80042}));
  }

  WireCard card;
  DhcpServer server{card, {0xC0A80042}, {0xC0A80001}};
  HostMachine machine;
  std::unique_ptr<NetworkControl> network;
};

TEST_F(Dhcp, AddressIsLeasedAndKnownToEveryCore) {
  bring_up_network();
  EXPECT_EQ(server.requests(), 1);
  EXPECT_TRUE(HostMachine::wait_until(
      [&] { return machine.value_on(1, [] { return Stack::here()->addresses().address; }) == Ipv4Address{0xC0A80042}; }));
  EXPECT_NE(host::take_console_text().find("net: 192.168.0.66/24 gateway 192.168.0.1 (DHCP), 2 cores"), std::string::npos);
}

// If the first DHCP requests are lost, the machine sends further requests, and other events run meanwhile.
TEST_F(Dhcp, IsAskedForUntilItAnswers) {
  server.ignore_first = 2;
  std::atomic<int> turns{0};
  machine.on(0, [&] {
    start([](std::atomic<int>& count) -> task<void> {
      for (int i = 0; i < 20; ++i) {
        co_await sleep_for(10ms);
        ++count;
      }
    }(turns));
  });
  bring_up_network();
  EXPECT_EQ(turns, 20);
}

TEST_F(Dhcp, WaitsForTheLink) {
  card.set_link(false);
  machine.on(0, [&] {
    start([](WireCard& plugged) -> task<void> {
      co_await sleep_for(300ms);
      plugged.set_link(true);
    }(card));
  });
  bring_up_network();
}

}  // namespace
}  // namespace neap::net::testing
