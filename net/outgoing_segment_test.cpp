// SPDX-License-Identifier: BSL-1.0
// The memory of sent segments: who holds it, when it is released, and how a segment is split.
#include "net/outgoing_segment.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "net/payload_reference.hpp"
#include "net/testing/handlers.hpp"

namespace neap::net::testing {
namespace {

/// Bytes of the application, and whether they were released.
struct Block {
  explicit Block(std::size_t bytes, std::size_t from = 0) : data(bytes) {
    for (std::size_t i = 0; i < bytes; ++i) data[i] = pattern(from + i, 1);
  }
  Buffer reference() {
    return Buffer::reference(data, [](void* owner) noexcept { ++static_cast<Block*>(owner)->released; }, this);
  }
  std::vector<std::byte> data;
  int released = 0;
};

class OutgoingSegmentTest : public ::testing::Test {
 protected:
  ~OutgoingSegmentTest() override {
    OutgoingSegment::trim();
    Buffer::trim_free_list();
    trim_payload_references();
  }
  /// The frame's bytes behind its headers, as the card reads them.
  static std::vector<std::byte> payload_of(OutgoingSegment& segment, unsigned pieces_max = 40) {
    std::vector<TransmitPiece> pieces(pieces_max);
    const unsigned count = segment.pieces_of(pieces);
    std::vector<std::byte> bytes;
    for (unsigned i = 0; i < count; ++i) bytes.insert(bytes.end(), pieces[i].data, pieces[i].data + pieces[i].bytes);
    bytes.erase(bytes.begin(), bytes.begin() + (count == 0 ? 0 : segment.headers_bytes));
    return bytes;
  }
  static void expect_pattern(OutgoingSegment& segment, std::size_t from, std::size_t bytes) {
    const std::vector<std::byte> found = payload_of(segment);
    ASSERT_EQ(found.size(), bytes);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(found[i], pattern(from + i, 1)) << i;
  }
};

TEST_F(OutgoingSegmentTest, PayloadIsReleasedWithTheLastReference) {
  Block block(3000);
  OutgoingSegment* const segment = OutgoingSegment::make_chain(block.reference());
  ASSERT_NE(segment, nullptr);
  segment->headers_bytes = 66;
  ++segment->references;  // the card's
  expect_pattern(*segment, 0, 3000);
  OutgoingSegment::release(*segment);
  EXPECT_EQ(block.released, 0);
  OutgoingSegment::release(*segment);
  EXPECT_EQ(block.released, 1);
}

// A piece that is cut is released after both parts, whichever goes first.
TEST_F(OutgoingSegmentTest, APartOfAPieceKeepsThePiece) {
  for (const bool front_first : {true, false}) {
    Block one(1000), other(2000, 1000);
    Buffer all = one.reference();
    all.append(other.reference());
    Buffer front;
    ASSERT_TRUE(take_front(all, 1500, front));
    EXPECT_EQ(front.bytes(), 1500U);
    EXPECT_EQ(all.bytes(), 1500U);
    (front_first ? front : all).clear();
    EXPECT_EQ(one.released, front_first ? 1 : 0);
    EXPECT_EQ(other.released, 0);
    (front_first ? all : front).clear();
    EXPECT_EQ(one.released, 1);
    EXPECT_EQ(other.released, 1);
  }
}

TEST_F(OutgoingSegmentTest, AChainIsSplitWithoutACopy) {
  Block one(1000), other(2000, 1000);
  Buffer all = one.reference();
  all.append(other.reference());
  OutgoingSegment* const segment = OutgoingSegment::make_chain(std::move(all));
  ASSERT_NE(segment, nullptr);
  ++segment->references;
  EXPECT_EQ(OutgoingSegment::split(*segment, 1448), nullptr) << "the card reads it";
  --segment->references;
  tcp::SentSegment* const second = OutgoingSegment::split(*segment, 1448);
  ASSERT_NE(second, nullptr);
  segment->bytes = 1448;
  segment->headers_bytes = OutgoingSegment::of(*second).headers_bytes = 54;
  expect_pattern(*segment, 0, 1448);
  expect_pattern(OutgoingSegment::of(*second), 1448, 1552);
  OutgoingSegment::release(*segment);
  EXPECT_EQ(one.released, 1);
  EXPECT_EQ(other.released, 0);
  OutgoingSegment::release(OutgoingSegment::of(*second));
  EXPECT_EQ(other.released, 1);
}

TEST_F(OutgoingSegmentTest, AFrameAndALargeSegmentAreSplitByACopy) {
  for (const std::uint32_t bytes : {1000U, 20'000U}) {
    OutgoingSegment* const segment =
        bytes > OutgoingSegment::payload_bytes_max ? OutgoingSegment::make_large(bytes) : OutgoingSegment::make(bytes);
    ASSERT_NE(segment, nullptr);
    for (std::size_t i = 0; i < bytes; ++i) segment->payload()[i] = pattern(i, 1);
    tcp::SentSegment* const second = OutgoingSegment::split(*segment, 600);
    ASSERT_NE(second, nullptr);
    segment->bytes = 600;
    segment->headers_bytes = OutgoingSegment::of(*second).headers_bytes = 54;
    expect_pattern(*segment, 0, 600);
    expect_pattern(OutgoingSegment::of(*second), 600, bytes - 600);
    OutgoingSegment::release(*segment);
    OutgoingSegment::release(OutgoingSegment::of(*second));
  }
}

// A segment that the card still reads is sent again with other headers, and exists until the card has read both frames.
TEST_F(OutgoingSegmentTest, AnEnvelopeKeepsItsSegment) {
  Block block(3000);
  OutgoingSegment* const segment = OutgoingSegment::make_chain(block.reference());
  ASSERT_NE(segment, nullptr);
  OutgoingSegment* const envelope = OutgoingSegment::make_envelope(*segment);
  ASSERT_NE(envelope, nullptr);
  envelope->headers_bytes = 66;
  expect_pattern(*envelope, 0, 3000);
  OutgoingSegment::release(*segment);
  EXPECT_EQ(block.released, 0);
  OutgoingSegment::release(*envelope);
  EXPECT_EQ(block.released, 1);

  OutgoingSegment* const frame = OutgoingSegment::make(100);
  ASSERT_NE(frame, nullptr);
  for (std::size_t i = 0; i < 100; ++i) frame->payload()[i] = pattern(i, 1);
  OutgoingSegment* const other = OutgoingSegment::make_envelope(*frame);
  ASSERT_NE(other, nullptr);
  other->headers_bytes = 54;
  expect_pattern(*other, 0, 100);
  OutgoingSegment::release(*frame);
  OutgoingSegment::release(*other);
}

TEST_F(OutgoingSegmentTest, TooManyPiecesAreReported) {
  std::vector<Block> blocks(4, Block(10));
  Buffer all;
  for (Block& block : blocks) all.append(block.reference());
  OutgoingSegment* const segment = OutgoingSegment::make_chain(std::move(all));
  ASSERT_NE(segment, nullptr);
  segment->headers_bytes = 54;
  EXPECT_EQ(payload_of(*segment, 5).size(), 40U);
  EXPECT_TRUE(payload_of(*segment, 4).empty());
  OutgoingSegment::release(*segment);
}

}  // namespace
}  // namespace neap::net::testing
