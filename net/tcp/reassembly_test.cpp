// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/reassembly.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "net/tcp/sequence.hpp"

namespace neap::net::tcp {
namespace {

constexpr std::uint32_t base = 0xFFFF'FF00;  // the numbers wrap
constexpr std::size_t no_limit = std::size_t{1} << 30;
constexpr std::uint32_t frame_memory = 2048;

/// The byte of the stream at a distance from `base`.
std::byte byte_at(std::uint32_t offset) { return static_cast<std::byte>(offset * 7 + offset / 256); }

Buffer stream(std::uint32_t from, std::uint32_t to) {
  std::vector<std::byte> bytes;
  for (std::uint32_t i = from; i < to; ++i) bytes.push_back(byte_at(i));
  return Buffer::copy(bytes);
}

std::string text_of(const Buffer& buffer) {
  std::string text(buffer.bytes(), ' ');
  EXPECT_EQ(buffer.peek(std::as_writable_bytes(std::span(text))), buffer.bytes());
  return text;
}

class OutOfOrderTest : public ::testing::Test {
 protected:
  ~OutOfOrderTest() override {
    queue = {};
    Buffer::trim_free_list();
  }

  /// The segment with the stream's bytes from `from` up to `to`.
  OutOfOrder::Inserted insert(std::uint32_t from, std::uint32_t to, bool fin = false, std::size_t limit = no_limit) {
    return queue.insert({.begin = base + from, .data = stream(from, to), .memory_bytes = frame_memory, .fin = fin}, base + next, limit);
  }
  std::vector<SequenceRange> blocks(std::size_t count = 3) {
    std::vector<SequenceRange> found(count);
    found.resize(queue.sack_blocks(base + next, found));
    for (SequenceRange& block : found) block = {.first = block.first - base, .end = block.end - base};
    return found;
  }
  /// The bytes up to `to` arrive in order. Takes all that follows; returns true at FIN.
  bool advance(std::uint32_t to) {
    next = to;
    bool fin = false;
    while (queue.has_next(base + next)) {
      StreamPart part = queue.take_next(base + next);
      EXPECT_EQ(part.begin, base + next);
      const auto bytes = static_cast<std::uint32_t>(part.data.bytes());
      EXPECT_EQ(text_of(part.data), text_of(stream(next, next + bytes)));
      next += bytes;
      fin = part.fin;
    }
    return fin;
  }

  OutOfOrder queue;
  std::uint32_t next = 10;
};

TEST_F(OutOfOrderTest, AFilledHoleDeliversAllThatFollows) {
  EXPECT_TRUE(insert(20, 30).kept);
  EXPECT_TRUE(insert(40, 50).kept);
  EXPECT_TRUE(insert(30, 35).kept);
  EXPECT_EQ(queue.ranges(), 2U);
  EXPECT_FALSE(queue.has_next(base + 10));
  advance(20);
  EXPECT_EQ(next, 35U);
  EXPECT_EQ(queue.ranges(), 1U);
  advance(40);
  EXPECT_EQ(next, 50U);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.memory_bytes(), 0U);
}

// RFC 2018, 4: the first block has the segment that arrived last, then come the blocks that were reported last.
TEST_F(OutOfOrderTest, BlocksAreInTheOrderOfTheirLastSegment) {
  insert(20, 30);
  insert(40, 50);
  insert(60, 70);
  insert(80, 90);
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{80, 90}, {60, 70}, {40, 50}}));
  insert(30, 32);
  EXPECT_EQ(blocks(4), (std::vector<SequenceRange>{{20, 32}, {80, 90}, {60, 70}, {40, 50}}));
  insert(50, 60);  // joins two
  EXPECT_EQ(blocks(4), (std::vector<SequenceRange>{{40, 70}, {20, 32}, {80, 90}}));
  advance(20);
  EXPECT_EQ(blocks(4), (std::vector<SequenceRange>{{40, 70}, {80, 90}}));
}

// RFC 2883, 4: a duplicate comes first, once, and then the block that contains it.
TEST_F(OutOfOrderTest, DuplicatesAreReportedOnce) {
  insert(20, 30);
  insert(40, 60);
  EXPECT_TRUE(insert(45, 50).duplicate);
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{45, 50}, {40, 60}, {20, 30}}));
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{40, 60}, {20, 30}}));
  queue.report_duplicate(base + 2, base + 8);
  EXPECT_EQ(blocks(2), (std::vector<SequenceRange>{{2, 8}, {40, 60}}));
  EXPECT_TRUE(insert(25, 35).duplicate);  // a part is new
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{25, 30}, {20, 35}, {40, 60}}));
}

TEST_F(OutOfOrderTest, ADuplicateWithoutRangesLeavesNothingBehind) {
  queue.report_duplicate(base + 2, base + 2);
  EXPECT_TRUE(queue.empty());
  queue.report_duplicate(base + 2, base + 8);
  EXPECT_FALSE(queue.empty());
  EXPECT_FALSE(queue.has_next(base + next));
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{2, 8}}));
  EXPECT_TRUE(queue.empty());
}

// Without SACK no acknowledgement reports the duplicate, so nothing may wait for one.
TEST_F(OutOfOrderTest, WithoutSackDuplicatesAreNotKeptForAReport) {
  insert(20, 30);
  EXPECT_TRUE(
      queue.insert({.begin = base + 20, .data = stream(20, 30), .memory_bytes = frame_memory}, base + next, no_limit, false).duplicate);
  advance(20);
  EXPECT_EQ(next, 30U);
  EXPECT_TRUE(queue.empty());
}

TEST_F(OutOfOrderTest, OverlapsKeepEveryByteOnce) {
  insert(20, 30);
  insert(40, 50);
  insert(60, 70);
  const auto inserted = insert(25, 65);  // overlaps the first, contains the second, overlaps the third
  EXPECT_TRUE(inserted.kept);
  EXPECT_TRUE(inserted.duplicate);
  EXPECT_EQ(queue.ranges(), 1U);
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{25, 30}, {20, 70}}));
  advance(22);  // a segment in order overlaps the range
  EXPECT_EQ(next, 70U);
  EXPECT_TRUE(queue.empty());
}

TEST_F(OutOfOrderTest, ARangeThatASegmentInOrderContainsIsDropped) {
  insert(20, 30);
  insert(40, 50);
  advance(35);
  EXPECT_EQ(next, 35U);
  EXPECT_EQ(queue.ranges(), 1U);
}

TEST_F(OutOfOrderTest, TheFinComesBehindTheLastByte) {
  EXPECT_TRUE(insert(30, 40, true).kept);
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{30, 41}}));
  EXPECT_TRUE(insert(20, 30).kept);
  EXPECT_TRUE(advance(20));
  EXPECT_EQ(next, 40U);
  EXPECT_TRUE(queue.empty());
}

TEST_F(OutOfOrderTest, AFinAloneWaitsForItsTurn) {
  EXPECT_TRUE(insert(30, 30, true).kept);
  EXPECT_FALSE(queue.empty());
  EXPECT_FALSE(advance(20));
  EXPECT_TRUE(advance(30));
  EXPECT_TRUE(queue.empty());
}

// A peer that sends bytes behind its FIN, or several FINs.
TEST_F(OutOfOrderTest, ContradictingFinsAreIgnored) {
  insert(30, 40, true);
  EXPECT_FALSE(insert(40, 50).kept);
  EXPECT_FALSE(insert(60, 60, true).kept);
  EXPECT_TRUE(insert(35, 50, true).duplicate);
  EXPECT_EQ(blocks(), (std::vector<SequenceRange>{{35, 40}, {30, 41}}));
  insert(20, 25, true);  // not kept as FIN: bytes behind it are known
  EXPECT_FALSE(advance(20));
  EXPECT_EQ(next, 25U);
  EXPECT_FALSE(advance(41));  // bytes in order beyond the FIN: it does not count any more
  EXPECT_TRUE(queue.empty());
}

TEST_F(OutOfOrderTest, AFinInFrontOfKnownBytesIsIgnored) {
  insert(40, 50);
  EXPECT_TRUE(insert(20, 25, true).kept);  // the bytes
  EXPECT_FALSE(insert(30, 30, true).kept);
  EXPECT_FALSE(advance(20));
  EXPECT_EQ(next, 25U);
}

TEST_F(OutOfOrderTest, TheNumberOfRangesIsBoundedAndTheNearestAreKept) {
  for (std::uint32_t i = 0; i < 2 * OutOfOrder::ranges_max; ++i) {
    const auto inserted = insert(20 + 10 * i, 21 + 10 * i);
    EXPECT_EQ(inserted.kept, i < OutOfOrder::ranges_max);
    EXPECT_EQ(inserted.bytes_dropped, i < OutOfOrder::ranges_max ? 0U : 1U);
  }
  EXPECT_EQ(queue.ranges(), OutOfOrder::ranges_max);
  const auto nearer = insert(15, 16);
  EXPECT_TRUE(nearer.kept);
  EXPECT_EQ(nearer.ranges_dropped, 1U);
  EXPECT_EQ(queue.ranges(), OutOfOrder::ranges_max);
  EXPECT_TRUE(insert(16, 20).kept);  // joins two ranges: always possible
  EXPECT_EQ(queue.ranges(), OutOfOrder::ranges_max - 1);
}

TEST_F(OutOfOrderTest, TheMemoryIsBoundedAndTheNearestBytesAreKept) {
  constexpr std::size_t limit = 20 * std::size_t{frame_memory};
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < 100; ++i) {
    kept += insert(1000 + 3 * i, 1001 + 3 * i, false, limit).kept ? 1 : 0;
    ASSERT_LE(queue.memory_bytes(), limit);
  }
  EXPECT_GE(kept, 18U);
  EXPECT_LE(kept, 20U);
  const auto nearer = insert(500, 510, false, limit);
  EXPECT_TRUE(nearer.kept);
  EXPECT_GE(nearer.ranges_dropped, 1U);
  EXPECT_LE(queue.memory_bytes(), limit);
  EXPECT_FALSE(insert(2000, 2010, false, 0).kept);
  EXPECT_GE(queue.drop_all(), 18U);
  EXPECT_TRUE(queue.empty());
}

TEST_F(OutOfOrderTest, MemoryIsOfferedForACopyOnce) {
  insert(20, 30);
  insert(40, 50);
  unsigned copies = 0;
  const auto copy = [&copies](Buffer&& data, std::uint32_t& memory_bytes) {
    ++copies;
    memory_bytes = 100;
    return std::move(data);
  };
  const std::size_t before_bytes = queue.memory_bytes();
  queue.compact(copy);
  queue.compact(copy);
  EXPECT_EQ(copies, 2U);
  EXPECT_EQ(before_bytes - queue.memory_bytes(), 2 * (frame_memory - 100));
  insert(30, 31);
  queue.compact(copy);
  EXPECT_EQ(copies, 3U);
  advance(20);
  EXPECT_EQ(next, 31U);
  EXPECT_EQ(queue.drop_all(), 10U);
}

// Random segments of a stream with random losses, overlaps and FINs, checked against a map of the bytes that were kept.
TEST_F(OutOfOrderTest, RandomSegmentsAgreeWithAModel) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    queue = {};
    next = 10;
    std::vector<bool> known(700);
    while (next < 400) {
      const std::uint32_t from = next + random() % 100, to = from + random() % 50;
      if (from == next) {
        advance(to);
      } else if (insert(from, to).kept) {
        std::fill(known.begin() + from, known.begin() + to, true);
      }
      std::uint32_t ranges = 0;
      for (std::uint32_t i = next; i < 699; ++i) ranges += !known[i] && known[i + 1] ? 1 : 0;
      // Ranges only begin behind `next`: the byte at `next` is never known.
      ASSERT_FALSE(known[next]);
      ASSERT_EQ(queue.ranges(), ranges);
      if (random() % 4 != 0) continue;
      for (const SequenceRange& block : blocks(4)) {
        if (block.first < next) continue;  // a duplicate
        ASSERT_TRUE(std::all_of(known.begin() + block.first, known.begin() + block.end, [](bool each) { return each; }));
      }
    }
  }
}

}  // namespace
}  // namespace neap::net::tcp
