// SPDX-License-Identifier: BSL-1.0
// The memory that connections hold is counted completely, limited, and freed.
#include "net/stack_memory.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <span>

#include "net/stack.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

constexpr std::size_t limit_bytes = std::size_t{8} << 20;

/// A server that keeps received bytes, on a core with a limit of 8 MiB.
class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    world.machine.on(0, [] { Stack::here()->set_memory_limit(limit_bytes); });
    world.machine.on(world.client_core, [] { Stack::here()->set_memory_limit(std::size_t{1} << 30); });
    world.listen(7, [this](Connection& connection) {
      kept.emplace_back();
      Buffer& own = kept.back();
      connections.push_back(&connection);
      return std::make_unique<RecordingHandler>(server,
                                                RecordingHandler::Behaviour{.on_received = [this, &own](RecordingHandler&, Buffer data) {
                                                  if (!reads) own.append(std::move(data));
                                                }});
    });
    world.listen(8, echoing());
  }
  ~MemoryTest() override {
    world.machine.on(0, [this] { kept.clear(); });
  }

  void attack(std::size_t bytes, std::size_t piece_bytes) {
    clients.push_back(std::make_shared<Record>());
    const RecordingHandler::Behaviour behaviour{.send_seed = 1, .send_bytes = bytes, .piece_bytes = piece_bytes, .by_reference = false};
    EXPECT_EQ(world.connect(service(7), recording(clients.back(), behaviour)), std::nullopt);
  }
  /// Waits until the server receives nothing for half a second.
  void wait_for_silence() {
    EXPECT_TRUE(HostMachine::settled([&] { return server->received.load(); }, 500ms).has_value());
  }
  void expect_served() { EXPECT_LT(served(world, 8), 5s); }

  std::shared_ptr<Record> server = std::make_shared<Record>();
  std::deque<Buffer> kept;
  std::vector<Connection*> connections;
  std::vector<std::shared_ptr<Record>> clients;
  bool reads = false;
  TwoMachines world;
};

// A full window costs at most about twice its bytes in memory, however small the segments are.
TEST_F(MemoryTest, SmallSegmentsAreGathered) {
  constexpr std::size_t attackers = 4, attack_bytes = 60'000;                // less than the first receive window
  for (std::size_t i = 0; i < attackers; ++i) attack(attack_bytes, 16'384);  // use up the card buffers that may be held
  wait_for_silence();
  const std::size_t before = world.counters_of(0).held_bytes;
  std::size_t bytes = 0;
  Connection* client = nullptr;
  auto record = std::make_shared<Record>();
  EXPECT_EQ(world.connect(service(7),
                          [&](Connection& connection) {
                            client = &connection;
                            return std::make_unique<RecordingHandler>(record, RecordingHandler::Behaviour{.close_when_sent = false});
                          }),
            std::nullopt);
  for (; bytes < 20'000; ++bytes) {
    world.machine.on(world.client_core, [&] {
      const std::byte one{pattern(bytes, 5)};
      EXPECT_TRUE(client->send(Buffer::copy({&one, 1})).has_value());
    });
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return server->received == attackers * attack_bytes + bytes; }));
  EXPECT_LT(world.counters_of(0).held_bytes - before, 2 * bytes + 3 * memory::card_buffer_bytes);
  world.machine.on(0, [&] {
    EXPECT_EQ(kept.back().bytes(), bytes);
    std::vector<std::byte> all(bytes);
    EXPECT_EQ(kept.back().peek(all), bytes);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(all[i], pattern(i, 5)) << i;
    EXPECT_GE(connections.back()->held_bytes(), bytes);
    for (Buffer& buffer : kept) buffer.clear();
    EXPECT_LT(connections.back()->held_bytes(), memory::card_buffer_bytes);
  });
}

// A core above its limit refuses payload of the connections that hold the most, and serves all others. Peers send refused payload again.
TEST_F(MemoryTest, ConnectionsOverTheirShareAreRefused) {
  for (int i = 0; i < 200; ++i) attack(100'000, 16'384);
  wait_for_silence();
  Counters counters = world.counters_of(0);
  EXPECT_GT(counters.payload_refused, 0U);
  EXPECT_GT(counters.held_bytes, limit_bytes / 2);
  EXPECT_LE(counters.held_bytes_max, limit_bytes * memory::reset_factor + (std::size_t{1} << 20));
  for (int i = 0; i < 3; ++i) expect_served();
  world.machine.on(0, [&] {
    reads = true;
    for (Buffer& buffer : kept) buffer.clear();
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.counters_of(0).connections_open == 0; }, 60s));
  counters = world.counters_of(0);
  EXPECT_EQ(counters.held_bytes, 0U);
}

// Replies that a peer does not acknowledge fill memory. The core cannot refuse its own replies, so it resets the connection.
TEST_F(MemoryTest, TheConnectionThatHoldsMostIsReset) {
  std::vector<std::byte> reply(1'900'000);
  world.listen(10, [&](Connection& connection) {
    EXPECT_TRUE(connection.send(Buffer::copy(reply)).has_value());
    connection.close();
    return std::make_unique<RecordingHandler>(server, RecordingHandler::Behaviour{});
  });
  auto stalled = std::make_shared<std::deque<Buffer>>();
  bool clients_read = false;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(std::make_shared<Record>());
    EXPECT_EQ(world.connect({.address = server_address, .port = 10},
                            recording(clients.back(), {.on_received =
                                                           [stalled, &clients_read](RecordingHandler&, Buffer data) {
                                                             if (!clients_read) stalled->push_back(std::move(data));
                                                           }})),
              std::nullopt);
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.counters_of(0).held_bytes <= limit_bytes * memory::reset_factor; }));
  EXPECT_GT(world.counters_of(0).connections_evicted, 0U);
  expect_served();
  world.machine.on(world.client_core, [&] {
    clients_read = true;
    stalled->clear();
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.counters_of(0).held_bytes == 0; }, 60s));
}

// A reply in a frame occupies the frame's memory until it is acknowledged, however short it is.
TEST_F(MemoryTest, AShortReplyCountsAsAFrame) {
  const auto replied = std::make_shared<std::atomic<bool>>(false);  // the world, which ends later, still sends frames
  world.listen(11, [this, replied](Connection& connection) {
    return std::make_unique<RecordingHandler>(
        server, RecordingHandler::Behaviour{.on_received = [&connection, replied](RecordingHandler&, const Buffer&) {
          const std::span<std::byte> room = connection.frame();
          if (room.empty()) return;
          room.front() = std::byte{1};
          connection.send_frame(1);
          *replied = true;
        }});
  });
  world.server_card.tap([replied](const Bytes&) { return !*replied; });  // the reply is lost, so it is not acknowledged
  clients.push_back(std::make_shared<Record>());
  EXPECT_EQ(world.connect({.address = server_address, .port = 11},
                          recording(clients.back(), {.send_seed = 1, .send_bytes = 10, .close_when_sent = false})),
            std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return replied->load(); }));
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.counters_of(0).held_bytes >= memory::frame_bytes; }));
  EXPECT_LE(world.counters_of(0).held_bytes, memory::frame_bytes + memory::card_buffer_bytes);
}

}  // namespace
}  // namespace neap::net::testing
