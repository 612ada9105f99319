// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/receive_queue.hpp"

#include <gtest/gtest.h>

#include "drivers/ixgbe/test_card.hpp"

namespace neap::ixgbe {
namespace {

using test::Bytes;
using test::frame_of;
constexpr std::uint32_t ring = 64, capacity = ring - ReceiveQueue::refill_batch_descriptors;
using Part = descriptor::ReceiveWriteBackCoalesced;
using Whole = descriptor::ReceiveWriteBack;

/// Returns the write-back of a frame in one descriptor, or of a frame's last part.
Whole whole(std::uint32_t bytes) { return {.descriptor_done = true, .end_of_packet = true, .length = bytes}; }
/// Returns the write-back of a part that continues in descriptor `next`.
Part part(std::uint32_t next, std::uint32_t bytes) {
  return {.rsc_count = 1, .descriptor_done = true, .next_descriptor = next, .length = bytes};
}

struct ReceiveQueueTest : testing::Test {
  void make(std::uint32_t buffers = 4 * ring, std::uint32_t frame_bytes_max = 1514) {
    make({.receive_descriptors = ring, .receive_buffers = buffers, .frame_bytes_max = frame_bytes_max, .coalescing = 0});
  }
  void make(const QueueOptions& options) {
    ASSERT_TRUE(queue.prepare(options).has_value());
    queue.program(options);
    queue.refill();
  }
  void receive(std::uint32_t frames) {
    for (std::uint32_t i = 0; i < frames; ++i) ASSERT_TRUE(card.receive(frame_of(i, 100)));
  }
  void expect_only(const Bytes& frame) {
    ASSERT_EQ(stack.frames.size(), 1U);
    EXPECT_EQ(stack.frames.front(), frame);
  }
  /// Checks that no buffer was lost, whatever the test did.
  void TearDown() override {
    stack.release_all();
    EXPECT_EQ(queue.pool().available() + queue.posted(), queue.pool().size());
  }
  test::TestCard card;
  log::Traffic traffic;
  ReceiveQueue queue{card.registers(), 0, traffic};
  test::TestReceiver stack;
};

TEST_F(ReceiveQueueTest, RingWrapsDeliverEveryByteInOrder) {
  make();
  std::uint32_t sent = 0, received = 0;
  for (std::uint32_t round = 0; round < 200; ++round) {
    for (std::uint32_t i = 0; i < 1 + round % capacity; ++i) {
      if (card.receive(frame_of(sent, 60 + sent % 1455))) ++sent;
    }
    while (queue.receive(stack, 64) != 0) queue.refill();
    for (; !stack.frames.empty(); ++received) {
      ASSERT_EQ(stack.frames.front(), frame_of(received, 60 + received % 1455));
      stack.frames.pop_front();
    }
    const std::uint32_t tail = card.registers().read(reg::RDT(0)).tail;
    ASSERT_EQ(tail % ReceiveQueue::refill_batch_descriptors, 0U);
    ASSERT_LE(queue.posted(), capacity) << "tail must never meet head";
  }
  EXPECT_EQ(received, sent);
  EXPECT_GT(sent, 20 * ring);
  EXPECT_EQ(traffic.rx_frames.value(), sent);
}

TEST_F(ReceiveQueueTest, BudgetIsKeptAndTheRestFollows) {
  make();
  receive(40);
  EXPECT_EQ(queue.receive(stack, 16), 16U);
  EXPECT_TRUE(queue.ready());
  EXPECT_EQ(queue.receive(stack, 64), 24U);
  EXPECT_FALSE(queue.ready());
  EXPECT_EQ(stack.frames.size(), 40U);
}

// A call for each frame costs as much as all other work on the frame. Neither a dropped frame nor one with several descriptors, whose first
// pieces are not frames, splits the list.
TEST_F(ReceiveQueueTest, FramesOfAnEventArePassedUpInOneCall) {
  make(4 * ring, 9000);
  receive(20);
  EXPECT_EQ(queue.receive(stack, 64), 20U);
  EXPECT_EQ(stack.calls, 1U);
  queue.refill();

  for (std::uint32_t i = 20; i < 30; ++i) ASSERT_TRUE(card.receive(frame_of(i, i == 27 ? 5000 : 100), {.receive_error = i == 23}));
  EXPECT_EQ(queue.receive(stack, 64), 12U);
  EXPECT_EQ(stack.calls, 2U);
  ASSERT_EQ(stack.frames.size(), 29U);
  for (std::uint32_t i = 0; i < 30; ++i) {
    if (i == 23) continue;
    EXPECT_EQ(stack.frames.front(), frame_of(i, i == 27 ? 5000 : 100)) << i;
    stack.frames.pop_front();
  }
  EXPECT_EQ(queue.receive(stack, 64), 0U);
  ASSERT_TRUE(card.receive(frame_of(30, 100), {.receive_error = true}));
  EXPECT_EQ(queue.receive(stack, 64), 1U);
  EXPECT_EQ(stack.calls, 2U) << "no call without a frame";
}

// 7.4.5: the card's filter passes frames without a tag, so the queue drops them.
TEST_F(ReceiveQueueTest, FramesWithoutTheVlansTagAreDroppedAndCounted) {
  make({.receive_descriptors = ring, .receive_buffers = 4 * ring, .vlan = 7});
  ASSERT_TRUE(card.receive(frame_of(1, 100)));
  ASSERT_TRUE(card.receive(frame_of(2, 100), {.vlan_packet = true, .vlan = 5 << 13 | 7}));  // tag 7, priority 5
  ASSERT_TRUE(card.receive(frame_of(3, 100), {.vlan_packet = true, .vlan = 8}));
  EXPECT_EQ(queue.receive(stack, 64), 3U);
  expect_only(frame_of(2, 100));
  EXPECT_EQ(queue.counters().dropped_untagged.value(), 2U);
}

TEST_F(ReceiveQueueTest, RefillWritesTheTailOnceForManyFrames) {
  make();
  const std::uint64_t before = queue.counters().tail_writes.value();
  receive(capacity);
  EXPECT_EQ(queue.receive(stack, 64), capacity);
  queue.refill();
  queue.refill();
  EXPECT_EQ(queue.counters().tail_writes.value(), before + 1);
  EXPECT_EQ(queue.posted(), capacity);
}

// While fewer descriptors than a batch are free, the tail is not written.
TEST_F(ReceiveQueueTest, RefillWaitsForAWholeBatch) {
  make();
  receive(15);
  queue.receive(stack, 64);
  const std::uint64_t before = queue.counters().tail_writes.value();
  queue.refill();
  EXPECT_EQ(queue.counters().tail_writes.value(), before);
  EXPECT_EQ(queue.posted(), capacity - 15);
}

// The descriptors after the posted ones are from the previous round and still have DD set.
TEST_F(ReceiveQueueTest, OldDescriptorsAreNotReadAgain) {
  make(ring);
  stack.keep = true;
  std::uint32_t sent = 0;
  for (int round = 0; round < 8; ++round) {
    while (card.receive(frame_of(sent, 100))) ++sent;
    while (queue.receive(stack, 64) != 0) {
    }
    queue.refill();
  }
  ASSERT_EQ(sent, ring) << "the stack has every buffer now";
  EXPECT_EQ(queue.posted(), 0U);
  EXPECT_FALSE(queue.ready());
  EXPECT_EQ(queue.receive(stack, 64), 0U);
  EXPECT_EQ(stack.frames.size(), sent);
}

TEST_F(ReceiveQueueTest, AnEmptyPoolIsCountedAndReleasesFillTheRingAgain) {
  make(ring);
  unsigned wanted = 0;
  queue.on_buffers_wanted([](void* count) noexcept { ++*static_cast<unsigned*>(count); }, &wanted);
  stack.keep = true;
  std::uint32_t sent = 0;
  for (int round = 0; round < 3; ++round) {
    while (card.receive(frame_of(sent, 100))) ++sent;
    queue.receive(stack, 64);
    queue.refill();
  }
  ASSERT_EQ(queue.posted(), 0U);
  EXPECT_GE(queue.counters().pool_empty.value(), 1U);
  EXPECT_FALSE(card.receive(frame_of(sent, 100))) << "without a descriptor the card drops";
  EXPECT_EQ(wanted, 0U);
  for (std::uint32_t i = 0; i + 1 < ReceiveQueue::refill_batch_descriptors; ++i) stack.release_one();
  EXPECT_EQ(wanted, 0U) << "less than a batch";
  stack.release_one();
  EXPECT_EQ(wanted, 1U);
  stack.release_one();
  EXPECT_EQ(wanted, 1U) << "once, until the ring was filled";
  queue.refill();
  EXPECT_EQ(queue.posted(), ReceiveQueue::refill_batch_descriptors);
  ASSERT_TRUE(card.receive(frame_of(4711, 300)));
  EXPECT_EQ(queue.receive(stack, 64), 1U);
  EXPECT_EQ(stack.frames.back(), frame_of(4711, 300));
}

// A stack may release its buffers after it was detached, while the pool waits for a batch.
TEST_F(ReceiveQueueTest, ReleasesAfterTheEndOfTheCallbackCallNothing) {
  make(ring);
  unsigned wanted = 0;
  queue.on_buffers_wanted([](void* count) noexcept { ++*static_cast<unsigned*>(count); }, &wanted);
  stack.keep = true;
  for (std::uint32_t round = 0; round < 3; ++round) {
    while (card.receive(frame_of(round, 100))) {
    }
    queue.receive(stack, 64);
    queue.refill();
  }
  ASSERT_GE(queue.counters().pool_empty.value(), 1U);
  queue.on_buffers_wanted(nullptr, nullptr);
  for (std::uint32_t i = 0; i < 2 * ReceiveQueue::refill_batch_descriptors; ++i) stack.release_one();
  EXPECT_EQ(wanted, 0U);
}

TEST_F(ReceiveQueueTest, AFrameInSeveralDescriptorsIsOneChainEvenAcrossEvents) {
  make(4 * ring, 9000);
  const Bytes large = frame_of(1, 2 * ReceivePool::buffer_bytes + 100);
  const Bytes exact = frame_of(2, 2 * ReceivePool::buffer_bytes);
  ASSERT_TRUE(card.receive(large));
  ASSERT_TRUE(card.receive(exact));
  ASSERT_TRUE(card.receive(frame_of(3, 64)));
  EXPECT_EQ(queue.receive(stack, 2), 2U);
  EXPECT_TRUE(stack.frames.empty()) << "the frame is incomplete";
  EXPECT_EQ(queue.receive(stack, 2), 2U);
  ASSERT_EQ(stack.frames.size(), 1U);
  EXPECT_EQ(stack.pieces, 3U);
  EXPECT_EQ(queue.receive(stack, 64), 2U);
  ASSERT_EQ(stack.frames.size(), 3U);
  EXPECT_EQ(stack.frames[0], large);
  EXPECT_EQ(stack.frames[1], exact);
  EXPECT_EQ(stack.frames[2], frame_of(3, 64));
}

TEST_F(ReceiveQueueTest, OnlyAFrameLongerThanAllowedIsDropped) {
  make(4 * ring, 1514);
  ASSERT_TRUE(card.receive(frame_of(1, 5000)));
  ASSERT_TRUE(card.receive(frame_of(2, 64)));
  queue.receive(stack, 64);
  expect_only(frame_of(2, 64));
  EXPECT_EQ(queue.counters().dropped_overlong.value(), 1U);
}

TEST_F(ReceiveQueueTest, FramesWithErrorsAreDroppedAndCounted) {
  make(4 * ring, 9000);
  ASSERT_TRUE(card.receive(frame_of(1, 100), {.receive_error = true}));
  ASSERT_TRUE(card.receive(frame_of(2, 5000), {.receive_error = true}));
  ASSERT_TRUE(card.receive(frame_of(3, 100)));
  queue.receive(stack, 64);
  expect_only(frame_of(3, 100));
  EXPECT_EQ(queue.counters().dropped_errors.value(), 2U);
}

TEST_F(ReceiveQueueTest, ImpossibleLengthsFromABrokenCardAreDropped) {
  make(4 * ring, 9000);
  card.receive_raw(whole(0));
  card.receive_raw(whole(ReceivePool::buffer_bytes + 1));
  card.receive_raw({.descriptor_done = true, .end_of_packet = false, .length = 65535});
  card.receive_raw(whole(10));  // the rest of the third frame
  ASSERT_TRUE(card.receive(frame_of(3, 100)));
  EXPECT_EQ(queue.receive(stack, 64), 5U);
  expect_only(frame_of(3, 100));
  EXPECT_EQ(queue.counters().dropped_errors.value(), 3U);
}

TEST_F(ReceiveQueueTest, ChecksumAndHashAreHandedUp) {
  make();
  const auto info_for = [&](descriptor::ReceiveWriteBack written) {
    EXPECT_TRUE(card.receive(frame_of(1, 100), written));
    EXPECT_EQ(queue.receive(stack, 64), 1U);
    queue.refill();
    return stack.last_info;
  };
  ReceiveInfo info = info_for({.rss_type = 1,
                               .packet_ipv4 = true,
                               .packet_tcp = true,
                               .rss_hash = 0xdeadbeef,
                               .l4_checksum_checked = true,
                               .ip_checksum_checked = true});
  EXPECT_TRUE(info.ip_checksum_good() && info.l4_checksum_good() && !info.checksum_bad());
  EXPECT_EQ(info.rss_type(), 1U);
  EXPECT_EQ(info.rss_hash(), 0xdeadbeefU);
  EXPECT_EQ(info.vlan_tag(), 0U);

  info = info_for({.packet_tcp = true, .l4_checksum_checked = true, .ip_checksum_checked = true, .l4_error = true, .ip_error = true});
  EXPECT_TRUE(info.checksum_bad()) << "frames with bad checksums are passed up and marked, and the stack counts them";
  EXPECT_FALSE(info.ip_checksum_good() || info.l4_checksum_good());
  EXPECT_EQ(info.rss_type(), 0U);

  info = info_for({.packet_tcp = true, .l4_checksum_checked = true, .ip_checksum_checked = true, .l4_error = true});
  EXPECT_TRUE(info.checksum_bad() && info.ip_checksum_good() && !info.l4_checksum_good()) << "each layer separately";

  info = info_for({.ip_checksum_checked = false, .l4_error = true, .ip_error = true});
  EXPECT_FALSE(info.ip_checksum_good() || info.l4_checksum_good() || info.checksum_bad())
      << "without the checked bit the error bits are invalid";

  info = info_for({.packet_udp = true, .l4_checksum_checked = true, .l4_error = true});
  EXPECT_FALSE(info.l4_checksum_good() || info.checksum_bad()) << "the card misjudges UDP without a checksum";

  const auto ipv6 = [&](bool error, bool vlan) {
    return info_for({.rss_type = 3,
                     .packet_ipv6 = true,
                     .packet_tcp = true,
                     .rss_hash = 0x40207d3d,
                     .vlan_packet = vlan,
                     .l4_checksum_checked = true,
                     .l4_error = error,
                     .vlan = vlan ? 5U : 0U});
  };
  for (const bool vlan : {false, true}) {  // both ways through the queue
    info = ipv6(false, vlan);
    EXPECT_TRUE(info.ipv6_checksum_good() && !info.ip_checksum_good() && !info.checksum_bad());
    EXPECT_FALSE(info.checksums_good()) << "only a frame of IPv4 has two";
    EXPECT_EQ(info.rss_type(), 3U);
    EXPECT_EQ(info.rss_hash(), 0x40207d3dU);
    EXPECT_FALSE(ipv6(true, vlan).ipv6_checksum_good() || !info.l4_checksum_good());
    EXPECT_TRUE(ipv6(true, vlan).checksum_bad());
  }

  info = info_for({.vlan_packet = true, .vlan = 123});
  EXPECT_EQ(info.vlan_tag(), 123U);
}

// 7.1.6.2: each part of a merged frame names the next part. Other, whole frames are between the parts in the ring.
TEST_F(ReceiveQueueTest, MergedSegmentsAreFollowedFromDescriptorToDescriptor) {
  make({.receive_descriptors = ring, .receive_buffers = 4 * ring, .coalescing = 1});
  EXPECT_TRUE(card.registers().read(reg::RSCCTL(0)).enable);
  card.receive_raw(Part{.rsc_count = 3, .descriptor_done = true, .next_descriptor = 2, .length = 2000});
  card.receive_raw(whole(60));
  card.receive_raw(part(4, 2001));
  card.receive_raw(whole(61));
  card.receive_raw(Part{.rsc_count = 2, .descriptor_done = true, .end_of_packet = true, .length = 100});
  EXPECT_EQ(queue.receive(stack, 64), 5U);
  ASSERT_EQ(stack.frames.size(), 3U);
  EXPECT_EQ(stack.frames[0].size(), 60U);
  EXPECT_EQ(stack.frames[1].size(), 61U);
  EXPECT_EQ(stack.frames[2].size(), 2000U + 2001 + 100);
  EXPECT_EQ(traffic.rx_frames.value(), 5U) << "of the joined ones two start in the first descriptor and one in the last";
  // A joined frame in one descriptor.
  card.receive_raw(Part{.rsc_count = 4, .descriptor_done = true, .end_of_packet = true, .length = 300});
  EXPECT_EQ(queue.receive(stack, 64), 1U);
  EXPECT_EQ(stack.frames.size(), 4U);
  EXPECT_EQ(traffic.rx_frames.value(), 8U);
  // No posted descriptor has this number: the frame is dropped and its buffers are returned.
  card.receive_raw(part(3, 2000));
  EXPECT_EQ(queue.receive(stack, 64), 1U);
  EXPECT_EQ(queue.counters().dropped_errors.value(), 1U);
}

// The parts of most merged frames follow each other. Taken at once and over several events, with an error and without, they count alike.
TEST_F(ReceiveQueueTest, PartsThatFollowEachOtherCountAlikeInOneEventAndInMany) {
  make({.receive_descriptors = ring, .receive_buffers = 4 * ring, .coalescing = 1});
  std::uint32_t at = 0;
  const auto next = [&] { return at = (at + 1) % ring; };
  for (std::uint32_t round = 0; round < 3 * ring; ++round) {
    stack.release_all();
    stack.frames.clear();
    const std::uint64_t frames = traffic.rx_frames.value(), bytes = traffic.rx_bytes.value(),
                        errors = queue.counters().dropped_errors.value();
    const bool error = round % 3 == 2;
    card.receive_raw(Part{.rsc_count = 2, .descriptor_done = true, .next_descriptor = next(), .length = 2048});
    card.receive_raw(part(next(), 2047));
    if (error) {
      card.receive_raw(Whole{.descriptor_done = true, .end_of_packet = true, .receive_error = true, .length = 10 + round});
    } else {
      card.receive_raw(Part{.rsc_count = 2, .descriptor_done = true, .end_of_packet = true, .length = 10 + round});
    }
    next();
    card.receive_raw(whole(60));
    next();
    for (unsigned left = 4, budget = 1 + round % 4; left != 0;) {
      const unsigned taken = queue.receive(stack, budget);
      ASSERT_EQ(taken, std::min(left, budget));
      left -= taken;
    }
    queue.refill();
    ASSERT_EQ(stack.frames.size(), error ? 1U : 2U) << round;
    if (!error) {
      EXPECT_EQ(stack.frames[0].size(), 2048U + 2047 + 10 + round);
    }
    EXPECT_EQ(stack.frames.back().size(), 60U);
    EXPECT_EQ(traffic.rx_frames.value() - frames, 3U);
    EXPECT_EQ(traffic.rx_bytes.value() - bytes, 2048U + 2047 + 10 + round + 60);
    EXPECT_EQ(queue.counters().dropped_errors.value() - errors, error ? 1U : 0U);
  }
}

// A merged frame must continue in a descriptor that the card owns. Otherwise it could be merged with a later frame.
TEST_F(ReceiveQueueTest, AMergedFrameThatContinuesOutsideTheCardsDescriptorsIsDropped) {
  constexpr std::uint32_t few = 2 * ReceiveQueue::refill_batch_descriptors;
  make({.receive_descriptors = ring, .receive_buffers = ring, .coalescing = 1});
  ASSERT_EQ(queue.posted(), capacity);
  // The stack releases no frame, so `refill` finds no buffer. From here on the card owns `few` descriptors.
  stack.keep = true;
  std::uint32_t at = 0;
  for (; queue.posted() != few; ++at) {
    card.receive_raw(whole(60));
    ASSERT_EQ(queue.receive(stack, 1), 1U);
  }
  std::uint64_t dropped = 0;
  std::uint32_t left = few;
  // Wrong numbers: the descriptor's own, the one before it, the first that is not posted, the ring's last, and numbers beyond the ring.
  for (const std::uint32_t next : {at, at + 1 - 2, at + few, ring - 1, ring, ring + at + 10, 0xFFFFU}) {
    card.receive_raw(part(next, 2000));
    ASSERT_EQ(queue.receive(stack, 1), 1U);
    EXPECT_EQ(queue.counters().dropped_errors.value(), ++dropped) << next;
    ++at;
    --left;
  }
  // The number of the last descriptor that the card owns is valid.
  card.receive_raw(part(at + left - 1, 2000));
  for (std::uint32_t i = 2; i < left; ++i) card.receive_raw(whole(60));
  card.receive_raw(whole(100));
  ASSERT_EQ(queue.receive(stack, ring), left);
  EXPECT_EQ(stack.frames.back().size(), 2100U);
  EXPECT_EQ(queue.counters().dropped_errors.value(), dropped);
}

TEST_F(ReceiveQueueTest, NoWriteOfTheCardOvertakesAnother) {
  card.registers().write(reg::DCA_RXCTRL(0), reg::DcaRxctrl::from_raw(0xBA00));  // the reset value, and bit 11
  make();
  EXPECT_EQ(card.registers().read(reg::DCA_RXCTRL(0)).raw(), 0x0200U);
}

// A frame that never ends holds at most the buffers of the largest frame.
TEST_F(ReceiveQueueTest, AFrameWithoutAnEndHoldsNoMoreBuffersThanTheLargestFrame) {
  make(4 * ring, 9000);
  for (std::uint32_t i = 0; i < 8 * ring; ++i) {
    card.receive_raw(descriptor::ReceiveWriteBack{.descriptor_done = true, .length = 2048});
    ASSERT_EQ(queue.receive(stack, ring), 1U);
    queue.refill();
    ASSERT_GE(queue.pool().available() + queue.posted() + 5, queue.pool().size()) << i;
  }
  EXPECT_TRUE(stack.frames.empty());
  EXPECT_EQ(queue.counters().dropped_overlong.value(), 1U);
  card.receive_raw(whole(100));
  card.receive_raw(whole(101));
  ASSERT_EQ(queue.receive(stack, ring), 2U);
  ASSERT_EQ(stack.frames.size(), 1U);
  EXPECT_EQ(stack.frames[0].size(), 101U) << "the next frame is whole";
}

// The fast path for whole frames and the general path alternate, across the ring's end and in any order.
TEST_F(ReceiveQueueTest, MergedMarkedAndFaultyFramesAmongWholeOnesAreHandledByKind) {
  make({.receive_descriptors = ring, .receive_buffers = 4 * ring, .coalescing = 1});
  std::uint32_t at = 0;
  for (std::uint32_t round = 0; round < 40; ++round) {
    stack.frames.clear();
    card.receive_raw(Whole{.descriptor_done = true, .end_of_packet = true, .ip_checksum_checked = true, .length = 60});
    card.receive_raw(part((at + 6) % ring, 2048));
    card.receive_raw(Whole{.descriptor_done = true, .end_of_packet = true, .receive_error = true, .length = 61});
    card.receive_raw(whole(62));
    card.receive_raw(Whole{.descriptor_done = true, .end_of_packet = true, .vlan_packet = true, .length = 63, .vlan = 77});
    card.receive_raw(whole(64));
    card.receive_raw(whole(65));
    ASSERT_EQ(queue.receive(stack, 5), 5U);
    EXPECT_EQ(stack.last_info.vlan_tag(), 77U);
    ASSERT_EQ(queue.receive(stack, 64), 2U);
    EXPECT_EQ(stack.last_info.vlan_tag(), 0U);
    queue.refill();
    std::vector<std::size_t> lengths;
    for (const Bytes& frame : stack.frames) lengths.push_back(frame.size());
    ASSERT_EQ(lengths, (std::vector<std::size_t>{60, 62, 63, 64, 2048 + 65})) << round;
    at = (at + 7) % ring;
  }
  EXPECT_EQ(queue.counters().dropped_errors.value(), 40U);
  EXPECT_EQ(traffic.rx_frames.value(), 40U * 6);
  EXPECT_EQ(traffic.rx_descriptors.value(), 40U * 7);
}

// A stopped queue returns all posted buffers, including those of an incomplete frame.
TEST_F(ReceiveQueueTest, AStoppedQueueReturnsEverythingAndRestartsWithAnotherRing) {
  make(4 * ring, 9000);
  ASSERT_TRUE(card.receive(frame_of(1, 100)));
  card.receive_raw(descriptor::ReceiveWriteBack{.descriptor_done = true, .length = 2048});
  EXPECT_EQ(queue.receive(stack, 64), 2U);
  queue.empty();
  EXPECT_EQ(queue.posted(), 0U);
  stack.release_all();
  EXPECT_EQ(queue.pool().available(), queue.pool().size());
  make({.receive_descriptors = 8 * ring, .receive_buffers = 64, .frame_bytes_max = 9000});
  EXPECT_EQ(queue.posted(), 8 * ring - ReceiveQueue::refill_batch_descriptors);
  EXPECT_EQ(queue.pool().size(), 8 * ring) << "more descriptors bring more buffers";
}

TEST_F(ReceiveQueueTest, RefusesRingSizesThatTheCardDoesNotSupport) {
  for (const std::uint32_t size : {0U, 32U, 100U, 8192U}) {
    ReceiveQueue other{card.registers(), 0, traffic};
    const auto refused = other.prepare({.receive_descriptors = size, .receive_buffers = 16384});
    ASSERT_FALSE(refused.has_value()) << size;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  }
  ReceiveQueue other{card.registers(), 0, traffic};
  ASSERT_TRUE(other.prepare({.receive_descriptors = 128, .receive_buffers = 63}).has_value());
  EXPECT_EQ(other.pool().size(), 128U) << "a ring brings the buffers that it needs";
  ASSERT_TRUE(other.prepare({.receive_descriptors = 256}).has_value());
  EXPECT_EQ(other.pool().size(), 256U + QueueOptions::buffers_beyond_ring) << "by default the stack has buffers beyond the ring's";
}

}  // namespace
}  // namespace neap::ixgbe
