// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/package.hpp"

#include <gtest/gtest.h>

#include "sim/machine/registers.hpp"
#include "sim/machine/test_model.hpp"

namespace neap::model {
namespace {

constexpr std::int64_t a_millisecond = 2'000'000;  // instructions at ratio 20, one a cycle

std::uint64_t read(Package& package, unsigned core, std::uint32_t number) {
  std::uint64_t value = 0;
  EXPECT_TRUE(read_msr(package, core, number, value)) << std::hex << number;
  return value;
}

TEST(Package, EnergyIsPowerTimesTime) {
  Package package(test_model(), 1);
  package.run(0, a_millisecond);
  // Uncore 10 W, the core 2 W/GHz * 2 GHz + 1 W; three unused cores sleep in C6 without power.
  EXPECT_NEAR(package.package_joules(package.now(0)), 15e-3, 2e-6);
  EXPECT_NEAR(package.cores_joules(package.now(0)), 5e-3, 2e-6);
  EXPECT_NEAR(package.dram_joules(package.now(0)), 5e-3, 2e-6);
  EXPECT_EQ(read(package, 0, 0x611), 983U);
}

TEST(Package, TheUncoreFollowsTheCoresClock) {
  Package package(test_model("uncore_dynamic_w_per_v2_ghz = 0", "uncore_dynamic_w_per_v2_ghz = 3"), 2);
  const auto uncore_watts = [&] {
    const Ticks from = package.now(0);
    const double before = package.package_joules(from) - package.cores_joules(from);
    package.set_skipped(package.skipped() + from_ns(1'000'000));
    const Ticks to = package.now(0);
    return (package.package_joules(to) - package.cores_joules(to) - before) / to_seconds(to - from);
  };
  for (unsigned core : {0U, 1U}) EXPECT_TRUE(write_msr(package, core, 0x199, 15 << 8));
  EXPECT_NEAR(uncore_watts(), 10 + 3 * 1.5, 1e-6);
  EXPECT_TRUE(write_msr(package, 1, 0x199, 20 << 8));
  EXPECT_NEAR(uncore_watts(), 10 + 3 * 2.0, 1e-6);
  package.fall_asleep(1, State::c6);  // its request does not count any more
  EXPECT_NEAR(uncore_watts(), 10 + 3 * 1.5, 1e-6);
  package.fall_asleep(0, State::c1);  // keeps its clock
  EXPECT_NEAR(uncore_watts(), 10 + 3 * 1.5, 1e-6);
  package.wake(0);
  package.fall_asleep(0, State::c6);
  EXPECT_NEAR(uncore_watts(), 5, 1e-6);
}

TEST(Package, ASleepOfTheTargetResidencyCostsWhatC1Would) {
  for (const State state : {State::c1, State::c6}) {
    Package package(test_model(), 1);
    package.fall_asleep(0, state);
    package.set_skipped(from_ns(300'000));
    package.wake(0);
    const double at_wake = package.cores_joules(from_ns(300'000));
    const double exit_j = 5.0 * to_seconds(package.cpu().sleep[index_of(state)].exit_latency);
    // The wake-up itself runs at the core's power and is part of the sleep's price.
    EXPECT_NEAR(at_wake + (state == State::c6 ? exit_j : 0), 2e-3 * 0.3, 2e-8);
  }
}

TEST(Package, ResidenciesAndBusyTimeFillTheTime) {
  Package package(test_model(), 2);
  package.run(0, a_millisecond);
  package.fall_asleep(0, State::c6);
  package.fall_asleep(1, State::c6);
  package.catch_up(1, package.clock(0).local());
  package.set_skipped(from_ns(5'000'000));
  EXPECT_EQ(to_ns(package.residency(0, State::c6, package.now(0))), 5'000'000U);
  EXPECT_EQ(package.package_state(), PackageState::pc6);
  package.wake(0);
  EXPECT_NEAR(static_cast<double>(to_ns(package.now(0))), 6.1e6, 100);  // with the exit latency
  EXPECT_EQ(package.wakeups(0), 1U);
  EXPECT_EQ(read(package, 0, 0x3fd), package.tsc(from_ns(5'000'000)));
}

TEST(Package, ACoreThatNeverWakesIsResidentUpToNow) {
  Package package(test_model(), 2);
  package.fall_asleep(1, State::c6);
  package.run(0, a_millisecond);  // core 1's own clock stands still
  EXPECT_EQ(package.residency(1, State::c6, package.now(0)), package.now(0));
  EXPECT_EQ(package.residency(1, State::c1, package.now(0)), 0U);
}

TEST(Package, ItsSumsGoOnWhereEnergyCountersWrap) {
  Package package(test_model(), 1);
  package.fall_asleep(0, State::c6);
  constexpr std::uint64_t seconds = 100'000;
  package.set_skipped(seconds * ticks_per_second);
  // 5 W of the uncore, and 4 W of memory. A counter of 32 bits has 65,536 J at this model's unit of 2^-16 J.
  EXPECT_NEAR(package.package_joules(package.now(0)), 500'000, 1);
  EXPECT_NEAR(package.dram_joules(package.now(0)), 400'000, 1);
  package.wake(0);
  const double joules = package.package_joules(package.now(0));
  EXPECT_GT(joules, 7 * 65'536);
  EXPECT_EQ(read(package, 0, 0x611), static_cast<std::uint32_t>(static_cast<std::uint64_t>(joules * 65'536)));
  EXPECT_EQ(to_ns(package.residency(0, State::c6, package.now(0))), seconds * 1'000'000'000);
}

TEST(Package, OnOneClockTheHighestRequestOfThoseAwakeCounts) {
  Package package(test_model(), 2);
  EXPECT_TRUE(write_msr(package, 0, 0x199, 10 << 8));
  EXPECT_TRUE(write_msr(package, 1, 0x199, 15 << 8));
  EXPECT_EQ(package.clock(0).ratio(), 15U);
  package.fall_asleep(1, State::c6);
  EXPECT_EQ(package.clock(0).ratio(), 10U);
  package.wake(1);
  EXPECT_EQ(package.clock(0).ratio(), 15U);
}

TEST(Package, TurboDependsOnTheActiveCores) {
  Package package(test_model(), 2);
  for (unsigned core : {0U, 1U}) EXPECT_TRUE(write_msr(package, core, 0x199, 40 << 8));
  EXPECT_EQ(package.clock(0).ratio(), 30U);
  package.fall_asleep(1, State::c6);
  EXPECT_EQ(package.clock(0).ratio(), 40U);
  EXPECT_TRUE(write_msr(package, 0, 0x1a0, std::uint64_t{1} << 38));
  EXPECT_EQ(package.clock(0).ratio(), 20U);
}

TEST(Package, ThePowerLimitHoldsOverItsWindow) {
  Package package(test_model(), 1);
  EXPECT_TRUE(write_msr(package, 0, 0x199, 40 << 8));                                // 10 + 2 * 4 + 1 = 19 W
  constexpr std::uint64_t limit_w = 15, enabled = 1 << 15, sixteen_units = 4 << 17;  // 2^4 / 1024 s = 15.6 ms
  EXPECT_TRUE(write_msr(package, 0, 0x610, limit_w * 8 | enabled | sixteen_units));
  const auto run_until = [&](Ticks end) {
    while (package.now(0) < end) {
      package.run(0, 1000);
      if (package.now(0) >= package.next_control()) package.control(package.now(0));
    }
  };
  run_until(from_ns(200'000'000));
  const double before = package.package_joules(package.now(0));
  const Ticks from = package.now(0);
  run_until(from + from_ns(200'000'000));
  const double watts = (package.package_joules(package.now(0)) - before) / to_seconds(package.now(0) - from);
  EXPECT_LE(watts, 15.1);
  EXPECT_GE(watts, 14.0);
  EXPECT_TRUE(write_msr(package, 0, 0x610, limit_w * 8));  // off
  EXPECT_EQ(package.clock(0).ratio(), 40U);
}

// A limit that software sets keeps firmware's window. Over a longer one no limit takes effect within a short run.
TEST(Package, FirmwaresPowerLimitsHaveTheWindowsOfTheAncestorsMachine) {
  Package package(test_model(), 1);
  const std::uint64_t limits = read(package, 0, 0x610);
  const auto window_units = [](std::uint64_t limit) { return (1 << (limit >> 17 & 0x1f)) * (4 + (limit >> 22 & 3)) / 4.0; };
  EXPECT_EQ(window_units(limits), 10.0);
  EXPECT_EQ(window_units(limits >> 32), 3.0);
}

TEST(Package, ThePowerLimitCountsTheUncoresClock) {
  Package package(test_model("uncore_dynamic_w_per_v2_ghz = 0", "uncore_dynamic_w_per_v2_ghz = 3"), 1);
  EXPECT_TRUE(write_msr(package, 0, 0x199, 40 << 8));       // 10 + (2 + 3) * 4 + 1 = 31 W
  constexpr std::uint64_t limit_w = 24, enabled = 1 << 15;  // a window of one period
  EXPECT_TRUE(write_msr(package, 0, 0x610, limit_w * 8 | enabled));
  for (unsigned period = 0; period < 10; ++period) {
    while (package.now(0) < package.next_control()) package.run(0, 1000);
    package.control(package.now(0));
  }
  // 10 + (2 + 3) * 2.6 + 1 = 24 W; without the uncore's share the estimate would allow too high a ratio.
  EXPECT_NEAR(package.clock(0).ratio(), 26, 2);
}

TEST(Package, HwpKeepsWithinTheRequestedRange) {
  Package package(test_model("frequency.hwp = false", "frequency.hwp = true"), 1);
  constexpr std::uint64_t any_preference = 128 << 24, fastest = 0;
  EXPECT_TRUE(write_msr(package, 0, 0x774, fastest | 25 << 8 | 12));
  EXPECT_EQ(package.clock(0).ratio(), 25U);
  EXPECT_TRUE(write_msr(package, 0, 0x774, any_preference | 18 << 16 | 25 << 8 | 12));
  EXPECT_EQ(package.clock(0).ratio(), 18U);
  EXPECT_TRUE(write_msr(package, 0, 0x774, any_preference | 25 << 8 | 12));
  package.fall_asleep(0, State::c1);
  package.set_skipped(from_ns(10'000'000));
  package.wake(0);
  package.control(package.now(0));
  EXPECT_EQ(package.clock(0).ratio(), 12U);  // it slept through the period
}

TEST(Package, CountersCountAtTheLevelsThatTheyAreSetTo) {
  Package package(test_model(), 1);
  constexpr std::uint64_t instructions = 0xc0, user = 1 << 16, system = 1 << 17, enabled = 1 << 22;
  EXPECT_TRUE(write_msr(package, 0, 0x186, instructions | user | enabled));
  EXPECT_TRUE(write_msr(package, 0, 0x187, instructions | system | enabled));
  EXPECT_TRUE(write_msr(package, 0, 0x188, instructions | user | system | enabled));
  EXPECT_TRUE(write_msr(package, 0, 0x38d, 0x321));  // instructions of the system, cycles of the user, all reference cycles
  EXPECT_TRUE(write_msr(package, 0, 0x38f, 0x7'0000'0007));
  package.run(0, 1000);
  package.set_user_level(0, true);
  package.run(0, 300);
  package.run(0, -100);
  package.set_user_level(0, false);
  package.run(0, 10);
  EXPECT_EQ(read(package, 0, 0xc1), 200U);
  EXPECT_EQ(read(package, 0, 0xc2), 1010U);
  EXPECT_EQ(read(package, 0, 0xc3), 1210U);
  EXPECT_EQ(read(package, 0, 0x309), 1010U);
  EXPECT_EQ(read(package, 0, 0x30a), 200U);
  EXPECT_EQ(read(package, 0, 0x30b), 1210U);
  EXPECT_TRUE(write_msr(package, 0, 0x186, instructions | system | enabled));  // keeps its value, counts on at the other level
  package.run(0, 5);
  EXPECT_EQ(read(package, 0, 0xc1), 205U);
}

CpuModel model_with_threads() { return test_model("smt.threads = 1", "smt.threads = 2"); }

TEST(Threads, ShareTheSpeedOfTheirCoreWhileBothRun) {
  Package package(model_with_threads(), 3);  // the third CPU is alone on its core
  const Ticks shared = package.clock(0).per_instruction(), alone = package.clock(2).per_instruction();
  EXPECT_NEAR(static_cast<double>(shared) / static_cast<double>(alone), 2, 1e-3);  // the model's thread_speed is 0.5
  package.fall_asleep(1, State::c1);
  EXPECT_EQ(package.clock(0).per_instruction(), alone);
  package.fall_asleep(2, State::c6);
  EXPECT_EQ(package.clock(0).per_instruction(), alone) << "it has another core";
  package.wake(1);
  EXPECT_EQ(package.clock(0).per_instruction(), shared);
  EXPECT_EQ(package.clock(1).per_instruction(), shared);
}

TEST(Threads, ShareTheEnergyOfOneCore) {
  const auto cores_watts = [](const CpuModel& cpu, bool second_runs) {
    Package package(cpu, 2);
    if (!second_runs) package.fall_asleep(1, State::c1);
    package.set_skipped(from_ns(1'000'000));
    return package.cores_joules(package.now(0)) * 1000;
  };
  EXPECT_NEAR(cores_watts(model_with_threads(), true), 5, 1e-3);   // 2 W/GHz * 2 GHz + 1 W
  EXPECT_NEAR(cores_watts(model_with_threads(), false), 5, 1e-3);  // one thread keeps the core in C0
  EXPECT_NEAR(cores_watts(test_model(), true), 10, 1e-3);
}

TEST(Threads, TheLessDeepStateIsTheCores) {
  Package package(model_with_threads(), 2);
  package.run(0, a_millisecond / 2);  // 1 ms, because both run
  package.fall_asleep(0, State::c6);
  package.catch_up(1, package.clock(0).local());
  EXPECT_EQ(package.core_state(0), State::c0);
  EXPECT_EQ(package.package_state(), PackageState::pc0);
  package.fall_asleep(1, State::c1);
  EXPECT_EQ(package.core_state(0), State::c1);
  package.set_skipped(from_ns(1'000'000));
  package.wake(1);
  package.fall_asleep(1, State::c6);
  EXPECT_EQ(package.core_state(1), State::c6);
  EXPECT_EQ(package.package_state(), PackageState::pc6);
  package.set_skipped(from_ns(3'000'000));
  // The first thread asked for C6 all the time. The core was in C6 for 2 ms only, minus the time of the wake-up from C1.
  EXPECT_EQ(to_ns(package.residency(0, State::c6)), 3'000'000U);
  EXPECT_EQ(to_ns(package.core_residency(0, State::c6)), 1'999'000U);
  EXPECT_EQ(read(package, 0, 0x3fd), package.tsc(package.core_residency(0, State::c6)));
  EXPECT_EQ(to_ns(package.core_residency(0, State::c1)), 1'000'000U);
}

TEST(Threads, WakeFromTheStateThatTheirCoreIsIn) {
  const auto latency_ns = [](State other) {
    Package package(model_with_threads(), 2);
    package.fall_asleep(0, State::c6);
    if (other != State::c0) package.fall_asleep(1, other);
    const Ticks before = package.now(0);
    package.wake(0);
    return to_ns(package.now(0) - before);
  };
  EXPECT_EQ(latency_ns(State::c6), 100'000U);
  EXPECT_EQ(latency_ns(State::c1), 1'000U);
  EXPECT_EQ(latency_ns(State::c0), 1'000U);
}

TEST(Threads, TheHigherRequestIsTheCores) {
  std::string text = test_model_text;
  text.replace(text.find("smt.threads = 1"), 15, "smt.threads = 2");
  text.replace(text.find("per_core = false"), 16, "per_core = true");
  Package package(parse_cpu_model(text).value(), 4);
  EXPECT_TRUE(write_msr(package, 0, 0x199, 10 << 8));
  EXPECT_TRUE(write_msr(package, 1, 0x199, 15 << 8));
  for (unsigned core : {2U, 3U}) EXPECT_TRUE(write_msr(package, core, 0x199, 40 << 8));
  EXPECT_EQ(package.clock(0).ratio(), 15U);
  EXPECT_EQ(package.clock(1).ratio(), 15U);
  EXPECT_EQ(package.clock(2).ratio(), 30U) << "four threads are two active cores for turbo";
  package.fall_asleep(1, State::c6);
  EXPECT_EQ(package.clock(0).ratio(), 15U) << "a sleeping thread's request stays";
}

TEST(Threads, HaveTheirShareOfTheCounters) {
  Package package(model_with_threads(), 2);
  CpuidWords words;
  change_cpuid(package, 0x0a, words);
  EXPECT_EQ(words.eax & 0xffff, 0x0203U);
}

TEST(Registers, CpuidListsWhatTheModelHas) {
  Package package(test_model(), 1);
  CpuidWords words;
  change_cpuid(package, 5, words);
  EXPECT_EQ(words.edx, 0x1010U);  // one sub-state of C1, one of C6's hint 20h
  EXPECT_EQ(words.ecx, 3U);
  change_cpuid(package, 0x0a, words);
  EXPECT_EQ(words.eax & 0xffff, 0x0403U);
  std::uint64_t value = 0;
  EXPECT_FALSE(read_msr(package, 0, 0x774, value));  // no HWP
  EXPECT_TRUE(read_counter(package, 0, 1U << 30, value));
  EXPECT_FALSE(read_counter(package, 0, 4, value));
}

}  // namespace
}  // namespace neap::model
