// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/receive_window.hpp"

#include <gtest/gtest.h>

#include <random>

namespace neap::net::tcp {
namespace {

constexpr std::uint32_t peer_sequence = 0xFFFF'F000, full = 1460;
constexpr std::uint32_t bound = 8 << 20;

ReceiveWindow started(std::uint8_t shift = 8, std::uint32_t limit = 65'535) {
  ReceiveWindow window;
  window.start(peer_sequence, limit, 0);
  window.set_shift(shift);
  return window;
}

TEST(ReceiveWindow, TheScaleCoversTheBound) {
  EXPECT_EQ(window_shift_for(65'535), 0);
  EXPECT_EQ(window_shift_for(65'536), 1);
  EXPECT_EQ(window_shift_for(8 << 20), 8);
  EXPECT_EQ(window_shift_for(0xFFFF'FFFF), 14);
  EXPECT_GE(ReceiveWindow::limit_max(window_shift_for(6'250'000)), 6'250'000U);
}

TEST(ReceiveWindow, SegmentsAreAcceptedByTheFourCases) {
  ReceiveWindow window = started(0, 1000);
  const std::uint32_t next = peer_sequence + 1;
  EXPECT_TRUE(window.accepts(next, 0));
  EXPECT_TRUE(window.accepts(next + 999, 0));
  EXPECT_FALSE(window.accepts(next + 1000, 0));
  EXPECT_FALSE(window.accepts(next - 1, 0));
  EXPECT_TRUE(window.accepts(next - 10, 11));
  EXPECT_FALSE(window.accepts(next - 10, 10));
  EXPECT_TRUE(window.accepts(next + 999, 1));
  EXPECT_FALSE(window.accepts(next + 1000, 1));
  EXPECT_TRUE(window.accepts(next - 10, 5000));
  EXPECT_FALSE(window.accepts(next + 0x7000'0000, 1));
  window.advance(1000);
  EXPECT_EQ(window.window(), 0U);
  EXPECT_TRUE(window.accepts(window.next(), 0));
  EXPECT_FALSE(window.accepts(window.next() + 1, 0));
  EXPECT_FALSE(window.accepts(window.next(), 1));
  window.advance(1);  // a FIN
  EXPECT_EQ(window.window(), 0U);
}

// RFC 9293, SHLD-14: whatever arrives and is released, an announced byte stays announced.
TEST(ReceiveWindow, TheEdgeNeverMovesToTheLeft) {
  std::mt19937 random(2);
  for (const std::uint8_t shift : {0, 3, 7, 14}) {
    ReceiveWindow window = started(shift);
    std::uint32_t held = 0, peer_edge = window.edge();
    for (int i = 0; i < 20'000; ++i) {
      const std::uint32_t bytes = std::min<std::uint32_t>(random() % 3000, window.window());
      window.advance(bytes);
      held += bytes;
      held -= random() % 2 == 0 ? random() % (held + 1) : 0;
      if (random() % 50 == 0) window.tune(held, static_cast<std::uint32_t>(i), 1'000'000, bound, true);
      if (random() % 1000 == 0) window.shrink_limit();
      const std::uint32_t edge_before = window.edge();
      const std::uint32_t field = window.announce(held, full);
      ASSERT_FALSE(before(window.edge(), edge_before));
      ASSERT_FALSE(before(window.edge(), window.next() + (field << shift)));
      // In the peer's eyes the edge moves to the left by less than the unit of the scale (RFC 7323, 2.4), and only when the limit is
      // reached.
      const std::uint32_t seen = window.next() + (field << shift);
      ASSERT_LT(static_cast<std::int32_t>(peer_edge - seen), static_cast<std::int32_t>(1U << shift));
      peer_edge = seen;
    }
  }
}

// A peer that sends single bytes must not move the edge by rounding: at most one unit more than the limit is held.
TEST(ReceiveWindow, RoundingDoesNotOpenTheWindow) {
  ReceiveWindow window = started(14);
  window.advance(100);
  std::uint32_t held = 100;
  for (int i = 0; i < 200'000 && window.window() > 0; ++i) {
    window.advance(1);
    ++held;
    (void)window.announce(held, full);
  }
  EXPECT_LE(held, 65'535U + (1U << 14));
}

// RFC 9293, 3.8.6.2.2: a window does not open by a few bytes.
TEST(ReceiveWindow, TheEdgeMovesInStepsOfASegment) {
  ReceiveWindow window = started(0);
  window.advance(65'535);
  EXPECT_EQ(window.announce(65'535, full), 0);
  EXPECT_EQ(window.announce(65'535 - full + 1, full), 0);
  EXPECT_EQ(window.announce(65'535 - full, full), full);
  ReceiveWindow small = started(0, 1000);  // half of a small window counts as a step
  small.advance(1000);
  EXPECT_EQ(small.announce(501, full), 0);
  EXPECT_EQ(small.announce(500, full), 500);
}

TEST(ReceiveWindow, AnUpdateIsDueForAQuarterOrForAClosedWindow) {
  ReceiveWindow window = started(0);
  EXPECT_FALSE(window.update_due(0, full));
  window.advance(10'000);
  EXPECT_FALSE(window.update_due(0, full));
  window.advance(10'000);
  EXPECT_TRUE(window.update_due(0, full));
  EXPECT_EQ(window.announce(0, full), 65'535);
  window.advance(65'535);
  EXPECT_FALSE(window.update_due(65'535, full));
  EXPECT_FALSE(window.update_due(65'535 - 2 * full + 1, full));
  EXPECT_TRUE(window.update_due(65'535 - 2 * full, full));
}

/// A sender in slow start whose window doubles in each round trip, with an application that releases at once. Returns the bytes received in
/// `rounds` round trips.
std::uint64_t transfer(ReceiveWindow& window, unsigned rounds, std::uint32_t round_trip_us, std::uint32_t congestion_max) {
  std::uint64_t total = 0;
  std::uint32_t now_us = 0, congestion = 10 * full;
  for (unsigned round = 0; round < rounds; ++round) {
    const std::uint32_t flight = std::min(congestion, window.window());
    for (std::uint32_t sent = 0; sent < flight; sent += full) {
      const std::uint32_t bytes = std::min(full, flight - sent);
      window.advance(bytes);
      total += bytes;
      if (window.tuning_due(0))
        window.tune(0, now_us + static_cast<std::uint32_t>(std::uint64_t{round_trip_us} * sent / flight), round_trip_us, bound, true);
      (void)window.announce(0, full);
    }
    now_us += round_trip_us;
    congestion = std::min(2 * congestion, congestion_max);
  }
  return total;
}

TEST(ReceiveWindow, ItStaysAheadOfAPeerInSlowStartUpToTheBound) {
  ReceiveWindow window = started();
  (void)transfer(window, 20, 50'000, 6'250'000);  // 50 ms at 1 Gbit/s
  EXPECT_GE(window.limit_bytes(), 6'250'000U);
  EXPECT_LE(window.limit_bytes(), bound);
  // Not more than one round trip is lost against an unlimited window.
  ReceiveWindow fresh = started();
  const std::uint64_t total = transfer(fresh, 20, 50'000, 6'250'000);
  std::uint64_t unlimited = 0;
  std::uint32_t congestion = 10 * full;
  for (int round = 0; round < 20; ++round, congestion = std::min<std::uint32_t>(2 * congestion, 6'250'000)) unlimited += congestion;
  EXPECT_GE(total + 6'250'000, unlimited);
}

TEST(ReceiveWindow, ItDoesNotGrowForAPeerThatIsLimitedOtherwise) {
  ReceiveWindow window = started();
  (void)transfer(window, 100, 50'000, 20 * full);
  EXPECT_EQ(window.limit_bytes(), 65'535U);
}

TEST(ReceiveWindow, ItDoesNotGrowForAnApplicationThatKeepsTheBytesOrWithoutMemory) {
  ReceiveWindow window = started();
  window.advance(60'000);
  EXPECT_FALSE(window.tuning_due(60'000));
  EXPECT_TRUE(window.tuning_due(10'000));
  EXPECT_FALSE(window.tune(10'000, 10, 1000, bound, false));
  EXPECT_EQ(window.limit_bytes(), 65'535U);
  EXPECT_FALSE(window.tuning_due(10'000));
  // Without window scale the limit stays, too.
  ReceiveWindow unscaled = started(0);
  unscaled.advance(60'000);
  EXPECT_FALSE(unscaled.tune(0, 10, 1000, bound, true));
}

TEST(ReceiveWindow, RequestsOfAnIdleConnectionAreNoTransfer) {
  ReceiveWindow window = started();
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    window.advance(100);
    if (window.tuning_due(0)) window.tune(0, i * 1000, 200, bound, true);
    (void)window.announce(0, full);
  }
  EXPECT_EQ(window.limit_bytes(), 65'535U);
}

}  // namespace
}  // namespace neap::net::tcp
