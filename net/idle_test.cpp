// SPDX-License-Identifier: BSL-1.0 Tests stacks in which no frame arrives for a long time. Idle cores are not woken, and times that include
// the idle period are right. The test advances the clock.
#include <gtest/gtest.h>

#include "net/stack.hpp"
#include "net/testing/dhcp_server.hpp"
#include "net/testing/hand_peer.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

/// Two machines with a simulated clock. The clock runs a hundred times as fast as real time until the test takes control of it.
class IdleTest : public ::testing::Test {
 protected:
  explicit IdleTest(const TwoMachinesOptions& options = {}) {
    world_.emplace(options);
    world_->listen(7, echoing());
  }
  ~IdleTest() override {
    runner_.resume();  // the shutdown waits for timers
    world_.reset();
  }

  std::shared_ptr<Record> connect(RecordingHandler::Behaviour behaviour = {.check_seed = 3, .close_when_sent = false}) {
    auto record = std::make_shared<Record>();
    EXPECT_EQ(world_->connect(service(7),
                              [&](Connection& connection) {
                                connection_ = &connection;
                                return std::make_unique<RecordingHandler>(record, behaviour);
                              }),
              std::nullopt);
    return record;
  }
  void send() {
    world_->machine.on(world_->client_core, [&] {
      std::array<std::byte, 100> bytes;
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(sent_ + i, 3);
      sent_ += bytes.size();
      EXPECT_TRUE(connection_->send(Buffer::copy(bytes)).has_value());
    });
  }
  /// Lets the clock run until no core has an alarm within the next `quiet`. From then on, only the test advances the clock.
  [[nodiscard]] bool becomes_quiet(std::chrono::nanoseconds quiet) {
    runner_.resume();
    const bool is_quiet =
        HostMachine::wait_until([&] { return earliest_alarm() > clock_now() + static_cast<std::uint64_t>(quiet.count()); });
    runner_.pause();
    return is_quiet;
  }
  /// Advances the clock in steps until `condition` holds; returns the time that this took, at most `limit`.
  std::chrono::milliseconds time_until(const std::function<bool()>& condition, std::chrono::milliseconds limit,
                                       std::chrono::milliseconds step = 5ms) {
    auto passed = 0ms;
    for (; passed < limit && !condition(); passed += step) pass(step);
    return passed;
  }
  void pass(std::chrono::nanoseconds time) {
    clock_.advance(time);
    settle();
  }
  /// Waits until all due timers have run and the frames that they sent are processed and answered. The answer to a keep-alive probe takes
  /// many steps on a host whose threads wait for each other, because both sides may have to ask for the neighbour's address first.
  void settle() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      const std::uint64_t frames = world_->server_card.frames_sent() + world_->client_card.frames_sent();
      for (int i = 0; i < 3; ++i) {
        world_->machine.on(0, [] {});
        world_->machine.on(world_->client_core, [] {});
      }
      const bool still = world_->server_card.frames_sent() + world_->client_card.frames_sent() == frames;
      if (still && earliest_alarm() > clock_now()) return;
    }
  }
  [[nodiscard]] std::uint64_t clock_now() {
    return world_->machine.value_on(0, [] { return machine::now_ns(); });
  }
  [[nodiscard]] std::uint64_t earliest_alarm() { return std::min(host::alarm_of(0), host::alarm_of(world_->client_core)); }
  [[nodiscard]] bool client_in_time_wait() {
    return world_->machine.value_on(world_->client_core, [] { return Stack::here()->time_waits() != 0; });
  }

  host::ManualClock clock_{1'000'000'000};
  host::ClockRunner runner_{clock_, 10ms};
  std::optional<TwoMachines> world_;
  Connection* connection_ = nullptr;
  std::size_t sent_ = 0;
};

// An idle server costs nothing: neither connections nor known neighbours wake it.
TEST_F(IdleTest, ThousandConnectionsWakeNoCoreForAnHour) {
  std::vector<std::shared_ptr<Record>> records;
  for (int i = 0; i < 1000; ++i) {
    records.push_back(connect());
    if (i % 10 == 0) send();
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return records[990]->received == 100; }));
  ASSERT_TRUE(becomes_quiet(1h));
  settle();  // so that no core is about to disarm its alarm
  const std::uint64_t alarms = host::alarms_set(0) + host::alarms_set(world_->client_core);
  for (int minute = 0; minute < 60; ++minute) pass(1min);
  EXPECT_EQ(host::alarms_set(0) + host::alarms_set(world_->client_core), alarms);
  EXPECT_EQ(world_->counters_of(0).connections_open, 1000U);
  EXPECT_EQ(world_->counters_of(0).connections_reset, 0U);
}

// After an idle hour, a lost segment is retransmitted after the same time-out as before the hour, neither at once nor late. Round trips
// measured after the pause are as short as before it.
TEST_F(IdleTest, RetransmissionAfterAnIdleHourIsOnTime) {
  std::atomic<bool> losing{false};
  std::atomic<int> data_segments{0};
  world_->client_card.tap([&](const Bytes& frame) {
    if (frame.size() < 100) return true;
    ++data_segments;
    return !losing;
  });
  const auto record = connect();
  runner_.pause();                 // so that the host's scheduling does not affect the measured times
  for (int i = 1; i <= 20; ++i) {  // the retransmission time-out approaches the measured round trips
    send();
    EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == sent_; }));
  }
  for (int hour = 0; hour < 3; ++hour) {
    losing = false;
    send();
    EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == sent_; }));
    ASSERT_TRUE(becomes_quiet(30min));
    clock_.advance(1h - 20min * hour);  // so that each pause ends at a different time within a tick
    clock_.advance(37ms * hour);
    settle();
    losing = true;
    const int before = data_segments;
    send();
    EXPECT_TRUE(HostMachine::wait_until([&] { return data_segments == before + 1; }));
    settle();
    const auto waited = time_until([&] { return data_segments > before + 1; }, 2s);
    EXPECT_GE(waited, 100ms);
    EXPECT_LE(waited, 500ms);
    losing = false;
    runner_.resume();
    EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == sent_; }));
    runner_.pause();
  }
  EXPECT_EQ(record->mismatches, 0U);
}

// Network cards whose TX completions cause no interrupt. The driver reports them with the next received frame, or when the stack asks.
class LateCompletionsTest : public IdleTest {
 protected:
  LateCompletionsTest() : IdleTest(late()) {}
  static TwoMachinesOptions late() {
    TwoMachinesOptions options;
    options.server.completes_late = options.client.completes_late = true;
    return options;
  }
};

// A segment that the card holds would be copied to be sent again. No frame arrives after a loss, so the stack itself has to ask for
// completions.
TEST_F(LateCompletionsTest, ALostSegmentIsRetransmittedOnTime) {
  std::atomic<bool> losing{false};
  std::atomic<int> data_segments{0};
  world_->client_card.tap([&](const Bytes& frame) {
    if (frame.size() < 100) return true;
    ++data_segments;
    return !losing;
  });
  const auto record = connect();
  runner_.pause();
  for (int i = 1; i <= 20; ++i) {
    send();
    EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == sent_; }));
  }
  losing = true;
  const int before = data_segments;
  send();
  EXPECT_TRUE(HostMachine::wait_until([&] { return data_segments == before + 1; }));
  settle();
  EXPECT_LE(time_until([&] { return data_segments > before + 1; }, 2s), 500ms);
  losing = false;
  runner_.resume();
  EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == sent_; }));
  EXPECT_EQ(record->mismatches, 0U);
}

// If a core's timer is late, the core must still drop an incomplete datagram, because no later tick would drop it.
TEST_F(IdleTest, FragmentsEndThoughTicksAreLate) {
  runner_.pause();
  world_->server_card.arrive(HandPeer::ipv4_frame(17, Bytes(64), 1, 0x2000), 0);
  settle();
  EXPECT_EQ(world_->server_card.buffers_out(), 1);
  for (int i = 0; i < 12; ++i) pass(1900ms);
  EXPECT_EQ(world_->server_card.buffers_out(), 0);
}

// The stack checks TIME-WAIT in coarse steps. TIME-WAIT lasts at least 30 s and at most 15 s longer, plus the delay of the ticks.
TEST_F(IdleTest, TimeWaitEnds) {
  const auto record = connect();
  runner_.pause();
  world_->machine.on(world_->client_core, [&] { connection_->close(); });
  EXPECT_LE(time_until([&] { return ended(*record); }, 2s), 500ms);
  EXPECT_TRUE(client_in_time_wait());
  const std::uint64_t alarms = host::alarms_set(world_->client_core);
  const auto waited = time_until([&] { return !client_in_time_wait(); }, 60s, 50ms);
  EXPECT_GE(waited, 29s);
  EXPECT_LE(waited, 46s);
  EXPECT_LE(host::alarms_set(world_->client_core) - alarms, 10U);
  EXPECT_TRUE(becomes_quiet(10h));
}

// Idle time also counts while ticks are stopped: keep-alive detects a lost peer after two hours and some minutes, not earlier.
TEST_F(IdleTest, VanishedPeerIsNoticedAfterTwoHours) {
  const auto record = connect();
  send();
  EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == 100; }));
  ASSERT_TRUE(becomes_quiet(1h));
  world_->server_card.cut();
  for (int minute = 0; minute < 119; ++minute) pass(1min);
  EXPECT_EQ(record->closed, 0);
  int seconds = 0;
  for (; seconds < 600 && record->closed == 0; ++seconds) pass(1s);
  EXPECT_EQ(record->closed, 1);
  EXPECT_GE(seconds, 60 + 120);
}

TEST_F(IdleTest, AnsweredKeepAliveKeepsTheConnection) {
  const auto record = connect();
  send();
  EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == 100; }));
  // Both sides are established and have no answer open: a minute that passes in the middle of the handshake would end it.
  ASSERT_TRUE(becomes_quiet(1h));
  for (int minute = 0; minute < 10 * 60; ++minute) pass(1min);
  EXPECT_EQ(record->closed, 0);
  runner_.resume();
  send();
  EXPECT_TRUE(HostMachine::wait_until([&] { return record->received == 200; }));
}

// A lease of an hour is renewed repeatedly at the times of RFC 2131, 4.4.5, without an earlier wake-up. A lease that is not renewed ends.
TEST(IdleLease, IsRenewedInTimeWithoutAWakeUpBefore) {
  host::ManualClock clock(1'000'000'000);
  WireCard card({.mac = {2, 0, 0, 0, 0, 0x77}});
  DhcpServer server(card, {0xC0A80042}, {0xC0A80001});
  HostMachine machine(1);
  std::unique_ptr<NetworkControl> network;
  host::ClockRunner runner(clock);
  machine.run(0, [&]() -> task<void> { network = std::move(*co_await bring_up(card, {}, 0, 1)); });
  runner.pause();
  const auto pass = [&](int minutes) {
    for (int minute = 0; minute < minutes; ++minute) {
      clock.advance(1min);
      for (int i = 0; i < 4; ++i) machine.on(0, [] {});
    }
  };
  pass(6);  // ARP has finished by then
  const std::uint64_t alarms = host::alarms_set(0);
  const std::uint64_t frames = card.frames_sent();
  pass(22);
  EXPECT_EQ(host::alarms_set(0), alarms);
  EXPECT_EQ(card.frames_sent(), frames);
  pass(4);  // after half of the lease: a unicast request to the server, which does not answer ARP here
  EXPECT_GT(card.frames_sent(), frames);
  EXPECT_EQ(server.requests(), 1);
  pass(23);  // after seven eighths of the lease: a broadcast request
  EXPECT_EQ(server.requests(), 2);
  pass(50);
  EXPECT_EQ(server.requests(), 2);
  pass(4);
  EXPECT_EQ(server.requests(), 3);
  server.ignore_first = 1'000'000;
  pass(55);
  EXPECT_EQ(network->address(), (Ipv4Address{0xC0A80042}));
  pass(6);
  EXPECT_EQ(network->address(), Ipv4Address{});
  card.cut();
  runner.resume();
  machine.run(0, [&] { return network->take_down(); });
}

}  // namespace
}  // namespace neap::net::testing
