// SPDX-License-Identifier: BSL-1.0
// Peers that attack shared resources: memory, half-open connections, wake-ups. Other clients must still be served.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <mutex>
#include <thread>

#include "net/stack.hpp"
#include "net/testing/raw_peer.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

constexpr std::uint16_t attacked_port = 7, other_port = 8, control_port = 9;

/// Returns an address that is not on the server's network. The server has no gateway, so no packet to this address causes an ARP request.
Endpoint spoofed(unsigned number) {
  return {.address = Ipv4Address{0xAC100000U + number / 50'000}, .port = static_cast<std::uint16_t>(1024 + number % 50'000)};
}

/// Delivers frames no faster than the core processes them.
void arrive_all(TwoMachines& world, std::deque<Bytes> frames) {
  while (!frames.empty()) {
    const std::uint64_t before = world.server_card.frames_arrived();
    std::uint64_t sent = 0;
    for (; sent < 500 && !frames.empty(); ++sent) {
      world.server_card.arrive(std::move(frames.front()), 0);
      frames.pop_front();
    }
    EXPECT_TRUE(HostMachine::wait_until([&] { return world.server_card.frames_arrived() >= before + sent; }));
  }
}

void flood(TwoMachines& world, std::uint16_t port, unsigned first, unsigned count) {
  std::deque<Bytes> frames;
  for (unsigned i = first; i < first + count; ++i) {
    frames.push_back(frame_of({.from = spoofed(i), .to = service(port), .sequence = i * 7919, .flags = syn_flag}, world.server_card.mac()));
  }
  arrive_all(world, std::move(frames));
}

// Each of 200 peers sends a full window of bytes, in total 13 MB, to an application that does not read. Other clients must not be affected.
TEST(Hostile, UnreadRequestsDoNotStopACore) {
  constexpr unsigned attackers = 200;
  std::atomic<int> answers{0};  // declared before `world`, whose tap uses it until `world` is destroyed
  TwoMachines world;
  for (const unsigned core : {0U, 1U}) world.machine.on(core, [] { Stack::here()->set_memory_limit(std::size_t{128} << 20); });
  world.machine.on(0, [] { ASSERT_TRUE(count_as_control(control_port).has_value()); });
  auto kept = std::make_shared<std::deque<Buffer>>();
  std::atomic<std::size_t> received{0};
  bool reads = false;
  auto server = std::make_shared<Record>();
  world.listen(attacked_port, [&, kept](Connection&) {
    kept->emplace_back();
    Buffer& own = kept->back();
    return std::make_unique<RecordingHandler>(
        server, RecordingHandler::Behaviour{.on_received = [&own, &received, &reads](RecordingHandler&, Buffer data) {
          received += data.bytes();
          if (!reads) own.append(std::move(data));
        }});
  });
  world.listen(other_port, echoing());
  world.listen(control_port, echoing());
  served(world, other_port);
  std::vector<std::shared_ptr<Record>> clients;
  for (unsigned i = 0; i < attackers; ++i) {
    clients.push_back(std::make_shared<Record>());
    const auto refused =
        world.connect(service(attacked_port), recording(clients.back(), {.send_seed = 1, .send_bytes = 400'000, .by_reference = false}));
    EXPECT_EQ(refused, std::nullopt) << i;
    if (refused.has_value()) break;
  }
  EXPECT_TRUE(HostMachine::settled([&] { return received.load(); }, 500ms).has_value());
  EXPECT_GT(received, std::size_t{10} * 1024 * 1024);
  world.machine.on(0, [&] {  // the core that sends
    world.server_card.tap([&](const Bytes& frame) {
      if (is_arp(frame, 2)) ++answers;
      return true;
    });
  });
  world.server_card.arrive(arp_answer({0x0A000042}, server_address, world.server_card.mac(), 1));
  EXPECT_TRUE(HostMachine::wait_until([&] { return answers > 0; }, 2s)) << "ARP";
  EXPECT_LT(served(world, control_port), 5s);
  EXPECT_LT(served(world, other_port), 5s);
  // The application releases all bytes. The attackers then finish, and all memory is freed.
  world.machine.on(0, [&] {
    reads = true;
    for (Buffer& buffer : *kept) buffer.clear();
  });
  if (HasFailure()) return;
  EXPECT_TRUE(
      HostMachine::wait_until([&] { return std::ranges::all_of(clients, [](const auto& client) { return ended(*client); }); }, 50s));
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server_card.buffers_out() == 0; }));
  EXPECT_EQ(received, attackers * std::size_t{400'000});
}

// After 10,000 SYNs from addresses that do not exist, and during further ones, a client can still connect to that port and to others.
TEST(Hostile, AFloodOfSynsDoesNotBlockAPort) {
  TwoMachines world;
  world.listen(attacked_port, echoing());
  world.listen(other_port, echoing());
  flood(world, attacked_port, 0, 10'000);
  EXPECT_LT(served(world, other_port), 5s);
  std::atomic<bool> over{false}, ended{false};
  world.machine.on(world.client_core, [&] {
    start([](TwoMachines& attacked, std::atomic<bool>& stop, std::atomic<bool>& stopped) -> task<void> {
      for (unsigned first = 10'000; !stop; first += 100) {
        for (unsigned i = first; i < first + 100; ++i) {
          attacked.server_card.arrive(
              frame_of({.from = spoofed(i), .to = service(attacked_port), .sequence = i, .flags = syn_flag}, attacked.server_card.mac()),
              0);
        }
        co_await sleep_for(10ms);  // 10,000 SYNs a second
      }
      stopped = true;
    }(world, over, ended));
  });
  for (int i = 0; i < 5; ++i) EXPECT_LT(served(world, attacked_port), 5s);
  over = true;
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended.load(); }));
}

// Half-open connections to many ports use up the core's connections for applications. Control is still served.
TEST(Hostile, ControlHasReservedConnections) {
  constexpr unsigned ports = 18;
  TwoMachines world;
  world.machine.on(0, [] { ASSERT_TRUE(count_as_control(control_port).has_value()); });
  world.listen(control_port, echoing());
  for (std::uint16_t port = 0; port < ports; ++port) world.listen(static_cast<std::uint16_t>(100 + port), echoing());
  for (std::uint16_t port = 0; port < ports; ++port) {
    flood(world, static_cast<std::uint16_t>(100 + port), port * 1024U, 1024);
  }
  EXPECT_GT(world.counters_of(0).connections_refused, 0U) << "the attack fills the core";
  EXPECT_LT(served(world, control_port), 5s);
}

// --- Closed connections that a peer tries to keep ----------------------------------------------------------------------------------------
class Closing : public ::testing::TestWithParam<bool> {};

// A peer cannot make the machine keep a closed connection by sending or acknowledging a byte every half minute.
TEST_P(Closing, EndsDespiteASlowPeer) {
  const bool acknowledges = GetParam();
  host::ManualClock clock(1'000'000'000);
  host::ClockRunner runner(clock);
  TwoMachines world;
  auto server = std::make_shared<Record>();
  world.listen(attacked_port, [&](Connection& connection) {
    auto handler =
        std::make_unique<RecordingHandler>(server, RecordingHandler::Behaviour{.send_seed = 1, .send_bytes = acknowledges ? 100'000U : 0});
    if (acknowledges) handler->begin_sending();
    if (!acknowledges) connection.close();
    return handler;
  });
  const Endpoint address{.address = Ipv4Address{0x0A000042}, .port = 4000};
  RawPeer peer(world.server_card, address, service(attacked_port));
  std::mutex lock;
  world.server_card.tap([&](const Bytes& frame) {
    const RawSegment segment = segment_in(frame);
    if (segment.flags == 0 || segment.to.address != address.address) return true;
    const std::lock_guard guard(lock);
    peer.process(segment);
    return false;
  });
  world.server_card.arrive(arp_answer(address.address.v4(), server_address, world.server_card.mac(), 1));
  peer.send(syn_flag);
  EXPECT_TRUE(HostMachine::wait_until([&] { return peer.answered.load(); }));
  peer.window = acknowledges ? 1 : 0xFFFF;
  peer.send(ack_flag);
  EXPECT_TRUE(HostMachine::wait_until([&] { return acknowledges ? server->sent == 100'000 : peer.finished.load(); }));
  runner.pause();
  int seconds = 0;
  for (; seconds < 1'200 && !ended(*server); ++seconds) {
    for (int step = 0; step < 20; ++step) {
      clock.advance(50ms);
      world.machine.on(0, [] {});
    }
    const std::lock_guard guard(lock);
    if (!acknowledges) peer.acknowledge = peer.highest;
    if (seconds % 30 == 0 && !acknowledges) peer.send(ack_flag | psh_flag, Bytes(1));
    if (seconds % 30 == 0 && acknowledges) {
      ++peer.acknowledge;
      world.server_card.arrive(arp_answer(address.address.v4(), server_address, world.server_card.mac(), 1));
    }
    // The peer answers every window probe.
    peer.send(ack_flag);
  }
  EXPECT_LT(seconds, 700);
  EXPECT_TRUE(ended(*server));
  EXPECT_TRUE(peer.reset);
  runner.resume();
}

INSTANTIATE_TEST_SUITE_P(Hostile, Closing, ::testing::Bool(), [](const auto& tested) { return tested.param ? "Acknowledges" : "Sends"; });

// --- ARP ---------------------------------------------------------------------------------------------------------------------------------

// Many ARP requests of one neighbour, or requests of thousands of neighbours, must not wake the other cores at each request.
TEST(Hostile, ArpDoesNotWakeTheOtherCores) {
  TwoMachinesOptions options;
  options.server.cores = 2;
  TwoMachines world(options);
  std::deque<Bytes> frames;
  for (unsigned i = 0; i < 2'000; ++i) frames.push_back(arp_answer({0x0A000042}, server_address, world.server_card.mac(), 1));
  arrive_all(world, std::move(frames));
  EXPECT_LE(world.counters_of(0).neighbours_published, 10U) << "the same neighbour";
  frames.clear();
  for (unsigned i = 0; i < 2'000; ++i) {
    frames.push_back(arp_answer({0x0A000100 + i % 128}, server_address, world.server_card.mac(), 1, 0x0200'0000'1000 + i));
  }
  const auto begin = std::chrono::steady_clock::now();
  arrive_all(world, std::move(frames));
  const auto seconds = static_cast<unsigned>((std::chrono::steady_clock::now() - begin) / 1s);
  EXPECT_LE(world.counters_of(0).neighbours_published, 10U + 64 * (seconds + 2)) << "other ones";
}

// 5,000 ARP announcements and 5,000 SYNs arrive from neighbours that do not answer ARP. The clock does not advance, so nothing is
// retransmitted. The ARP entry of a neighbour to which the server sends is not replaced, and a new neighbour is served when it answers.
TEST(Hostile, SilentNeighboursDoNotDisplaceOthers) {
  host::ManualClock clock(1'000'000'000);
  host::ClockRunner runner(clock);
  std::atomic<unsigned> questions{0}, echoed_bytes{0};  // declared before `world`, whose tap uses them
  std::mutex lock;
  TwoMachines world;
  const std::array<Endpoint, 2> addresses{Endpoint{.address = Ipv4Address{0x0A000042}, .port = 4000},
                                          Endpoint{.address = Ipv4Address{0x0A000043}, .port = 4000}};
  RawPeer served_before(world.server_card, addresses[0], service(other_port)), fresh(world.server_card, addresses[1], service(other_port));
  world.listen(attacked_port, echoing());
  world.listen(other_port, echoing());
  world.machine.on(0, [&] {  // the core that sends
    world.server_card.tap([&](const Bytes& frame) {
      if (is_arp(frame, 1) && (frame[41] == std::byte{0x42} || frame[41] == std::byte{0x43})) ++questions;
      const RawSegment segment = segment_in(frame);
      if (segment.flags == 0) return true;
      const std::lock_guard guard(lock);
      if (segment.to.address == addresses[0].address) {
        served_before.process(segment);
        echoed_bytes += static_cast<unsigned>(segment.payload.size());
      } else if (segment.to.address == addresses[1].address) {
        fresh.process(segment);
      }
      return true;
    });
  });
  const auto announce = [&](Ipv4Address from, unsigned operation) {
    return arp_answer(from, server_address, world.server_card.mac(), operation);
  };
  const auto silent = [](unsigned i) { return Ipv4Address{0x0A000050 + i % 150}; };
  const auto flood_near = [&](unsigned count) {
    std::deque<Bytes> frames;
    for (unsigned i = 0; i < count; ++i) {
      const Endpoint from{.address = silent(i), .port = static_cast<std::uint16_t>(1024 + i)};
      frames.push_back(frame_of({.from = from, .to = service(attacked_port), .sequence = i, .flags = syn_flag}, world.server_card.mac()));
    }
    arrive_all(world, std::move(frames));
  };
  const auto expect_served = [&](const char* beside) {
    const unsigned before = echoed_bytes;
    served_before.acknowledge = served_before.highest;
    served_before.send(ack_flag | psh_flag, Bytes(400));
    EXPECT_TRUE(HostMachine::wait_until([&] { return echoed_bytes == before + 400; }, 2s)) << beside;
    EXPECT_EQ(questions, 1U) << beside << ": its entry was displaced";
  };

  runner.pause();
  served_before.send(syn_flag);
  ASSERT_TRUE(HostMachine::wait_until([&] { return questions == 1; }));
  world.server_card.arrive(announce(addresses[0].address.v4(), 2), 0);
  ASSERT_TRUE(HostMachine::wait_until([&] { return served_before.answered.load(); }));
  served_before.send(ack_flag);
  expect_served("nothing");

  std::deque<Bytes> frames;
  for (unsigned i = 0; i < 5'000; ++i) frames.push_back(announce(silent(i), 1));
  arrive_all(world, std::move(frames));
  expect_served("announcements");
  flood_near(5'000);
  expect_served("SYNs");

  fresh.send(syn_flag);
  EXPECT_TRUE(HostMachine::wait_until([&] { return questions == 2; }));
  flood_near(20);
  world.server_card.arrive(announce(addresses[1].address.v4(), 2), 0);
  EXPECT_TRUE(HostMachine::wait_until([&] { return fresh.answered.load(); }, 2s)) << "its request was displaced";
  const Counters counters = world.counters_of(0);
  EXPECT_GT(counters.neighbours_recycled, 4'000U);
  EXPECT_GT(counters.unresolved_dropped, 1'000U);
  runner.resume();
}

}  // namespace
}  // namespace neap::net::testing
