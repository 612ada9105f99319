// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/queue_pair.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "drivers/ixgbe/test_card.hpp"
#include "kernel/interrupts.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::ixgbe {
namespace {

using host::HostMachine;
using test::Bytes;
using test::frame_of;

struct QueuePairTest : testing::Test {
  void start(const QueueOptions& options = {}) {
    machine.on(0, [&] {
      ASSERT_TRUE(pair->prepare(options).has_value());
      pair->program(options);
      pair->receive_queue().refill();
      pair->set_link(true);
      vector = allocate_vector(0, [this] { pair->interrupt(); }).value();
    });
  }
  void attach() {
    machine.on(0, [&] { pair->attach(stack); });
  }
  void start_attached(const QueueOptions& options = {}) {
    start(options);
    attach();
  }
  /// Sends a frame of 100 bytes. MUST be called on core 0.
  TransmitResult transmit(void* token = nullptr) {
    const TransmitPiece piece{.data = reinterpret_cast<const std::byte*>(bytes.data()), .bytes = 100};
    return pair->transmit({&piece, 1}, {}, token);
  }
  void TearDown() override {
    // The pair's hooks belong to core 0, so the pair is destroyed there.
    machine.on(0, [&] {
      stack.release_all();
      pair.reset();
    });
  }
  void receive(std::uint32_t frames) {
    for (std::uint32_t i = 0; i < frames; ++i) ASSERT_TRUE(card.receive(frame_of(i, 100)));
  }
  [[nodiscard]] bool received(std::size_t frames) {
    return HostMachine::wait_until([&] { return machine.value_on(0, [&] { return stack.frames.size(); }) == frames; });
  }
  [[nodiscard]] std::uint64_t receive_tails() const { return pair->receive_queue().counters().tail_writes.value(); }

  struct LogEnds {
    ~LogEnds() { log::release(); }
  } after_the_machine;
  const Bytes bytes = frame_of(1, 100);
  test::TestCard card;
  test::TestReceiver stack;
  HostMachine machine{1};
  std::unique_ptr<QueuePair> pair = std::make_unique<QueuePair>(card.registers(), 0);
  std::uint8_t vector = 0;
};

TEST_F(QueuePairTest, LinkChangesAreReportedOnceAndOnlyWhileAttached) {
  start();
  pair->announce_link();
  attach();
  machine.on(0, [&] {
    EXPECT_TRUE(stack.link.empty()) << "reported before a receiver was attached";
    pair->set_link(false);
    pair->announce_link();
    pair->set_link(true);
    pair->announce_link();
  });
  machine.on(0, [&] { EXPECT_EQ(stack.link, std::vector<bool>{true}) << "two changes in one event are reported once"; });
}

// The card raises no second interrupt for descriptors that it has announced already.
TEST_F(QueuePairTest, BudgetExitStrandsNoPacket) {
  start_attached();
  machine.on(0, [&] {
    receive(3 * 64 + 16);
    pair->interrupt();
    EXPECT_EQ(stack.frames.size(), 64U) << "one event takes at most its budget";
  });
  ASSERT_TRUE(received(208));
  for (std::uint32_t i = 0; i < 208; ++i) EXPECT_EQ(stack.frames[i], frame_of(i, 100));
  machine.on(0, [&] {
    EXPECT_EQ(pair->counters().budget_exits.value(), 3U);
    EXPECT_EQ(pair->counters().idle_finds.value(), 0U) << "a busy core does not reach the check before sleep";
    EXPECT_EQ(receive_tails(), 1U + 4U) << "the first fill, then one tail write for each event";
  });
}

TEST_F(QueuePairTest, OtherEventsRunBetweenBudgets) {
  start_attached();
  std::size_t seen = 0;
  machine.on(0, [&] {
    receive(200);
    spawn([&] { seen = stack.frames.size(); });
    pair->interrupt();
  });
  ASSERT_TRUE(received(200));
  EXPECT_EQ(seen, 64U);
}

TEST_F(QueuePairTest, AnInterruptOfTheVectorDeliversFrames) {
  start_attached();
  for (std::uint32_t round = 1; round <= 20; ++round) {
    receive(7);  // the machine sleeps: without the interrupt the ring is not processed
    machine.interrupt(0, vector);
    ASSERT_TRUE(received(7 * round));
  }
  machine.on(0, [&] { EXPECT_EQ(pair->counters().interrupts.value(), 20U); });
}

TEST_F(QueuePairTest, TheCoresLogCountsTrafficWhileAStackIsAttached) {
  start();
  EXPECT_EQ(log::traffic(0).rx_frames, 0U);
  attach();
  machine.on(0, [&] {
    receive(70);  // more than a budget
    pair->interrupt();
  });
  ASSERT_TRUE(received(70));
  EXPECT_EQ(log::traffic(0).rx_frames, 70U);
  EXPECT_EQ(log::traffic(0).rx_bytes, 7'000U);
  EXPECT_EQ(log::traffic(0).rx_descriptors, 70U);
  machine.on(0, [&] { EXPECT_TRUE(pair->detach()); });
  EXPECT_EQ(log::traffic(0).rx_frames, 0U) << "no traffic is watched any more";
}

// Each interrupt, even without work, and each poll that found work writes one log record, before the frames are processed.
TEST_F(QueuePairTest, EveryInterruptAndEveryFindIsALogRecord) {
  start_attached();
  machine.run(0, []() -> task<void> {
    EXPECT_TRUE((co_await log::prepare({})).has_value());
    EXPECT_TRUE((co_await log::start({})).has_value());
  });
  machine.on(0, [&] { pair->interrupt(); });  // finds no work
  machine.on(0, [&] {
    receive(100);  // more than a budget: the rest is found by polling
    pair->interrupt();
  });
  ASSERT_TRUE(received(100));
  machine.on(0, [&] { receive(5); });  // found by the last check before sleep
  ASSERT_TRUE(received(105));
  machine.run(0, []() -> task<void> { EXPECT_TRUE((co_await log::stop()).has_value()); });
  std::vector<log::Record> lines(static_cast<std::size_t>(log::extent(0).end));
  ASSERT_EQ(log::read(0, 0, lines), lines.size());
  std::vector<std::pair<log::Kind, std::uint32_t>> records;
  for (const log::Record& line : lines) {
    const auto kind = static_cast<log::Kind>(line.kind);
    if (kind == log::Kind::interrupt || kind == log::Kind::poll || kind == log::Kind::stop) records.emplace_back(kind, line.rx_frames);
  }
  using log::Kind;
  const std::vector<std::pair<Kind, std::uint32_t>> expected{
      {Kind::interrupt, 0}, {Kind::interrupt, 0}, {Kind::poll, 64}, {Kind::poll, 36}, {Kind::stop, 5}};
  EXPECT_EQ(records, expected);
}

// Frames may be written back long before their interrupt, because interrupt moderation delays it.
TEST_F(QueuePairTest, TheRingIsCheckedOnceMoreBeforeSleep) {
  start_attached();
  machine.on(0, [&] { receive(5); });  // without an interrupt
  ASSERT_TRUE(received(5));
  machine.on(0, [&] {
    EXPECT_EQ(pair->counters().idle_finds.value(), 1U);
    EXPECT_EQ(pair->counters().interrupts.value(), 0U);
  });
  machine.interrupt(0, vector);  // the delayed interrupt
  const auto empty = [&] { return pair->counters().empty_interrupts.value(); };
  ASSERT_TRUE(HostMachine::wait_until([&] { return machine.value_on(0, empty) == 1; }));
}

TEST_F(QueuePairTest, FramesFromBeforeAttachArriveAfterIt) {
  start();
  machine.on(0, [&] {
    receive(3);
    pair->interrupt();
    EXPECT_TRUE(stack.frames.empty());
  });
  attach();
  EXPECT_TRUE(received(3));
}

TEST_F(QueuePairTest, AnEventsFramesAreOneTailWriteIncludingThoseOfLaterHooks) {
  start_attached();
  std::optional<EventEndHook> server;
  machine.on(0, [&] {
    server.emplace([&] { EXPECT_TRUE(transmit(&card).has_value()); });
    EXPECT_TRUE(transmit(&card).has_value());
    EXPECT_TRUE(transmit(&card).has_value());
    server->request();
  });
  machine.on(0, [&] {
    EXPECT_EQ(pair->transmit_queue().counters().tail_writes.value(), 1U);
    card.transmit();
    pair->interrupt();
    EXPECT_EQ(card.sent.size(), 3U);
    EXPECT_EQ(stack.tokens.size(), 3U) << "completions come with the queue's event";
    server.reset();
  });
}

TEST_F(QueuePairTest, ReleasesRefillAnEmptyRing) {
  start_attached({.receive_descriptors = 64, .receive_buffers = 64});
  machine.on(0, [&] { stack.keep = true; });
  std::uint32_t sent = 0;
  for (int round = 0; round < 10; ++round) {
    machine.on(0, [&] {
      while (card.receive(frame_of(sent, 100))) ++sent;
      pair->interrupt();
    });
  }
  ASSERT_EQ(sent, 64U);
  machine.on(0, [&] {
    EXPECT_EQ(card.receive_room(), 0U);
    EXPECT_GE(pair->receive_queue().counters().pool_empty.value(), 1U);
    for (int i = 0; i < 32; ++i) stack.release_one();
  });
  machine.on(0, [&] {
    EXPECT_EQ(card.receive_room(), 32U) << "an empty ring causes no interrupt, so releases must refill it";
    receive(32);
  });
  EXPECT_TRUE(received(96));
}

TEST_F(QueuePairTest, WithoutALinkFramesAreRefused) {
  start_attached();
  machine.on(0, [&] {
    pair->set_link(false);
    const auto refused = transmit();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error(), ErrorCode::closed);
    EXPECT_EQ(pair->transmit_queue().pending(), 0U);
  });
}

TEST_F(QueuePairTest, WithoutLinkOrStackFramesAreRefusedFromTheNextEventOn) {
  start_attached();
  machine.on(0, [&] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(transmit().has_value());
    pair->set_link(false);
  });
  machine.on(0, [&] {
    EXPECT_EQ(transmit().error(), ErrorCode::closed);
    pair->set_link(true);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(transmit().has_value());
    card.transmit();
    EXPECT_TRUE(pair->detach());
    EXPECT_EQ(transmit().error(), ErrorCode::closed) << "at once";
  });
}

// `detach` must not let the pair be destroyed while one of its events is queued.
TEST_F(QueuePairTest, DetachReportsWhetherAnEventIsStillQueued) {
  start_attached();
  machine.on(0, [&] {
    receive(200);
    pair->interrupt();
    const std::size_t seen = stack.frames.size();
    EXPECT_FALSE(pair->detach());
    spawn([this, seen] {
      EXPECT_TRUE(pair->detach());
      EXPECT_EQ(stack.frames.size(), seen) << "no frame after detach";
    });
  });
  machine.on(0, [&] { EXPECT_TRUE(pair->detach()); });
}

// A core that sleeps by `monitor` watches the line that `next_receive_line` returns. The next frame's write-back must change that line, at
// every position in the ring.
TEST_F(QueuePairTest, TheNextFrameChangesTheNextReceiveLine) {
  start_attached({.receive_descriptors = 64, .receive_buffers = 256});
  const auto words = [](const volatile void* line) {
    std::array<std::uint64_t, 8> copy{};
    std::memcpy(copy.data(), const_cast<const void*>(line), sizeof copy);
    return copy;
  };
  for (std::uint32_t i = 0; i < 150; ++i) {
    machine.on(0, [&] {
      EXPECT_FALSE(pair->frames_pending());
      const volatile void* const line = pair->next_receive_line();
      ASSERT_NE(line, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(line) % 64, 0U);
      const auto before = words(line);
      ASSERT_TRUE(card.receive(frame_of(i, 100)));
      EXPECT_NE(words(line), before) << i;
      EXPECT_TRUE(pair->frames_pending());
      pair->interrupt();
    });
  }
}

// TX completions cause no interrupt. They wait for the next event, unless the ring is short of room. Then a core reaps them before it
// sleeps, and they count neither as a find nor as a poll in the log.
TEST_F(QueuePairTest, CompletionsAloneAreNoWork) {
  constexpr std::uint32_t ring = 64;
  start_attached({.transmit_descriptors = ring});
  machine.run(0, []() -> task<void> {
    EXPECT_TRUE((co_await log::prepare({})).has_value());
    EXPECT_TRUE((co_await log::start({})).has_value());
  });
  const std::uint64_t before = log::extent(0).end;
  const auto tokens = [&] { return machine.value_on(0, [&] { return stack.tokens.size(); }); };
  machine.on(0, [&] {
    for (std::uint32_t i = 0; i < ring / 2; ++i) EXPECT_TRUE(transmit(&card).has_value());
  });
  machine.on(0, [&] { card.transmit(); });
  EXPECT_EQ(tokens(), 0U);
  machine.on(0, [&] { EXPECT_TRUE(transmit(&card).has_value()); });
  ASSERT_TRUE(HostMachine::wait_until([&] { return tokens() == ring / 2; }));
  EXPECT_EQ(pair->counters().idle_finds.value(), 0U);
  std::vector<log::Record> lines(static_cast<std::size_t>(log::extent(0).end - before));
  ASSERT_EQ(log::read(0, before, lines), lines.size());
  for (const log::Record& line : lines) EXPECT_NE(static_cast<log::Kind>(line.kind), log::Kind::poll);
  machine.run(0, []() -> task<void> { EXPECT_TRUE((co_await log::stop()).has_value()); });
}

// The stack calls this before it acts on what the card still holds.
TEST_F(QueuePairTest, ReapReportsCompletionsWithinTheCall) {
  start_attached();
  machine.on(0, [&] { EXPECT_TRUE(transmit(&card).has_value()); });
  machine.on(0, [&] {
    pair->reap();
    EXPECT_TRUE(stack.tokens.empty());
    card.transmit();
    pair->reap();
    EXPECT_EQ(stack.tokens.size(), 1U);
  });
}

struct QueuePairClockTest : testing::Test {
  // The clock MUST be created before the machine.
  host::ManualClock clock{1'000'000};
};

// A core that only sends gets no interrupt for its completions. The card sends while the core sleeps, so the check before sleep is too
// early. A timer then reaps the completions, but only while the ring is short of room: an idle core has to sleep.
TEST_F(QueuePairClockTest, ATimerMakesRoomInAFullRingWithoutAnInterrupt) {
  struct RoomReceiver : test::TestReceiver {
    void transmit_room() noexcept override { room.store(true); }
    std::atomic<bool> room = false;
  };
  constexpr std::uint32_t ring = 64;
  constexpr QueueOptions options{.transmit_descriptors = ring};
  test::TestCard card;
  RoomReceiver stack;
  HostMachine machine{1};
  auto pair = std::make_unique<QueuePair>(card.registers(), 0);
  pair->set_link(true);
  const Bytes bytes = frame_of(1, 100);
  const TransmitPiece piece{.data = reinterpret_cast<const std::byte*>(bytes.data()), .bytes = 100};
  machine.on(0, [&] {
    ASSERT_TRUE(pair->prepare(options).has_value());
    pair->program(options);
    pair->attach(stack);
  });
  constexpr std::uint64_t soon_ns = 1'000'000;
  std::uint64_t now_ns = 1'000'000;
  const auto wakes_soon = [&] {
    machine.on(0, [] {});
    const auto asleep = [] { return host::asleep_in(0).has_value() && host::alarm_of(0) != machine::alarm_none; };
    EXPECT_TRUE(HostMachine::wait_until(asleep));
    return host::alarm_of(0) <= now_ns + soon_ns;
  };
  machine.on(0, [&] {
    for (std::uint32_t i = 0; i < ring / 2; ++i) EXPECT_TRUE(pair->transmit({&piece, 1}, {}, &card).has_value());
  });
  EXPECT_FALSE(wakes_soon()) << "half of the ring may wait for the watchdog";
  machine.on(0, [&] {
    while (pair->transmit({&piece, 1}, {}, &card).has_value()) {
    }
  });
  EXPECT_TRUE(wakes_soon());
  pair->set_link(false);
  const auto later = [&] {
    clock.advance(std::chrono::nanoseconds(soon_ns));
    now_ns += soon_ns;
  };
  later();
  EXPECT_FALSE(wakes_soon()) << "without a link the card completes nothing";
  pair->set_link(true);
  machine.on(0, [&] { pair->announce_link(); });
  EXPECT_TRUE(wakes_soon());
  later();
  EXPECT_TRUE(wakes_soon()) << "the timer runs until there is room";
  EXPECT_FALSE(stack.room.load());
  card.transmit();  // the core is asleep
  later();
  EXPECT_TRUE(HostMachine::wait_until([&] { return stack.room.load(); }));
  EXPECT_FALSE(wakes_soon());
  machine.on(0, [&] {
    EXPECT_EQ(stack.tokens.size(), ring - 1);
    EXPECT_EQ(pair->counters().interrupts.value(), 0U);
    EXPECT_EQ(pair->counters().idle_finds.value(), 0U);
    pair.reset();
  });
}

TEST_F(QueuePairClockTest, AHangIsCountedOnlyWithFramesInFlightAndALink) {
  test::TestCard card;
  test::TestReceiver stack;
  HostMachine machine{1};
  auto pair = std::make_unique<QueuePair>(card.registers(), 0);
  pair->set_link(true);
  unsigned complaints = 0;
  const Bytes bytes = frame_of(1, 100);
  const TransmitPiece piece{.data = reinterpret_cast<const std::byte*>(bytes.data()), .bytes = 100};
  machine.on(0, [&] {
    ASSERT_TRUE(pair->prepare({}).has_value());
    pair->program({});
    pair->on_failure([](void* calls) noexcept { ++*static_cast<unsigned*>(calls); }, &complaints);
    pair->attach(stack);
  });
  // `on` returns when the event has run. The event's end hooks and due timers run before the next event.
  const auto hangs_after = [&](std::chrono::nanoseconds time) {
    std::uint64_t hangs = 0;
    machine.on(0, [] {});
    clock.advance(time);
    for (int i = 0; i < 3; ++i) machine.on(0, [&] { hangs = pair->transmit_queue().counters().hangs.value(); });
    return hangs;
  };
  const auto period = QueuePair::hang_period + std::chrono::milliseconds{1};
  EXPECT_EQ(hangs_after(10 * period), 0U);

  machine.on(0, [&] { EXPECT_TRUE(pair->transmit({&piece, 1}, {}, &card).has_value()); });
  EXPECT_EQ(hangs_after(period), 1U);
  EXPECT_EQ(hangs_after(period), 2U);
  pair->set_link(false);
  EXPECT_EQ(hangs_after(period), 2U) << "without a link frames may wait";
  pair->set_link(true);
  machine.on(0, [&] {
    card.transmit();
    EXPECT_TRUE(stack.tokens.empty());
  });
  EXPECT_EQ(hangs_after(period), 2U);
  EXPECT_EQ(complaints, 2U);
  EXPECT_EQ(stack.tokens.size(), 1U) << "the last check found the completion without an interrupt";
  ASSERT_TRUE(HostMachine::wait_until([] { return host::alarm_of(0) == machine::alarm_none; })) << "an idle core has no alarm";
  machine.on(0, [&] { pair.reset(); });
}

// If one core refuses a change, the rings of all cores stay as they were, so the log still states their sizes correctly.
TEST(QueuePairs, OptionsNotPreparedOnAllCoresAreUsedByNone) {
  constexpr unsigned sender = receive_queues_max;  // has only a transmit queue, so a wrong receive ring does not affect it
  const QueueOptions old{.receive_descriptors = 64, .transmit_descriptors = 64};
  test::TestCard card;
  const auto rings = [&card](unsigned queue) {
    return std::pair{card.registers().read(reg::RDLEN(queue)).raw() / 16, card.registers().read(reg::TDLEN(queue)).raw() / 16};
  };
  HostMachine cores{sender + 1};
  std::array pairs{std::make_unique<QueuePair>(card.registers(), sender), std::make_unique<QueuePair>(card.registers(), 0)};
  cores.run(0, [&]() -> task<void> {
    EXPECT_TRUE((co_await prepare_all(pairs, old)).has_value());
    for (auto& one : pairs) one->program(old);
    for (const QueueOptions& wrong : {QueueOptions{.receive_descriptors = 100, .transmit_descriptors = 128},
                                      QueueOptions{.receive_descriptors = 128, .transmit_descriptors = 100}}) {
      const auto refused = co_await prepare_all(pairs, wrong);
      EXPECT_EQ(refused ? ErrorCode::closed : refused.error().code, ErrorCode::invalid);
      // A hung queue is restarted with the current options, which are the old ones.
      for (auto& one : pairs) one->program(old);
      EXPECT_EQ(rings(0), (std::pair{64U, 64U}));
      EXPECT_EQ(rings(sender).second, 64U);
    }
    // The pair does not keep the receive ring that was allocated before the transmit ring failed.
    EXPECT_FALSE(pairs[1]->prepare({.receive_descriptors = 128, .transmit_descriptors = 100}).has_value());
    pairs[1]->program(old);
    EXPECT_EQ(rings(0), (std::pair{64U, 64U}));
    for (auto& one : pairs) one.reset();  // a core frees the pairs, because a core allocated their memory
  });
}

}  // namespace
}  // namespace neap::ixgbe
