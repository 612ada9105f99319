// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/transmit_queue.hpp"

#include <gtest/gtest.h>

#include "drivers/virtio/test_stack.hpp"

namespace neap::virtio::test {
namespace {

constexpr std::uint64_t usual = feature::checksum | feature::host_tso4 | feature::host_tso6 | feature::indirect | feature::event_index;
constexpr TransmitOffload tcp_ipv4{.l3_bytes = 20, .l4_bytes = 20, .checksums = Checksums::tcp_ipv4};

/// Memory that a device can read, as the stack's is.
struct Memory {
  explicit Memory(const Bytes& bytes) : block(*DmaMemory::allocate(bytes.size())), count(static_cast<std::uint32_t>(bytes.size())) {
    std::memcpy(block.start(), bytes.data(), bytes.size());
  }
  [[nodiscard]] TransmitPiece piece(std::uint32_t from, std::uint32_t bytes) const {
    return {.data = block.start() + from, .bytes = bytes};
  }
  [[nodiscard]] TransmitPiece whole() const { return piece(0, count); }
  DmaMemory block;
  std::uint32_t count;
};

class Transmitting : public ::testing::Test {
 protected:
  Transmitting() { host::prepare_pages(); }
  void prepare(std::uint64_t features = usual, std::uint32_t descriptors = 64) {
    ASSERT_TRUE(queue.prepare(descriptors, features, 1514).has_value());
    const bool events = (features & feature::event_index) != 0;
    queue.ring().connect(&doorbell, 5, events);
    device = DeviceRing(queue.ring(), events);
  }
  TransmitResult send(std::vector<TransmitPiece> pieces, TransmitOffload offload = {}, std::uintptr_t token = 1) {
    return queue.transmit_alike(pieces, offload, token_of(token)) ? TransmitResult{} : queue.transmit(pieces, offload, token_of(token));
  }
  SentFrame sent_alone() {
    queue.flush();
    device.transmit(sent);
    static_cast<void>(device.publish());
    queue.reap(stack);
    queue.begin_run();
    EXPECT_TRUE(device.good);
    EXPECT_EQ(sent.size(), 1U);
    SentFrame frame = sent.empty() ? SentFrame{} : sent.front();
    sent.clear();
    return frame;
  }

  std::uint16_t doorbell = 0xFFFF;
  log::Traffic traffic;
  TransmitQueue queue{traffic};
  DeviceRing device;
  std::deque<SentFrame> sent;
  TestReceiver stack;
};

TEST_F(Transmitting, FramesAreSentUnchangedWhileThePositionsWrap) {
  prepare();
  const Bytes content = frame_of(7, 1514);
  const Memory memory(content);
  for (unsigned i = 0; i < 70'000; ++i) {
    const std::uint32_t bytes = 14 + i % 1501;
    ASSERT_TRUE(send({memory.piece(0, bytes)}, {}, i + 1).has_value());
    const SentFrame frame = sent_alone();
    ASSERT_TRUE(std::ranges::equal(frame.bytes, std::span(content).first(bytes))) << bytes;
    ASSERT_EQ(frame.descriptors, 2U);
    ASSERT_EQ(stack.tokens, std::vector<void*>{token_of(i + 1)});
    stack.tokens.clear();
    if (i > 300 && i < 65'000) i += 97;
  }
}

// The device gets the frame as it is, and is told where the checksum of TCP or UDP belongs.
TEST_F(Transmitting, ChecksumsAreLeftToTheDevice) {
  prepare();
  const Bytes frame = ipv4_frame(200);
  const Memory memory(frame);
  for (unsigned round = 0; round < 3; ++round) {  // the second and third frames are in a run
    ASSERT_TRUE(send({memory.whole()}, tcp_ipv4).has_value());
    const SentFrame one = sent_alone();
    EXPECT_EQ(one.bytes, frame);
    EXPECT_EQ(one.header.flags, header_flag::needs_checksum);
    EXPECT_EQ(one.header.checksum_start, 34);
    EXPECT_EQ(one.header.checksum_offset, 16);
    EXPECT_EQ(one.header.segmentation, 0);
  }
  ASSERT_TRUE(send({memory.whole()}, {.l3_bytes = 40, .l4_bytes = 8, .checksums = Checksums::udp_ipv6}).has_value());
  const SentFrame six = sent_alone();
  EXPECT_EQ(six.bytes, frame);
  EXPECT_EQ(six.header.checksum_start, 54);
  EXPECT_EQ(six.header.checksum_offset, 6);
  // A fragment has the bit of the IPv4 header only, which the stack has completed.
  ASSERT_TRUE(send({memory.whole()}, {.l3_bytes = 20, .checksums = Checksums::ipv4}).has_value());
  EXPECT_EQ(sent_alone().header.flags, 0);
}

TEST_F(Transmitting, ASegmentedFrameOfSeveralPiecesIsIndirect) {
  prepare();
  const Bytes frame = ipv4_frame(5054);
  const Memory memory(frame);
  TransmitOffload offload = tcp_ipv4;
  offload.segment_bytes = 1460;
  ASSERT_TRUE(send({memory.piece(0, 30), memory.piece(30, 70), memory.piece(100, 0), memory.piece(100, 4954)}, offload).has_value());
  const SentFrame one = sent_alone();
  EXPECT_TRUE(one.indirect);
  EXPECT_EQ(one.header.segmentation, segmentation_tcp4);
  EXPECT_EQ(one.header.segment_bytes, 1460);
  EXPECT_EQ(one.header.header_bytes, 54);
  EXPECT_EQ(one.bytes, frame);
  EXPECT_EQ(traffic.tx_frames.value(), 4U);
  EXPECT_EQ(traffic.tx_bytes.value(), 5054U + 3 * 54U);
}

// An indirect chain begins at another descriptor of its slot than the next frame in that slot.
TEST_F(Transmitting, FramesOfOneAndOfSeveralPiecesAlternateInEachSlot) {
  prepare();
  const Bytes content = frame_of(5, 900);
  const Memory memory(content);
  for (unsigned i = 0; i < 1000; ++i) {
    const bool several = i * 7 % 11 < 4;
    std::vector<TransmitPiece> pieces{memory.piece(0, 300)};
    if (several) pieces.push_back(memory.piece(300, 600));
    ASSERT_TRUE(send(pieces).has_value());
    if (i % 3 == 0) continue;
    queue.flush();
    device.transmit(sent, i % 5 == 0);
    static_cast<void>(device.publish());
    queue.reap(stack);
    queue.begin_run();
  }
  ASSERT_TRUE(device.good);
  EXPECT_EQ(queue.fault(), nullptr);
  unsigned count_several = 0;
  for (const SentFrame& frame : sent) {
    ASSERT_TRUE(std::ranges::equal(frame.bytes, std::span(content).first(frame.indirect ? 900 : 300)));
    count_several += frame.indirect ? 1 : 0;
  }
  EXPECT_EQ(sent.size(), 999U) << "the last frame was not flushed";
  EXPECT_NEAR(count_several, 363, 2);
}

TEST_F(Transmitting, WithoutIndirectDescriptorsAFrameHasOnePiece) {
  prepare(usual & ~feature::indirect);
  EXPECT_EQ(queue.pieces_max(), 1U);
  const Memory memory(frame_of(5, 700));
  EXPECT_EQ(send({memory.piece(0, 100), memory.piece(100, 100)}).error(), ErrorCode::invalid);
  ASSERT_TRUE(send({memory.whole()}).has_value());
  EXPECT_EQ(sent_alone().bytes, frame_of(5, 700));
}

TEST_F(Transmitting, ImpossibleFramesAreRefused) {
  prepare(feature::event_index);
  const Memory memory(frame_of(5, 1600));
  EXPECT_EQ(send({memory.piece(0, 1515)}).error(), ErrorCode::invalid);
  EXPECT_EQ(send({}).error(), ErrorCode::invalid);
  EXPECT_EQ(send({memory.piece(0, 100)}, tcp_ipv4).error(), ErrorCode::invalid) << "the device offers no checksums";
  TransmitQueue other{traffic};
  ASSERT_TRUE(other.prepare(64, usual & ~feature::host_tso6, 1514).has_value());
  const TransmitPiece piece = memory.piece(0, 1500);
  const auto refused = [&](TransmitOffload offload) { return !other.transmit({&piece, 1}, offload, nullptr).has_value(); };
  EXPECT_TRUE(refused({.l3_bytes = 40, .l4_bytes = 20, .checksums = Checksums::tcp_ipv6, .segment_bytes = 1000}));
  EXPECT_TRUE(refused({.l3_bytes = 20, .l4_bytes = 20, .checksums = Checksums::udp_ipv4, .segment_bytes = 1000}));
  EXPECT_TRUE(refused({.l3_bytes = 19, .checksums = Checksums::tcp_ipv4}));
  EXPECT_TRUE(refused({.l2_bytes = 13, .l3_bytes = 20, .checksums = Checksums::tcp_ipv4}));
  EXPECT_TRUE(refused({.l3_bytes = 20, .l4_bytes = 20, .checksums = Checksums::tcp_ipv4, .segment_bytes = 1500}));
  EXPECT_EQ(other.pending(), 0U);
}

TEST_F(Transmitting, AFullRingRefusesOnceAndReportsRoomOnce) {
  prepare();
  const Memory memory(frame_of(5, 60));
  unsigned taken = 0;
  while (send({memory.whole()}, {}, taken + 1)) ++taken;
  EXPECT_EQ(taken, 32U);
  EXPECT_EQ(send({memory.whole()}).error(), ErrorCode::full);
  queue.flush();
  EXPECT_TRUE(queue.crowded());
  queue.reap(stack);
  EXPECT_EQ(stack.room_again, 0U);
  device.transmit(sent);
  static_cast<void>(device.publish());
  queue.reap(stack);
  EXPECT_EQ(stack.room_again, 1U);
  EXPECT_EQ(stack.tokens.size(), 32U);
  EXPECT_FALSE(queue.crowded());
}

TEST_F(Transmitting, TokensReturnInOrderWhateverTheOrderOfCompletions) {
  prepare();
  const Memory memory(frame_of(5, 60));
  for (unsigned round = 0; round < 100; ++round) {
    for (unsigned i = 0; i < 20; ++i) ASSERT_TRUE(send({memory.whole()}, {}, round * 20 + i + 1).has_value());
    queue.flush();
    device.transmit(sent, round % 2 == 0);
    static_cast<void>(device.publish());
    queue.reap(stack);
  }
  ASSERT_EQ(stack.tokens.size(), 2000U);
  for (unsigned i = 0; i < 2000; ++i) ASSERT_EQ(stack.tokens[i], token_of(i + 1));
}

TEST_F(Transmitting, TheDeviceIsNotifiedWhenItWants) {
  for (const std::uint64_t features : {usual, feature::checksum}) {
    TransmitQueue other{traffic};
    const bool index = (features & feature::event_index) != 0;
    ASSERT_TRUE(other.prepare(64, features, 1514).has_value());
    other.ring().connect(&doorbell, 5, index);
    DeviceRing ring(other.ring(), index);
    const Memory memory(frame_of(5, 60));
    const TransmitPiece piece = memory.whole();
    const auto notified = [&] {
      doorbell = 0xFFFF;
      EXPECT_TRUE(other.transmit({&piece, 1}, {}, nullptr).has_value());
      other.flush();
      return doorbell == 5;
    };
    ring.want_notification(true);
    EXPECT_TRUE(notified());
    EXPECT_EQ(notified(), !index) << "the device asked for the next chain only";
    ring.transmit(sent);
    ring.want_notification(false);
    EXPECT_FALSE(notified());
    other.empty();
  }
}

TEST_F(Transmitting, AnImpossibleEntryClosesTheQueueAndItsTokensReturn) {
  const std::function<void(DeviceRing&)> cases[] = {
      [](DeviceRing& ring) { ring.put(64, 0); },
      [](DeviceRing& ring) { ring.put(0xFFFF'FFFF, 0); },
      [](DeviceRing& ring) { ring.put(8, 0); },  // no frame in flight
      [](DeviceRing& ring) {
        ring.put(2, 0);
        ring.put(2, 0);
      },
      [](DeviceRing& ring) {
        for (unsigned i = 0; i < 5; ++i) ring.put(2 * i, 0);
      },
  };
  for (const auto& act : cases) {
    TransmitQueue other{traffic};
    ASSERT_TRUE(other.prepare(64, usual, 1514).has_value());
    other.ring().connect(&doorbell, 5, true);
    DeviceRing ring(other.ring(), true);
    const Memory memory(frame_of(5, 60));
    const TransmitPiece piece = memory.whole();
    for (unsigned i = 0; i < 4; ++i) ASSERT_TRUE(other.transmit({&piece, 1}, {}, token_of(i + 1)).has_value());
    other.flush();
    act(ring);
    static_cast<void>(ring.publish());
    stack.tokens.clear();
    other.reap(stack);
    EXPECT_NE(other.fault(), nullptr);
    EXPECT_EQ(other.transmit({&piece, 1}, {}, nullptr).error(), ErrorCode::full);
    other.empty();
    other.deliver(stack);
    EXPECT_EQ(stack.tokens, (std::vector<void*>{token_of(1), token_of(2), token_of(3), token_of(4)}));
  }
}

}  // namespace
}  // namespace neap::virtio::test
