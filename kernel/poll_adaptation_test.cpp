// SPDX-License-Identifier: BSL-1.0
// Polling by demand: the rule by itself, with simulated gaps, and a core that follows it on a clock that the test moves.
#include "kernel/poll_adaptation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include "kernel/events.hpp"
#include "kernel/policy.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;
constexpr std::uint64_t us = 1000, ms = 1'000'000;
constexpr unsigned history = PollAdaptation::history;

PollAdaptation adaptation(std::uint64_t longest_ns) {
  PollAdaptation result;
  result.limit(longest_ns);
  return result;
}
void note(PollAdaptation& adapted, unsigned count, std::uint64_t gap_ns) {
  for (unsigned i = 0; i < count; ++i) adapted.note_gap(gap_ns);
}

TEST(PollAdaptation, TheBudgetFollowsTheGaps) {
  auto adapted = adaptation(100 * us);
  EXPECT_EQ(adapted.budget_ns(), 0u) << "nothing is known yet";
  note(adapted, history, 20 * us);
  EXPECT_EQ(adapted.budget_ns(), 30 * us);
  note(adapted, history, 40 * us);
  EXPECT_EQ(adapted.budget_ns(), 60 * us);
  note(adapted, history, 90 * us);
  EXPECT_EQ(adapted.budget_ns(), 100 * us) << "the setting bounds it";
  note(adapted, history, 0);
  EXPECT_EQ(adapted.budget_ns(), PollAdaptation::shortest_ns);
}

TEST(PollAdaptation, LongGapsEndPollingAndShortOnesBringItBack) {
  auto adapted = adaptation(100 * us);
  note(adapted, history, 20 * us);
  note(adapted, history - PollAdaptation::short_gaps_min, 5 * ms);
  EXPECT_EQ(adapted.budget_ns(), 30 * us) << "two long gaps of eight are a pause, not another load";
  note(adapted, 1, 5 * ms);
  EXPECT_EQ(adapted.budget_ns(), 0u);
  note(adapted, PollAdaptation::short_gaps_min, 20 * us);
  EXPECT_EQ(adapted.budget_ns(), 30 * us);
}

TEST(PollAdaptation, OffAndAnyInputKeepTheBounds) {
  auto off = adaptation(0);
  note(off, history, 0);
  EXPECT_FALSE(off.on());
  EXPECT_EQ(off.budget_ns(), 0u) << "without the setting a core does not poll";
  std::mt19937_64 random(5);
  auto adapted = adaptation(50 * us);
  for (unsigned i = 0; i < 100'000; ++i) {
    adapted.note_gap(random() >> (random() % 64));
    EXPECT_LE(adapted.budget_ns(), 50 * us);
  }
  note(adapted, history, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(adapted.budget_ns(), 0u);
}

// The time that is polled in vain, on a load that changes between gaps that polling covers and gaps that it does not.
TEST(PollAdaptation, PollingInVainIsBounded) {
  auto adapted = adaptation(100 * us);
  std::uint64_t in_vain = 0, changes = 0;
  for (unsigned phase = 0; phase < 100; ++phase) {
    ++changes;
    for (unsigned i = 0; i < 50; ++i) {
      const std::uint64_t gap = phase % 2 == 0 ? 20 * us : 3 * ms;
      if (gap > adapted.budget_ns()) in_vain += adapted.budget_ns();
      adapted.note_gap(gap);
    }
  }
  const std::uint64_t wrong_gaps_max = history - PollAdaptation::short_gaps_min + 1;
  EXPECT_LE(in_vain, changes * wrong_gaps_max * 100 * us);
  EXPECT_GT(in_vain, 0u) << "the load never changed while the core polled";
}

/// A card that has no settings, and records whether the interrupt of each core's queue is on.
class InterruptCard final : public policy::Device {
 public:
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned, std::uint32_t itr_us) const noexcept override { return itr_us; }
  [[nodiscard]] std::uint32_t itr_us(unsigned) const noexcept override { return 0; }
  void set_itr(unsigned, std::uint32_t) noexcept override {}
  void set_interrupt(unsigned core, bool on) noexcept override {
    EXPECT_EQ(core, this_core());
    EXPECT_NE(interrupts[core].exchange(on), on) << "core " << core << " turned its interrupt " << (on ? "on" : "off") << " twice";
  }
  [[nodiscard]] const volatile void* next_receive_line(unsigned) const noexcept override { return nullptr; }

  std::array<std::atomic<bool>, 2> interrupts{true, true};
};

struct AdaptivePoll : testing::Test {
  AdaptivePoll() {
    machine.emplace(2);
    machine->on(0, [this] { policy::use(&card); });
  }
  ~AdaptivePoll() override {
    set(policy::Setting::adaptive_poll, "0us");
    machine->on(0, [] { policy::use(nullptr); });
  }
  void set(policy::Setting setting, const std::string& value) {
    machine->run(0, [&]() -> task<void> {
      const auto done = co_await policy::set(setting, value, 1);
      EXPECT_TRUE(done.has_value()) << value;
    });
  }
  /// Gives core 1 work, `gap` of the test's clock after it had none.
  void work_after(std::chrono::nanoseconds gap) {
    ASSERT_TRUE(HostMachine::wait_until([&] { return !card.interrupts[1] || host::asleep_in(1).has_value(); }));
    clock.advance(gap);
    machine->on(1, [] {});
  }
  [[nodiscard]] bool polls() {
    return HostMachine::wait_until([&] { return !card.interrupts[1] && !host::asleep_in(1); });
  }
  [[nodiscard]] bool sleeps() {
    return HostMachine::wait_until([&] { return card.interrupts[1] && host::asleep_in(1).has_value(); });
  }
  /// As `sleeps`, and the clock moves meanwhile, because the core may begin its gap after any single step of the clock.
  [[nodiscard]] bool sleeps_as_time_passes() {
    return HostMachine::wait_until([&] {
      if (card.interrupts[1] && host::asleep_in(1)) return true;
      clock.advance(std::chrono::milliseconds(1));
      return false;
    });
  }

  InterruptCard card;
  host::ManualClock clock{1'000'000'000};
  std::optional<HostMachine> machine;
};

TEST_F(AdaptivePoll, ACoreWithShortGapsPollsWithoutInterruptsAndSleepsWhenTheyEnd) {
  set(policy::Setting::adaptive_poll, "100us");
  for (unsigned i = 0; i < 2 * history; ++i) work_after(std::chrono::nanoseconds(0));
  ASSERT_TRUE(polls());
  const std::uint64_t sleeps_before = event_counters(1).sleeps;
  for (unsigned i = 0; i < 100; ++i) machine->on(1, [] {});
  EXPECT_EQ(event_counters(1).sleeps, sleeps_before) << "work of another core reaches a core that polls";
  ASSERT_TRUE(sleeps_as_time_passes()) << "it polled for longer than the setting's time";
  for (unsigned i = 0; i < history; ++i) {
    work_after(std::chrono::milliseconds(10));
    ASSERT_TRUE(sleeps_as_time_passes());
  }
  work_after(std::chrono::milliseconds(10));
  // The clock stands still, so a core that polls now would poll for ever.
  EXPECT_TRUE(sleeps()) << "gaps of 10 ms are not worth polling";
}

TEST_F(AdaptivePoll, ACoreThatPollsFindsFramesWhileItHasOtherWork) {
  set(policy::Setting::adaptive_poll, "100us");
  std::atomic<unsigned> looks{0};
  std::optional<IdleHook> hook;
  machine->on(1, [&] {
    hook.emplace([&] {
      ++looks;
      return false;
    });
  });
  for (unsigned i = 0; i < 2 * history; ++i) work_after(std::chrono::nanoseconds(0));
  ASSERT_TRUE(polls());
  // An event that queues itself again keeps the core busy. Without an interrupt, only the hook finds a frame.
  std::atomic<bool> busy{true};
  std::function<void()> again = [&] {
    if (busy) spawn([&] { again(); });
  };
  machine->on(1, [&] { again(); });
  const unsigned before = looks;
  EXPECT_TRUE(HostMachine::wait_until([&] { return looks > before + 100; })) << "the rings of a busy core were not checked";
  busy = false;
  machine->on(1, [&] { hook.reset(); });
  machine->on(1, [] {});  // the event that was queued last has run before this one
}

TEST_F(AdaptivePoll, EachChangeOfASettingTurnsTheInterruptOnOrOffAsTheNewStateNeedsIt) {
  set(policy::Setting::adaptive_poll, "100us");
  for (const char* state : {"poll", "halt"}) {
    for (unsigned i = 0; i < 2 * history; ++i) work_after(std::chrono::nanoseconds(0));
    ASSERT_TRUE(polls());
    set(policy::Setting::idle, state);
  }
  for (unsigned i = 0; i < 2 * history; ++i) work_after(std::chrono::nanoseconds(0));
  ASSERT_TRUE(polls());
  set(policy::Setting::adaptive_poll, "0us");
  EXPECT_TRUE(sleeps());
}

}  // namespace
}  // namespace neap
