// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/cookies.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "net/tcp/initial_sequence.hpp"

namespace neap::net::tcp {
namespace {

constexpr SegmentAddresses key{.addresses = 0x0A00'0001'C0A8'0001, .ports = 0x1234'0050};
constexpr std::uint64_t now_us = 1'000'000'000'000;

TEST(Cookies, ACookieIsValidForItsConnectionInThisStepAndTheNext) {
  const std::uint64_t begin = now_us / cookie_step_us * cookie_step_us;
  const std::uint32_t cookie = make_cookie(key, 77, 1460, begin);
  EXPECT_EQ(check_cookie(key, 77, cookie, begin), 1460);
  EXPECT_EQ(check_cookie(key, 77, cookie, begin + 2 * cookie_step_us - 1), 1460);
  EXPECT_EQ(check_cookie(key, 77, cookie, begin + 2 * cookie_step_us), std::nullopt);
  EXPECT_EQ(check_cookie(key, 78, cookie, begin), std::nullopt);
  EXPECT_EQ(check_cookie(key, 77, cookie + 1, begin), std::nullopt);
  EXPECT_EQ(check_cookie(key.reversed(), 77, cookie, begin), std::nullopt);
  SegmentAddresses other = key;
  other.ports ^= 1;
  EXPECT_EQ(check_cookie(other, 77, cookie, begin), std::nullopt);
}

// An old cookie must not become valid when its bits of time come round again.
TEST(Cookies, AnOldCookieStaysInvalid) {
  const std::uint32_t cookie = make_cookie(key, 77, 1460, now_us);
  for (std::uint64_t step = 2; step < 2000; ++step) ASSERT_EQ(check_cookie(key, 77, cookie, now_us + step * cookie_step_us), std::nullopt);
}

TEST(Cookies, TheMssIsRoundedDownToTheTable) {
  for (const auto& [mss, expected] : {std::pair{1, 536}, {536, 536}, {1000, 768}, {1459, 1440}, {1460, 1460}, {8960, 1460}, {65535, 1460}})
    EXPECT_EQ(check_cookie(key, 1, make_cookie(key, 1, static_cast<std::uint16_t>(mss), now_us), now_us), expected) << mss;
}

// A flood of ACKs with invented numbers makes connections only by guessing 28 bits. Here each of 2^18 guesses fails with high probability.
TEST(Cookies, GuessedCookiesAreRefused) {
  std::mt19937 random(3);
  unsigned accepted = 0;
  for (int i = 0; i < 1 << 18; ++i) accepted += check_cookie(key, random(), random(), now_us) ? 1 : 0;
  EXPECT_LE(accepted, 2U);
}

TEST(Cookies, Ipv6CookiesCoverEveryWord) {
  const SegmentAddresses6 base{.addresses = {1, 2, 3, 4}, .ports = 5};
  const std::uint32_t cookie = make_cookie(base, 9, 1220, now_us);
  EXPECT_EQ(check_cookie(base, 9, cookie, now_us), 1220);
  for (std::size_t word = 0; word < 4; ++word) {
    SegmentAddresses6 other = base;
    other.addresses[word] ^= std::uint64_t{1} << 63;
    EXPECT_EQ(check_cookie(other, 9, cookie, now_us), std::nullopt);
  }
}

TEST(Cookies, ATimestampCarriesTheOptionsAndIsNotLater) {
  for (const std::uint32_t timestamp : {0U, 1U, 63U, 64U, 1000U, 0x7FFF'FFFFU, 0xFFFF'FFFFU}) {
    for (unsigned shift = 0; shift <= 15; ++shift) {
      for (unsigned choice = 0; choice < 4; ++choice) {
        const CookieOptions options{.window_shift = static_cast<std::uint8_t>(shift == 15 ? 0 : shift),
                                    .window_scale = shift != 15,
                                    .sack_permitted = (choice & 1) != 0,
                                    .ecn = (choice & 2) != 0};
        const std::uint32_t carried = cookie_timestamp(timestamp, options);
        ASSERT_EQ(cookie_options(carried), options);
        ASSERT_LT(timestamp - carried, 64U);
      }
    }
  }
}

TEST(Cookies, AListenerUsesCookiesForAWhileAfterItsBacklogWasFull) {
  CookieUse use;
  EXPECT_FALSE(use.only_cookies(0) || use.may_return(0));
  use.overflowed(0);
  use.sent(0);
  EXPECT_TRUE(use.only_cookies(3'999'999 - 1));
  EXPECT_FALSE(use.only_cookies(4'000'000));
  EXPECT_TRUE(use.may_return(2 * cookie_step_us - 2));
  EXPECT_FALSE(use.may_return(2 * cookie_step_us));
}

// RFC 6528: the same connection, opened again, continues above its old numbers. Numbers of others tell nothing about it.
TEST(InitialNumbers, GrowWithTheClockAndDifferBetweenConnections) {
  const InitialNumbers first = initial_numbers(key, now_us), second = initial_numbers(key, now_us + 4'000'000);
  EXPECT_EQ(second.sequence - first.sequence, 1'000'000U);
  EXPECT_EQ(first.timestamp_offset, second.timestamp_offset);
  std::set<std::uint32_t> sequences, offsets;
  for (std::uint32_t port = 0; port < 1000; ++port) {
    const auto numbers = initial_numbers(SegmentAddresses{.addresses = key.addresses, .ports = port}, now_us);
    sequences.insert(numbers.sequence);
    offsets.insert(numbers.timestamp_offset);
  }
  EXPECT_GT(sequences.size(), 990U);
  EXPECT_GT(offsets.size(), 990U);
  const SegmentAddresses6 one{.addresses = {1, 2, 3, 4}, .ports = 5}, two{.addresses = {1, 2, 3, 5}, .ports = 5};
  EXPECT_NE(initial_numbers(one, now_us).sequence, initial_numbers(two, now_us).sequence);
}

TEST(InitialNumbers, TheTimestampClockHasStepsOfAMillisecondAndWraps) {
  EXPECT_EQ(timestamp_ms(999, 0), 0U);
  EXPECT_EQ(timestamp_ms(1000, 5), 6U);
  EXPECT_EQ(timestamp_ms((std::uint64_t{1} << 32) * 1000, 0), 0U);
  EXPECT_EQ(timestamp_ms(1000, 0xFFFF'FFFF), 0U);
}

}  // namespace
}  // namespace neap::net::tcp
