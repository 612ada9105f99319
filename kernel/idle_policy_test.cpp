// SPDX-License-Identifier: BSL-1.0
// What a core does when it has nothing to do, for each setting of `idle`, `monitor_state` and `poll_budget`.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "kernel/events.hpp"
#include "kernel/policy_fixture.hpp"

namespace neap::policy {
namespace {

struct IdlePolicyTest : PolicyTest {};

TEST_F(IdlePolicyTest, ACoreSleepsInTheRequestedState) {
  for (const char* state : {"c1", "c6", "halt", "c3"}) {
    ASSERT_TRUE(set(Setting::idle, state).has_value());
    for (unsigned core = 0; core < cores; ++core) {
      EXPECT_TRUE(HostMachine::wait_until([&] {
        const auto asleep = host::asleep_in(core);
        return asleep && idle_state_names[static_cast<unsigned>(*asleep)] == std::string(state);
      })) << "core "
          << core << ", " << state;
    }
  }
}

TEST_F(IdlePolicyTest, PollNeverSleepsTakesNoInterruptAndFindsRemoteWork) {
  ASSERT_TRUE(set(Setting::idle, "poll", 1).has_value());
  EXPECT_FALSE(card.interrupts[1]);
  EXPECT_TRUE(card.interrupts[0]);
  std::uint64_t sleeps = 0;
  machine->on(1, [&] { sleeps = event_counters(1).sleeps; });
  std::atomic<unsigned> hops{0};
  std::function<void()> bounce = [&] {
    if (hops.fetch_add(1) < 1000) {
      EXPECT_TRUE(spawn_on(1 - this_core(), [&] { bounce(); }).has_value());
    }
  };
  machine->on(0, bounce);
  ASSERT_TRUE(HostMachine::wait_until([&] { return hops > 1000; }));
  std::atomic<bool> fired{false};
  Timer timer;
  machine->on(1, [&] { timer.arm(std::chrono::milliseconds(5), [&] { fired = true; }); });
  ASSERT_TRUE(HostMachine::wait_until([&] { return fired.load(); }));
  machine->on(1, [&] { EXPECT_EQ(event_counters(1).sleeps, sleeps); });
  EXPECT_EQ(host::asleep_in(1), std::nullopt);
  ASSERT_TRUE(set(Setting::idle, "halt", 1).has_value());
  EXPECT_TRUE(card.interrupts[1]);
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::halt; }));
}

TEST_F(IdlePolicyTest, MenuSleepsInAStateThatFitsAndKeepsTheInterrupt) {
  ASSERT_TRUE(set(Setting::idle, "menu", 1).has_value());
  EXPECT_TRUE(card.interrupts[1]);
  EXPECT_EQ(of(1).idle, IdleState::menu);
  // Nothing but the test wakes the core, and it has no timer. The first sleeps are predicted to last.
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::c7; }));
  const EventCounters before = event_counters(1);
  for (unsigned i = 0; i < 20; ++i) {
    machine->on(1, [] {});
    ASSERT_TRUE(HostMachine::wait_until([] { return host::asleep_in(1).has_value(); })) << "it may still be awake after an event";
  }
  const EventCounters after = event_counters(1);
  EXPECT_GT(after.sleeps, before.sleeps);
  EXPECT_EQ(after.halts, before.halts);
  ASSERT_TRUE(set(Setting::idle, "halt", 1).has_value());
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::halt; }));
}

struct ClockStands {
  host::ManualClock clock{1'000'000'000};
};
struct IdlePolicyOnManualClock : ClockStands, PolicyTest {};

// After a burst of short sleeps nothing wakes the core but its own second choice.
TEST_F(IdlePolicyOnManualClock, MenuChoosesAgainIfASleepLastsLongerThanPredicted) {
  constexpr std::chrono::nanoseconds residency{3 * 109'000};  // of C7
  ASSERT_TRUE(set(Setting::idle, "menu", 1).has_value());
  const auto sleeps_in = [](IdleState state) { return HostMachine::wait_until([&] { return host::asleep_in(1) == state; }); };
  ASSERT_TRUE(sleeps_in(IdleState::c7)) << "without a history the timer alone counts, and there is none";
  for (unsigned i = 0; i < 20; ++i) {
    machine->on(1, [] {});
    ASSERT_TRUE(HostMachine::wait_until([] { return host::asleep_in(1).has_value(); }));
  }
  ASSERT_TRUE(sleeps_in(IdleState::c1)) << "these sleeps lasted no time";
  const std::uint64_t alarms_set = host::alarms_set(1);
  machine->on(1, [] {});
  ASSERT_TRUE(sleeps_in(IdleState::c1));
  EXPECT_EQ(host::alarms_set(1), alarms_set) << "an alarm that is far enough away stays";
  const std::uint64_t alarms = event_counters(1).alarms;
  clock.advance(residency);
  EXPECT_TRUE(sleeps_in(IdleState::c7));
  EXPECT_EQ(event_counters(1).alarms, alarms + 1);
  EXPECT_EQ(host::alarm_of(1), machine::alarm_none) << "it does not choose a third time";
  machine->on(1, [] {});
  EXPECT_TRUE(sleeps_in(IdleState::c1)) << "one long sleep between short ones changes nothing";
}

// The card's write ends the sleep. The idle hook finds the frame, regardless of the moment of the write.
TEST_F(IdlePolicyTest, MonitorSleepsOnTheCardsLineAndMissesNoWrite) {
  constexpr std::uint64_t frames = 300;
  std::atomic<std::uint64_t> found{0};
  std::optional<IdleHook> hook;
  const auto line = [&] { return std::atomic_ref(card.lines[1].words[1]); };
  machine->on(1, [&] {
    hook.emplace([&] {
      if (line().load() == found.load()) return false;
      found.fetch_add(1);
      return true;
    });
  });
  ASSERT_TRUE(set(Setting::idle, "monitor", 1).has_value());
  EXPECT_FALSE(card.interrupts[1]);
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::c1; }));
  ASSERT_TRUE(set(Setting::monitor_state, "c6", 1).has_value());
  EXPECT_EQ(of(1).monitor_state, IdleState::c6);
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::c6; })) << "it sleeps in the chosen C-state";
  for (std::uint64_t frame = 1; frame <= frames; ++frame) {
    line().store(frame);
    ASSERT_TRUE(HostMachine::wait_until([&] { return found == frame; })) << frame;
  }
  card.busy = true;
  machine->on(1, [] {});
  EXPECT_EQ(host::asleep_in(1), std::nullopt) << "a card that must not be slept on is polled";
  card.busy = false;
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::c6; }));
  ASSERT_TRUE(set(Setting::monitor_state, "deepest", 1).has_value());
  EXPECT_EQ(of(1).monitor_state, machine::power_abilities().deepest);
  for (const char* state : {"halt", "poll", "monitor", "c9", ""}) EXPECT_FALSE(set(Setting::monitor_state, state, 1).has_value()) << state;
  ASSERT_TRUE(set(Setting::idle, "halt", 1).has_value());
  EXPECT_TRUE(card.interrupts[1]);
  machine->on(1, [&] { hook.reset(); });
}

// In these states no interrupt announces a frame, so a core that always has events of its own must check its rings beside them.
TEST_F(IdlePolicyTest, ABusyCoreWithoutInterruptsChecksItsRings) {
  for (const char* state : {"poll", "monitor"}) {
    std::atomic<unsigned> looks{0};
    std::optional<IdleHook> hook;
    machine->on(1, [&] {
      hook.emplace([&] {
        ++looks;
        return false;
      });
    });
    ASSERT_TRUE(set(Setting::idle, state, 1).has_value());
    std::atomic<bool> busy{true};
    std::atomic<std::uint64_t> events{0};
    std::function<void()> again = [&] {
      ++events;
      if (busy) spawn([&] { again(); });
    };
    machine->on(1, [&] { again(); });
    const unsigned before = looks;
    EXPECT_TRUE(HostMachine::wait_until([&] { return looks > before + 100; })) << state;
    // With interrupts the rings are checked only if the core has nothing else to do.
    ASSERT_TRUE(set(Setting::idle, "halt", 1).has_value());
    const unsigned then = looks;
    const std::uint64_t since = events;
    EXPECT_TRUE(HostMachine::wait_until([&] { return events > since + 1000; }));
    EXPECT_LE(looks, then + 1) << state;
    busy = false;
    machine->on(1, [&] { hook.reset(); });
    machine->on(1, [] {});  // the event that was queued last has run before this one
  }
}

TEST_F(IdlePolicyTest, APollBudgetIsSpentBeforeSleep) {
  std::atomic<unsigned> looks{0};
  std::optional<IdleHook> hook;
  machine->on(2, [&] {
    hook.emplace([&] {
      ++looks;
      return false;
    });
  });
  ASSERT_TRUE(set(Setting::poll_budget, "20ms", 2).has_value());
  ASSERT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(2).has_value(); }));
  machine->on(2, [&] { looks = 0; });
  ASSERT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(2).has_value(); })) << "it ends";
  EXPECT_GT(looks, 2U) << "without a budget the core looks once and sleeps";
  machine->on(2, [&] { hook.reset(); });
}

}  // namespace
}  // namespace neap::policy
