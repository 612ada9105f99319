// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/acknowledgements.hpp"

#include <gtest/gtest.h>

namespace neap::net::tcp {
namespace {

/// A policy whose quick acknowledgements are used up.
AckPolicy settled() {
  AckPolicy policy;
  policy.received(1460);
  policy.sent(true);
  return policy;
}

TEST(AckPolicy, TheFirstSegmentsAreAcknowledgedAtOnce) {
  AckPolicy policy;
  EXPECT_EQ(policy.decide(), AckDecision::none);
  for (unsigned i = 0; i < AckPolicy::quick_segments; ++i) {
    policy.received(1460);
    EXPECT_EQ(policy.decide(), AckDecision::now);
    policy.sent(false);
  }
  policy.received(1460);
  EXPECT_EQ(policy.decide(), AckDecision::delayed);
}

// A reply shows that the connection carries requests: its acknowledgements go with the replies.
TEST(AckPolicy, AReplyEndsQuickAcknowledgements) {
  AckPolicy policy = settled();
  policy.received(100);
  EXPECT_EQ(policy.decide(), AckDecision::delayed);
  policy.sent(true);
  EXPECT_EQ(policy.decide(), AckDecision::none);
}

// RFC 9293, SHLD-19: every second full segment is acknowledged. A full segment is what the peer sends as such.
TEST(AckPolicy, EverySecondFullSegmentIsAcknowledgedAtOnce) {
  AckPolicy policy = settled();
  for (int i = 0; i < 10; ++i) {
    policy.received(1460);
    EXPECT_EQ(policy.decide(), AckDecision::delayed);
    policy.received(1460);
    EXPECT_EQ(policy.decide(), AckDecision::now);
    policy.sent(false);
  }
  AckPolicy small;
  for (unsigned i = 0; i < AckPolicy::quick_segments; ++i) {
    small.received(536);
    small.sent(false);
  }
  small.received(536);
  EXPECT_EQ(small.decide(), AckDecision::delayed);
  small.received(536);
  EXPECT_EQ(small.decide(), AckDecision::now);
}

// A frame that the card has joined holds several segments. A delay would stop a peer with a small congestion window.
TEST(AckPolicy, FramesThatTheCardHasJoinedAreAcknowledgedAtOnce) {
  AckPolicy policy = settled();
  policy.received(60'000);
  EXPECT_LE(policy.full_bytes(), 1460U);
  for (const std::uint32_t bytes : {2 * 1448, 3 * 1448, 10'000, 17'000}) {
    policy.sent(false);
    policy.received(bytes);
    EXPECT_EQ(policy.decide(), AckDecision::now) << bytes;
  }
  policy.sent(false);
  policy.received(1448);
  EXPECT_EQ(policy.decide(), AckDecision::delayed);
}

TEST(AckPolicy, SegmentsOutOfOrderAreAcknowledgedAtOnceAndSoAreTheNext) {
  AckPolicy policy = settled();
  policy.require_now();
  policy.begin_quick();
  EXPECT_TRUE(policy.waits());
  EXPECT_EQ(policy.decide(), AckDecision::now);
  policy.sent(false);
  EXPECT_EQ(policy.decide(), AckDecision::none);
  policy.received(10);
  EXPECT_EQ(policy.decide(), AckDecision::now);
}

TEST(AckPolicy, DelayCanBeSwitchedOff) {
  AckPolicy policy = settled();
  policy.set_delayed(false);
  policy.received(1);
  EXPECT_EQ(policy.decide(), AckDecision::now);
  policy.set_delayed(true);
  EXPECT_EQ(policy.decide(), AckDecision::delayed);
}

// RFC 3168, 6.1.3: the echo stays until the sender has reduced its window. A mark on that very segment counts again.
TEST(CongestionEcho, StaysUntilTheWindowIsReduced) {
  CongestionEcho echo;
  EXPECT_FALSE(echo.received(true, false, false));
  EXPECT_TRUE(echo.echo());
  EXPECT_FALSE(echo.received(false, false, false));
  EXPECT_TRUE(echo.echo());
  EXPECT_FALSE(echo.received(true, true, false));
  EXPECT_TRUE(echo.echo());
  EXPECT_FALSE(echo.received(false, true, false));
  EXPECT_FALSE(echo.echo());
}

// RFC 8257, 3.2: the echo is the mark of the last segment, and a change is acknowledged at once.
TEST(CongestionEcho, FollowsEachMarkWithDctcp) {
  CongestionEcho echo;
  EXPECT_FALSE(echo.received(false, false, true));
  EXPECT_TRUE(echo.received(true, false, true));
  EXPECT_TRUE(echo.echo());
  EXPECT_FALSE(echo.received(true, true, true));
  EXPECT_TRUE(echo.received(false, false, true));
  EXPECT_FALSE(echo.echo());
}

}  // namespace
}  // namespace neap::net::tcp
