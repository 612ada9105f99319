// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "sim/machine/counters.hpp"
#include "sim/machine/test_model.hpp"

namespace neap::model {
namespace {

TEST(CpuModel, EveryKeyIsNeededAndNoOtherIsAccepted) {
  ASSERT_TRUE(parse_cpu_model(test_model_text).has_value());
  EXPECT_EQ(parse_cpu_model(test_model_text + "more.watts = 1\n").error(), "unknown key more.watts");
  EXPECT_EQ(parse_cpu_model(test_model_text + "energy.tdp_w = 1\n").error(), "energy.tdp_w is there twice");
  for (std::size_t start = 1; start < test_model_text.size();) {
    const auto end = test_model_text.find('\n', start) + 1;
    const std::string without = test_model_text.substr(0, start) + test_model_text.substr(end);
    EXPECT_FALSE(parse_cpu_model(without).has_value()) << test_model_text.substr(start, end - start);
    start = end;
  }
}

TEST(CpuModel, AnUnknownHintIsTheNextLighterState) {
  const CpuModel cpu = test_model();
  EXPECT_EQ(cpu.state_of_hint(0x00), State::c1);
  EXPECT_EQ(cpu.state_of_hint(0x10), State::c1);
  EXPECT_EQ(cpu.state_of_hint(0x20), State::c6);
  EXPECT_EQ(cpu.state_of_hint(0x60), State::c6);
}

TEST(CoreClock, InstructionsTakenBackLeaveNoTrace) {
  CoreClock clock;
  clock.set_pace(test_model(), 20, false);
  clock.run(1000);
  const auto local = clock.local();
  const auto cycles = clock.work().core_cycles();
  clock.run(7);
  clock.run(-7);
  EXPECT_EQ(clock.local(), local);
  EXPECT_EQ(clock.work().core_cycles(), cycles);
  EXPECT_EQ(clock.work().instructions, 1000U);
  EXPECT_EQ(cycles, 1000U);
  EXPECT_EQ(to_ns(local), 500U);
}

// Runs cores of different speed to a common end, with runs that are cut short at random, and returns the order in which they ran.
std::vector<unsigned> order_of_turns(unsigned seed) {
  std::mt19937 chance(seed);
  Rounds rounds(from_ns(2000));
  std::array<Runner, 3> cores{Runner{0, true}, Runner{0, true}, Runner{0, true}};
  const std::array<Ticks, 3> step{from_ns(3), from_ns(5), from_ns(11)};
  std::vector<unsigned> order;
  const Ticks timer = from_ns(50'000);
  for (unsigned i = 0; std::ranges::any_of(cores, [&](const Runner& one) { return one.local < timer; }); ++i) {
    const unsigned self = i % 3;
    const Ticks end = rounds.end_of_run(self, cores, timer, false);
    while (cores[self].local < end) {
      cores[self].local += step[self];
      if (order.empty() || order.back() != self) order.push_back(self);
      if (chance() % 100 == 0) break;  // the host
    }
  }
  return order;
}

TEST(Rounds, TheOrderDoesNotDependOnWhereTheHostCutsRuns) {
  const auto expected = order_of_turns(1);
  EXPECT_EQ(expected.size(), 75U);  // 25 rounds of three cores
  for (unsigned seed = 2; seed < 50; ++seed) EXPECT_EQ(order_of_turns(seed), expected);
}

TEST(Rounds, ALoneCoreRunsToTheTimerUnlessMemoryIsWatched) {
  Rounds rounds(from_ns(2000));
  const std::array<Runner, 2> cores{Runner{0, true}, Runner{0, false}};
  EXPECT_EQ(rounds.end_of_run(0, cores, from_ns(9000), false), from_ns(9000));
  EXPECT_EQ(rounds.end_of_run(0, cores, from_ns(9000), true), from_ns(2000));
}

TEST(Rounds, ACoreThatWaitsForOthersRunsAfterThem) {
  Rounds rounds(from_ns(2000));
  std::array<Runner, 2> cores{Runner{from_ns(1500), true, true}, Runner{from_ns(100), true, false}};
  EXPECT_EQ(rounds.end_of_run(0, cores, from_ns(9000), false), cores[0].local);
  EXPECT_GT(rounds.end_of_run(1, cores, from_ns(9000), false), cores[1].local);
  EXPECT_EQ(rounds.turn(), 1);
}

TEST(Counters, CountOnlyWhatIsEnabledAndKnown) {
  constexpr std::uint64_t instructions_event = 0x4300c0, misses_event = 0x43412e;
  Counters counters(4);
  counters.set_event_select(0, instructions_event, {});
  counters.set_event_select(1, misses_event, {});
  counters.set_fixed_control(0x333, {});
  counters.set_global_control(std::uint64_t{0b11} << 32 | 0b11, {});
  const ExecutedByLevel later{.all = {.instructions = 100, .core_cycles = 200, .reference_cycles = 300, .bus_cycles = 10}, .user = {}};
  EXPECT_EQ(counters.general(0, later), 100U);
  EXPECT_EQ(counters.general(1, later), 0U);
  EXPECT_EQ(counters.fixed(0, later), 100U);
  EXPECT_EQ(counters.fixed(1, later), 200U);
  EXPECT_EQ(counters.fixed(2, later), 0U);  // not in the global control
  counters.set_global_control(0, later);
  EXPECT_EQ(counters.fixed(0, {.all = {.instructions = 500}, .user = {}}), 100U);
  counters.set_fixed(0, Counters::value_mask, later);
  counters.set_global_control(std::uint64_t{1} << 32, later);
  EXPECT_EQ(counters.fixed(0, {.all = {.instructions = 101, .core_cycles = 200}, .user = {}}), 0U);  // 48 bits
}

}  // namespace
}  // namespace neap::model
