// SPDX-License-Identifier: BSL-1.0
// Sleeps of simulated cores: the test decides when each sleep ends, and compares the governor's choices with what would have been best.
#include "kernel/idle_governor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernel/machine.hpp"

namespace neap {
namespace {

using enum IdleState;

constexpr std::uint64_t us = 1000, ms = 1'000'000;
constexpr std::uint64_t no_timer = machine::alarm_none;

/// A CPU with the wake-up times of Sandy Bridge-EP (kernel/x86/power/models.cpp).
PowerAbilities sandy_bridge() {
  PowerAbilities has;
  has.wake_us = {0, 2, 10, 80, 104, 109};
  return has;
}

struct Core {
  PowerAbilities abilities = sandy_bridge();
  IdleGovernor governor;

  struct Part {
    IdleState state;
    std::uint64_t length_ns;
  };
  /// One sleep that other work ends after `length_ns`, or a timer if that is earlier. Returns its parts: the core wakes between them only
  /// to choose again.
  std::vector<Part> parts_of_sleep(std::uint64_t length_ns, std::uint64_t until_timer_ns = no_timer) {
    std::vector<Part> parts;
    std::uint64_t slept_ns = 0;
    for (;;) {
      const auto [state, look_again_ns] = governor.choose(abilities, until_timer_ns - slept_ns);
      const std::uint64_t left_ns = std::min(length_ns, until_timer_ns) - slept_ns;
      const bool to_look_again = look_again_ns < left_ns;
      parts.push_back({state, to_look_again ? look_again_ns : left_ns});
      slept_ns += parts.back().length_ns;
      governor.woke(abilities, state, parts.back().length_ns + abilities.wake_us[static_cast<unsigned>(state)] * us, to_look_again);
      if (!to_look_again) return parts;
    }
  }
  /// The same. Returns the state that was chosen first.
  IdleState sleep(std::uint64_t length_ns, std::uint64_t until_timer_ns = no_timer) {
    return parts_of_sleep(length_ns, until_timer_ns).front().state;
  }
  IdleState after(unsigned count, std::uint64_t length_ns, std::uint64_t until_timer_ns = no_timer) {
    for (unsigned i = 0; i < count; ++i) sleep(length_ns, until_timer_ns);
    return sleep(length_ns, until_timer_ns);
  }
};

TEST(IdleGovernor, EqualSleepsGetTheDeepestStateThatFits) {
  EXPECT_EQ(Core().after(8, 3 * us), c1);
  EXPECT_EQ(Core().after(8, 50 * us), c1e);
  EXPECT_EQ(Core().after(8, 260 * us), c3);
  EXPECT_EQ(Core().after(8, 320 * us), c6);
  EXPECT_EQ(Core().after(8, 5 * ms), c7);
}

TEST(IdleGovernor, AStateThatTheCpuLacksIsNotChosen) {
  Core core;
  core.abilities.wake_us = {0, 2, 10, 0, 133, 0};
  EXPECT_EQ(core.after(8, 260 * us), c1e);
  EXPECT_EQ(core.after(20, 5 * ms), c6);
}

TEST(IdleGovernor, TheNextTimerBoundsTheSleep) {
  Core core;
  EXPECT_EQ(core.after(20, 5 * ms), c7);
  EXPECT_EQ(core.sleep(5 * ms, 40 * us), c1e);
  EXPECT_EQ(core.sleep(5 * ms, 1 * us), c1);
  EXPECT_EQ(core.sleep(5 * ms, 0), c1);
}

TEST(IdleGovernor, WithoutHistoryOnlyTheTimerCounts) {
  EXPECT_EQ(Core().sleep(1 * us, no_timer), c7);
  EXPECT_EQ(Core().sleep(1 * us, 50 * us), c1e);
}

TEST(IdleGovernor, OneLongPauseBetweenShortSleepsChangesNothing) {
  Core core;
  for (unsigned round = 0; round < 20; ++round) {
    const IdleState state = core.after(6, 50 * us);
    if (round > 0) EXPECT_EQ(state, c1e) << "round " << round;
    core.sleep(20 * ms);
  }
}

TEST(IdleGovernor, AChangeOfTheLoadIsFollowedWithinTheHistory) {
  Core core;
  EXPECT_EQ(core.after(50, 20 * us), c1);
  EXPECT_EQ(core.after(SleepPredictor::history, 2 * ms), c7);
  EXPECT_EQ(core.after(SleepPredictor::history, 20 * us), c1);
}

TEST(IdleGovernor, TheShareOfTheTimeUntilTheTimerIsLearned) {
  // Sleeps of irregular length, most of which end long before the timer, which is always 100 ms away.
  Core core;
  std::mt19937_64 random(7);
  std::exponential_distribution<double> length(1.0 / (30 * us));
  unsigned deep = 0;
  for (unsigned i = 0; i < 300; ++i) {
    const bool is_deep = core.sleep(static_cast<std::uint64_t>(length(random)) + 1, 100 * ms) >= c3;
    if (i >= 100) deep += is_deep ? 1 : 0;
  }
  EXPECT_LT(deep, 4u) << "a sleep of 30 us on average was taken for one of 100 ms";
}

TEST(IdleGovernor, ASleepThatLastsLongerThanPredictedGetsTheDeepestState) {
  Core core;
  core.after(20, 5 * us);
  const auto parts = core.parts_of_sleep(1 * ms);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].state, c1);
  EXPECT_EQ(parts[0].length_ns, 3 * 109 * us) << "the target residency of C7";
  EXPECT_EQ(parts[1].state, c7);
  EXPECT_EQ(core.sleep(5 * us), c1) << "one long sleep is no history";
}

TEST(IdleGovernor, TheSecondChoiceIsTheDeepestThatTheTimerAllows) {
  Core core;
  core.after(20, 5 * us, 1 * ms);
  auto parts = core.parts_of_sleep(600 * us, 600 * us);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].state, c3) << "273 us are left";
  EXPECT_EQ(parts[1].length_ns, (600 - 327) * us);
  parts = core.parts_of_sleep(50 * us, 50 * us);
  ASSERT_EQ(parts.size(), 2u) << "the timer allows C1E";
  EXPECT_EQ(parts[0].length_ns, 30 * us);
  EXPECT_EQ(parts[1].state, c1);
  parts = core.parts_of_sleep(20 * us, 20 * us);
  EXPECT_EQ(parts.size(), 1u) << "C1 is all that the timer allows";
}

TEST(IdleGovernor, BothPartsAreOneSleepOfTheHistory) {
  Core core;
  core.after(20, 5 * us);
  for (unsigned i = 0; i < SleepPredictor::history; ++i) core.parts_of_sleep(2 * ms);
  EXPECT_EQ(core.parts_of_sleep(2 * ms).size(), 1u) << "eight sleeps of 2 ms, not sixteen shorter ones";
}

TEST(SleepPredictor, ItsBoundsHoldForEveryInput) {
  std::mt19937_64 random(11);
  SleepPredictor predictor;
  for (unsigned i = 0; i < 100'000; ++i) {
    const std::uint64_t until = random() >> (random() % 64);
    EXPECT_LE(predictor.predict(until), std::min(until, SleepPredictor::longest_ns));
    predictor.observe(random() >> (random() % 64));
    EXPECT_LE(predictor.typical_ns(), SleepPredictor::longest_ns);
  }
  for (unsigned i = 0; i < SleepPredictor::history; ++i) {
    (void)predictor.predict(std::numeric_limits<std::uint64_t>::max());
    predictor.observe(std::numeric_limits<std::uint64_t>::max());
  }
  EXPECT_EQ(predictor.typical_ns(), SleepPredictor::longest_ns);
}

// --- The cost of the choices -------------------------------------------------------------------------------------------------------------
//
// A cost of each sleep in which a state is worth its residency exactly: a fixed cost for the way in and out, and a power while it sleeps.
// States cost the same at the deeper one's residency.

struct Costs {
  std::array<double, idle_states> power{}, fixed{};

  explicit Costs(const PowerAbilities& abilities) {
    double watts = 1.0;
    unsigned previous = 0;
    for (unsigned state = 1; state <= 5; ++state) {
      power[state] = watts;
      if (previous != 0) {
        const double residency = IdleGovernor::residency_per_wake_up * abilities.wake_us[state] * 1e3;
        fixed[state] = fixed[previous] + (power[previous] - power[state]) * residency;
      }
      previous = state;
      watts *= 0.6;
    }
  }
  [[nodiscard]] double of(unsigned state, std::uint64_t length_ns) const {
    return fixed[state] + power[state] * static_cast<double>(length_ns);
  }
};

struct Load {
  std::string name;
  std::function<double(std::mt19937_64&, unsigned)> length_ns;
};

// Each load is one for which some fixed state is nearly best. The governor does not know which.
TEST(IdleGovernor, CostsLittleMoreThanTheBestFixedStateOnEachLoad) {
  const auto exponential = [](double mean) {
    return [mean](std::mt19937_64& random, unsigned) { return std::exponential_distribution<double>(1 / mean)(random); };
  };
  const std::vector<Load> loads{
      {"every 4 us", [](auto&, unsigned) { return 4e3; }},
      {"every 60 us", [](auto&, unsigned) { return 60e3; }},
      {"every 3 ms", [](auto&, unsigned) { return 3e6; }},
      {"Poisson, 8 us", exponential(8e3)},
      {"Poisson, 100 us", exponential(100e3)},
      {"Poisson, 5 ms", exponential(5e6)},
      {"bursts of 30 us, then 5 ms", [](auto&, unsigned i) { return i % 16 == 0 ? 5e6 : 30e3; }},
      {"jitter about 200 us", [](auto& random, unsigned) { return std::uniform_real_distribution<double>(150e3, 250e3)(random); }},
  };
  for (const Load& load : loads) {
    Core core;
    const Costs costs(core.abilities);
    std::mt19937_64 random(3);
    double governed = 0;
    std::array<double, 6> fixed{};
    for (unsigned i = 0; i < 4000; ++i) {
      const auto length = static_cast<std::uint64_t>(load.length_ns(random, i)) + 1;
      for (const Core::Part& part : core.parts_of_sleep(length)) governed += costs.of(static_cast<unsigned>(part.state), part.length_ns);
      for (unsigned state = 1; state <= 5; ++state) fixed[state] += costs.of(state, length);
    }
    const double best = *std::min_element(fixed.begin() + 1, fixed.end());
    const double worst = *std::max_element(fixed.begin() + 1, fixed.end());
    EXPECT_LT(governed, 1.25 * best) << load.name;
    EXPECT_LT(governed, worst) << load.name;
  }
}

}  // namespace
}  // namespace neap
