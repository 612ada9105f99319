// SPDX-License-Identifier: BSL-1.0
// Percentiles, the conversion of ticks, and which wake-ups exist.
#include "apps/wakeup/results.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace neap::wakeup {
namespace {

constexpr std::uint64_t one_ghz = 1'000'000'000;  // a tick is a nanosecond

// Values 1 to n in an order that is not sorted.
std::vector<std::uint64_t> shuffled(std::uint64_t n) {
  std::vector<std::uint64_t> values(n);
  std::iota(values.begin(), values.end(), 1U);
  std::ranges::rotate(values, values.begin() + static_cast<std::ptrdiff_t>(n / 3));
  return values;
}

TEST(Summary, PercentilesAreTheNearestRank) {
  auto values = shuffled(200);
  const Summary of_200 = summarise(values, one_ghz);
  EXPECT_EQ(of_200.rounds, 200U);
  EXPECT_EQ(of_200.min, 1U);
  EXPECT_EQ(of_200.median, 100U);
  EXPECT_EQ(of_200.p99, 198U);
  EXPECT_EQ(of_200.max, 200U);

  values = shuffled(7);
  const Summary of_7 = summarise(values, one_ghz);
  EXPECT_EQ(of_7.median, 4U);
  EXPECT_EQ(of_7.p99, 7U) << "of fewer than 100 values the highest is the 99th percentile";
}

TEST(Summary, OneValueAndNone) {
  std::vector<std::uint64_t> values{42};
  const Summary one = summarise(values, one_ghz);
  EXPECT_TRUE(one.min == 42 && one.median == 42 && one.p99 == 42 && one.max == 42);
  values.clear();
  const Summary none = summarise(values, one_ghz);
  EXPECT_TRUE(none.rounds == 0 && none.min == 0 && none.max == 0);
}

TEST(Ticks, AreRoundedToNanosecondsAndDoNotOverflow) {
  EXPECT_EQ(to_nanoseconds(29, 2'900'000'000), 10U);
  EXPECT_EQ(to_nanoseconds(1, 2'100'000'000), 0U);
  EXPECT_EQ(to_nanoseconds(2, 2'100'000'000), 1U);
  constexpr std::uint64_t fastest_hz = (std::uint64_t{1} << 34) - 1;
  EXPECT_EQ(to_nanoseconds(fastest_hz, fastest_hz), one_ghz);
}

TEST(Doorbells, AWriteCannotEndHaltAndAPollingCoreSharesNoState) {
  EXPECT_FALSE(exists(IdleState::halt, Doorbell::write));
  EXPECT_FALSE(exists(IdleState::poll, Doorbell::timer_all));
  for (const IdleState state : {IdleState::c1, IdleState::c1e, IdleState::c3, IdleState::c6, IdleState::c7, IdleState::monitor}) {
    for (const Doorbell doorbell : doorbells) EXPECT_TRUE(exists(state, doorbell)) << idle_state_names[static_cast<unsigned>(state)];
  }
}

// The kernel reports an interrupt of a polling core by its vector. In a sleep, the vector of wake-ups has a cause of its own.
TEST(Doorbells, HaveTheCauseThatTheKernelReports) {
  EXPECT_EQ(expected_cause(IdleState::c6, Doorbell::ipi), WakeCause::wake_up);
  EXPECT_EQ(expected_cause(IdleState::poll, Doorbell::ipi), WakeCause::interrupt);
  EXPECT_EQ(expected_cause(IdleState::monitor, Doorbell::write), WakeCause::memory);
  EXPECT_EQ(expected_cause(IdleState::c1, Doorbell::timer), WakeCause::timer);
  EXPECT_EQ(expected_cause(IdleState::c1, Doorbell::timer_all), WakeCause::timer);
}

TEST(Table, RowsHaveTheColumnsOfTheHead) {
  const Row row{.state = IdleState::c1e,
                .doorbell = Doorbell::timer_all,
                .latency = {.rounds = 200, .min = 10'123, .median = 10'200, .p99 = 10'300, .max = 123'456'789},
                .repeated = 3};
  EXPECT_EQ(table_head().size(), row.text().size());
  EXPECT_EQ(row.text(), "c1e       timer-all        200     10123     10200     10300 123456789         3");
}

Row row_of(IdleState state, Doorbell doorbell, std::uint64_t median_ns) {
  return {.state = state, .doorbell = doorbell, .latency = {.rounds = 10, .min = 1, .median = median_ns, .p99 = 999'999, .max = 999'999}};
}

TEST(BootOption, HasTheLargestMedianOfEachStatesInterrupts) {
  using enum IdleState;
  const std::vector rows{row_of(poll, Doorbell::ipi, 50),          row_of(monitor, Doorbell::ipi, 7'000),
                         row_of(halt, Doorbell::ipi, 9'000),       row_of(c1, Doorbell::ipi, 60),
                         row_of(c1, Doorbell::timer, 140),         row_of(c6, Doorbell::write, 900'000),
                         row_of(c6, Doorbell::timer_all, 290'500), row_of(c6, Doorbell::timer, 190'100),
                         row_of(c1e, Doorbell::ipi, 2'499)};
  EXPECT_EQ(boot_option(rows), "wake_up_times=c1:1us,c1e:2us,c6:291us");
}

TEST(BootOption, IsAbsentWhereNoCStateWasMeasured) {
  EXPECT_EQ(boot_option({}), "");
  EXPECT_EQ(boot_option(std::vector{row_of(IdleState::poll, Doorbell::ipi, 50), row_of(IdleState::halt, Doorbell::ipi, 2'000)}), "");
  EXPECT_EQ(boot_option(std::vector{row_of(IdleState::c6, Doorbell::write, 50)}), "");
}

}  // namespace
}  // namespace neap::wakeup
