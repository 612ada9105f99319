// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/path_mtu.hpp"

#include <gtest/gtest.h>

namespace neap::net::tcp {
namespace {

constexpr std::uint32_t una = 0xFFFF'FF00, nxt = 0x0000'1000;

PathMtu started(std::uint16_t mtu = 1500, std::uint16_t cached = 0) {
  PathMtu path;
  path.start(mtu, cached, mtu_min_4, 0);
  return path;
}

TEST(PathMtu, AReportAboutASegmentInFlightLowersIt) {
  PathMtu path = started();
  EXPECT_TRUE(path.reported_too_big(1400, 1500, una, una, nxt, 0));
  EXPECT_EQ(path.mtu(), 1400);
  EXPECT_TRUE(path.reported_too_big(1300, 1400, nxt - 1, una, nxt, 0));
  EXPECT_EQ(path.mtu(), 1300);
}

// RFC 5927, 4.1: a forger does not know the numbers in flight.
TEST(PathMtu, ReportsThatFitNothingAreIgnored) {
  PathMtu path = started();
  EXPECT_FALSE(path.reported_too_big(1400, 1500, una - 1, una, nxt, 0));
  EXPECT_FALSE(path.reported_too_big(1400, 1500, nxt, una, nxt, 0));
  EXPECT_FALSE(path.reported_too_big(1400, 1500, una, una, una, 0));  // nothing in flight
  EXPECT_FALSE(path.reported_too_big(1500, 1500, una, una, nxt, 0));  // not smaller
  EXPECT_FALSE(path.reported_too_big(9000, 1500, una, una, nxt, 0));
  EXPECT_EQ(path.mtu(), 1500);
}

TEST(PathMtu, NoReportGoesBelowTheMinimum) {
  PathMtu path = started();
  EXPECT_TRUE(path.reported_too_big(68, 1500, una, una, nxt, 0));
  EXPECT_EQ(path.mtu(), mtu_min_4);
  EXPECT_FALSE(path.reported_too_big(1, 552, una, una, nxt, 0));
  PathMtu small = started(296);  // a link below the minimum
  EXPECT_FALSE(small.reported_too_big(68, 296, una, una, nxt, 0));
  EXPECT_EQ(small.mtu(), 296);
}

// RFC 1191, 5 and 7: routers that report no size.
TEST(PathMtu, WithoutASizeTheNextPlateauIsTaken) {
  PathMtu path = started(9000);
  for (const std::uint16_t expected : {8166, 4352, 2002, 1492, 1006, 576, 552}) {
    EXPECT_TRUE(path.reported_too_big(0, path.mtu(), una, una, nxt, 0));
    EXPECT_EQ(path.mtu(), expected);
  }
  EXPECT_FALSE(path.reported_too_big(0, 552, una, una, nxt, 0));
}

// RFC 5927, 7.2: if such segments got through before, a report counts only after a time-out.
TEST(PathMtu, AReportAgainstExperienceWaitsForATimeOut) {
  PathMtu path = started();
  path.acknowledged(1500);
  EXPECT_FALSE(path.reported_too_big(600, 1500, una, una, nxt, 0));
  EXPECT_EQ(path.mtu(), 1500);
  EXPECT_TRUE(path.timed_out(1500, 0));
  EXPECT_EQ(path.mtu(), 600);
}

TEST(PathMtu, ABlackHoleIsLeftInSteps) {
  PathMtu path = started();
  EXPECT_FALSE(path.timed_out(1500, 0));
  EXPECT_FALSE(path.timed_out(100, 0));  // a short segment says nothing about lengths
  EXPECT_FALSE(path.timed_out(1500, 0));
  EXPECT_TRUE(path.timed_out(1500, 0));
  EXPECT_EQ(path.mtu(), 1064);
  EXPECT_TRUE(path.timed_out(1064, 0));
  EXPECT_EQ(path.mtu(), 552);
  EXPECT_FALSE(path.timed_out(552, 0));
}

// A peer with a small MSS: its segments pass every usual path, so repeated time-outs are an outage for longer.
TEST(PathMtu, ShortSegmentsAreCutLater) {
  PathMtu path = started(1040);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(path.timed_out(1040, 0));
  EXPECT_TRUE(path.timed_out(1040, 0));
  EXPECT_EQ(path.mtu(), 552);
}

// Time-outs of a path with losses are no black hole while full segments get through.
TEST(PathMtu, LossesBetweenDeliveriesDoNotLowerIt) {
  PathMtu path = started();
  path.acknowledged(1500);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(path.timed_out(1500, 0));
    EXPECT_FALSE(path.timed_out(1500, 0));
    path.acknowledged(60'000);  // a segment that the card has cut up
  }
  path.acknowledged(200);
  EXPECT_FALSE(path.timed_out(1500, 0));
  path.acknowledged(200);  // short segments get through a black hole, too
  EXPECT_FALSE(path.timed_out(1500, 0));
  EXPECT_TRUE(path.timed_out(1500, 0));
}

TEST(PathMtu, TheLargerSizeIsTriedAgainAfterTenMinutes) {
  PathMtu path = started(1500, 1400);
  EXPECT_EQ(path.mtu(), 1400);
  EXPECT_FALSE(path.raise_due(599));
  EXPECT_TRUE(path.raise_due(600));
  path.raise(600);
  EXPECT_EQ(path.mtu(), 1500);
  EXPECT_FALSE(path.raise_due(600));
  EXPECT_TRUE(path.reported_too_big(1300, 1500, una, una, nxt, 600));
  EXPECT_FALSE(path.raise_due(601));
  EXPECT_EQ(started(1500, 9000).mtu(), 1500);  // the cache does not raise a size
  EXPECT_EQ(started(1500, 100).mtu(), 1500);
}

TEST(PathMtuCache, RemembersASizeForTenMinutes) {
  PathMtuCache cache;
  EXPECT_EQ(cache.find(7, 0), 0);
  cache.set(7, 1400, 0);
  EXPECT_EQ(cache.find(7, 599), 1400);
  EXPECT_EQ(cache.find(8, 0), 0);
  EXPECT_EQ(cache.find(7, 600), 0);
  cache.set(7, 1300, 600);
  EXPECT_EQ(cache.find(7, 601), 1300);
  cache.forget(7);
  EXPECT_EQ(cache.find(7, 601), 0);
  EXPECT_EQ(cache.replaced(), 0U);
}

// An attacker may cause any number of entries.
TEST(PathMtuCache, IsBoundedAndReplacesTheOldest) {
  PathMtuCache cache;
  for (std::uint64_t i = 1; i <= 10'000; ++i) cache.set(i, 1400, static_cast<std::uint32_t>(i / 100));
  unsigned found = 0;
  for (std::uint64_t i = 1; i <= 10'000; ++i) found += cache.find(i, 100) != 0 ? 1 : 0;
  EXPECT_EQ(found, 128U);
  EXPECT_EQ(cache.replaced(), 10'000U - 128U);
  EXPECT_EQ(cache.find(10'000, 100), 1400);
}

}  // namespace
}  // namespace neap::net::tcp
