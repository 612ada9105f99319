// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/options.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

namespace neap::net::tcp {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

struct Parsed {
  bool legal = false;
  Options options;
};
/// The bytes are in memory of exactly their size, so the address sanitizer finds a read behind them.
Parsed parse(const std::vector<std::byte>& bytes, bool syn) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
  std::ranges::copy(bytes, exact.get());
  Parsed parsed;
  parsed.legal = parse_options({exact.get(), bytes.size()}, syn, parsed.options);
  return parsed;
}

TEST(Options, TheSynOfACommonSystemIsRead) {
  const auto [legal, options] = parse(bytes_of({2, 4, 5, 0xB4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7}), true);
  EXPECT_TRUE(legal);
  EXPECT_EQ(options.mss, 1460);
  EXPECT_TRUE(options.sack_permitted);
  EXPECT_TRUE(options.has_timestamps);
  EXPECT_EQ(options.timestamps.value, 0x01020304U);
  EXPECT_EQ(options.timestamps.echo, 0U);
  EXPECT_TRUE(options.has_window_shift);
  EXPECT_EQ(options.window_shift, 7);
  EXPECT_EQ(options.sack_count, 0);
}

TEST(Options, AnythingInAnyOrderWithAnyPaddingIsRead) {
  const auto [legal, options] =
      parse(bytes_of({253, 4, 9, 9, 1, 3, 3, 2, 1, 1, 34, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 8, 2, 4, 2, 0x18, 0, 9, 9}), true);
  EXPECT_TRUE(legal);
  EXPECT_EQ(options.mss, 536);
  EXPECT_EQ(options.window_shift, 2);
  EXPECT_EQ(options.timestamps.value, 7U);
  EXPECT_EQ(options.timestamps.echo, 8U);
}

// RFC 7323, 2.3: a larger shift is taken as 14.
TEST(Options, TheWindowScaleIsBounded) {
  const auto parsed = parse(bytes_of({3, 3, 255}), true);
  EXPECT_TRUE(parsed.options.has_window_shift);
  EXPECT_EQ(parsed.options.window_shift, 14);
}

TEST(Options, OptionsOfASynDoNotCountInOtherSegmentsAndSequenceRangesNotInASyn) {
  const auto plain = parse(bytes_of({2, 4, 5, 0xB4, 4, 2, 3, 3, 7, 1}), false);
  EXPECT_TRUE(plain.legal);
  EXPECT_EQ(plain.options.mss, 0);
  EXPECT_FALSE(plain.options.sack_permitted);
  EXPECT_FALSE(plain.options.has_window_shift);
  EXPECT_EQ(parse(bytes_of({5, 10, 0, 0, 0, 1, 0, 0, 0, 2}), true).options.sack_count, 0);
}

// RFC 9293, MUST-7: an illegal length, zero too, must neither crash nor loop. The options in front of it still count.
TEST(Options, IllegalLengthsEndTheOptions) {
  for (const auto& bad : {bytes_of({4, 2, 2, 0}), bytes_of({4, 2, 2, 1}), bytes_of({4, 2, 2}), bytes_of({4, 2, 2, 4, 5}),
                          bytes_of({4, 2, 8, 10, 1, 2, 3}), bytes_of({4, 2, 77, 255})}) {
    const auto [legal, options] = parse(bad, true);
    EXPECT_FALSE(legal);
    EXPECT_TRUE(options.sack_permitted);
    EXPECT_EQ(options.mss, 0);
    EXPECT_FALSE(options.has_timestamps);
  }
}

TEST(Options, KnownKindsWithWrongLengthsAreIgnored) {
  const auto syn = parse(bytes_of({2, 3, 9, 3, 2, 4, 3, 0, 8, 9, 1, 2, 3, 4, 5, 6, 7}), true);
  EXPECT_TRUE(syn.legal);
  EXPECT_EQ(syn.options.mss, 0);
  EXPECT_FALSE(syn.options.has_window_shift || syn.options.sack_permitted || syn.options.has_timestamps);
  const auto sack = parse(bytes_of({5, 9, 0, 0, 0, 1, 0, 0, 0}), false);
  EXPECT_TRUE(sack.legal);
  EXPECT_EQ(sack.options.sack_count, 0);
  EXPECT_EQ(parse(bytes_of({5, 2}), false).options.sack_count, 0);
}

TEST(Options, SequenceRangesAreBoundedByTheHeader) {
  std::vector<std::byte> bytes = bytes_of({5, 34});
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::byte>(i));
  const auto [legal, options] = parse(bytes, false);
  EXPECT_TRUE(legal);
  ASSERT_EQ(options.sack_count, 4);
  EXPECT_EQ(options.sack[0], (SequenceRange{0x00010203, 0x04050607}));
  EXPECT_EQ(options.sack[3], (SequenceRange{0x18191A1B, 0x1C1D1E1F}));
  // Longer than a TCP header can be: a caller's mistake must not write behind the array.
  bytes = bytes_of({5, 42});
  bytes.resize(42);
  EXPECT_EQ(parse(bytes, false).options.sack_count, 4);
}

TEST(Options, TheUsualFormOfTimestampsIsReadAsTheGeneralParserReadsIt) {
  std::array<std::byte, timestamps_bytes> bytes;
  write_timestamps(bytes.data(), {.value = 0xFEDCBA98, .echo = 0x12345678});
  Timestamps timestamps;
  ASSERT_TRUE(read_timestamps(bytes.data(), timestamps));
  EXPECT_EQ(timestamps.value, 0xFEDCBA98U);
  EXPECT_EQ(timestamps.echo, 0x12345678U);
  Options options;
  ASSERT_TRUE(parse_options(bytes, false, options));
  EXPECT_EQ(options.timestamps.value, timestamps.value);
  EXPECT_EQ(options.timestamps.echo, timestamps.echo);
  for (std::size_t i = 0; i < 4; ++i) {
    auto other = bytes;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(read_timestamps(other.data(), timestamps)) << i;
  }
}

TEST(Options, WrittenSynOptionsAreReadBack) {
  for (unsigned choice = 0; choice < 8; ++choice) {
    const SynOptions written{.mss = 1460,
                             .window_shift = 7,
                             .window_scale = (choice & 1) != 0,
                             .sack_permitted = (choice & 2) != 0,
                             .has_timestamps = (choice & 4) != 0,
                             .timestamps = {.value = 5, .echo = 6}};
    std::array<std::byte, 20> bytes;
    const std::size_t length = write_syn_options(bytes.data(), written);
    ASSERT_LE(length, bytes.size());
    EXPECT_EQ(length % 4, 0U);
    const auto [legal, options] = parse({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}, true);
    EXPECT_TRUE(legal);
    EXPECT_EQ(options.mss, 1460);
    EXPECT_EQ(options.has_window_shift, written.window_scale);
    EXPECT_EQ(options.sack_permitted, written.sack_permitted);
    EXPECT_EQ(options.has_timestamps, written.has_timestamps);
    if (written.window_scale) EXPECT_EQ(options.window_shift, 7);
    if (written.has_timestamps) EXPECT_EQ(options.timestamps.echo, 6U);
  }
}

TEST(Options, WrittenSequenceRangesAreReadBackBehindTimestamps) {
  const std::array<SequenceRange, 3> blocks{{{10, 20}, {0xFFFF'FFF0, 5}, {30, 40}}};
  std::array<std::byte, options_bytes_max> bytes;
  write_timestamps(bytes.data(), {.value = 1, .echo = 2});
  const std::size_t length = write_sack(bytes.data() + timestamps_bytes, blocks);
  EXPECT_EQ(length, sack_bytes(3));
  ASSERT_EQ(timestamps_bytes + length, bytes.size());
  Options options;
  ASSERT_TRUE(parse_options(bytes, false, options));
  EXPECT_TRUE(std::ranges::equal(options.sack_blocks(), blocks));
  EXPECT_EQ(write_sack(bytes.data(), {}), 0U);
}

// Every outcome is bounded, whatever the bytes are.
TEST(Options, RandomBytesAreReadWithinTheirBounds) {
  std::mt19937 random(1);
  unsigned illegal = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::vector<std::byte> bytes(random() % (options_bytes_max + 1));
    // Small numbers are likely to be kinds and lengths.
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 12);
    const auto [legal, options] = parse(bytes, (random() & 1) != 0);
    illegal += legal ? 0 : 1;
    ASSERT_LE(options.sack_count, sack_blocks_max);
    ASSERT_LE(options.window_shift, window_shift_max);
  }
  EXPECT_GT(illegal, 1000U);
}

TEST(Options, OldTimestampsAreFoundAcrossTheWrap) {
  EXPECT_TRUE(timestamp_is_old(99, 100));
  EXPECT_FALSE(timestamp_is_old(100, 100));
  EXPECT_TRUE(timestamp_is_old(0xFFFF'FFFF, 3));
  EXPECT_FALSE(timestamp_is_old(3, 0xFFFF'FFFF));
}

}  // namespace
}  // namespace neap::net::tcp
