// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/stalls.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sim/machine/units.hpp"

namespace neap::model {
namespace {

TEST(Stalls, TheOptionIsTwoTimes) {
  StallOptions options;
  ASSERT_TRUE(options.parse("500:1000000"));
  EXPECT_EQ(options.mean_us, 500U);
  EXPECT_EQ(options.max_us, 1'000'000U);
  for (const char* wrong : {"", "500", "500:", ":5", "0:5", "5:0", "5:6us", "x:5", "-1:5", "5:1000001", "1000001:5"}) {
    EXPECT_FALSE(StallOptions().parse(wrong)) << wrong;
  }
}

TEST(Stalls, WithoutTheOptionNoCoreIsHeld) { EXPECT_EQ(Stalls().next(0), ~Ticks{0}); }

std::vector<std::pair<Ticks, Ticks>> plays(std::uint64_t seed, unsigned core) {
  Stalls stalls({.mean_us = 500, .max_us = 100}, seed);
  std::vector<std::pair<Ticks, Ticks>> all;
  for (int i = 0; i < 1000; ++i) {
    const Ticks at = stalls.next(core);
    all.emplace_back(at, stalls.take(core, at));
  }
  return all;
}

TEST(Stalls, FollowFromTheSeedAndTheCore) {
  const auto first = plays(1, 0);
  EXPECT_EQ(plays(1, 0), first);
  EXPECT_NE(plays(1, 1), first);
  EXPECT_NE(plays(2, 0), first);
}

TEST(Stalls, HaveTheirLengthAndDistance) {
  Ticks end = 0, distances = 0;
  for (const auto& [at, length] : plays(3, 2)) {
    EXPECT_GT(at, end);
    EXPECT_GE(length, from_ns(1000));
    EXPECT_LE(length, from_ns(100'000));
    distances += at - end;
    end = at + length;
  }
  EXPECT_NEAR(static_cast<double>(distances) / 1000, static_cast<double>(from_ns(500'000)), static_cast<double>(from_ns(50'000)));
}

}  // namespace
}  // namespace neap::model
