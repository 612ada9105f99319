// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/receive_queue.hpp"

#include <gtest/gtest.h>

#include "drivers/virtio/test_stack.hpp"

namespace neap::virtio::test {
namespace {

constexpr std::uint64_t usual = feature::merged_buffers | feature::guest_checksum | feature::event_index;

class Receiving : public ::testing::Test {
 protected:
  void prepare(std::uint64_t features = usual, std::uint32_t descriptors = 64) {
    host::prepare_pages();
    ASSERT_TRUE(queue.prepare(descriptors, features).has_value());
    events = (features & feature::event_index) != 0;
    queue.ring().connect(&doorbell, 4, events);
    device = DeviceRing(queue.ring(), events);
    device.want_notification(true);
    queue.refill();
  }
  unsigned receive(unsigned budget = 64) {
    static_cast<void>(device.publish());
    const unsigned taken = queue.receive(stack, budget);
    queue.refill();
    return taken;
  }

  std::uint16_t doorbell = 0xFFFF;
  bool events = false;
  log::Traffic traffic;
  ReceiveQueue queue{traffic};
  TestReceiver stack;
  DeviceRing device;
};

TEST_F(Receiving, AllBuffersArePostedAndTheDeviceIsToldOnce) {
  prepare();
  EXPECT_EQ(device.waiting(), 64U);
  EXPECT_EQ(doorbell, 4);
  EXPECT_EQ(queue.counters().notifications.value(), 1U);
}

// The ring's positions wrap at 2^16, and its slots at the ring's size.
TEST_F(Receiving, FramesArriveUnchangedWhileThePositionsWrap) {
  prepare();
  for (unsigned i = 0; i < 70'000; ++i) {
    const Bytes frame = frame_of(i, 60 + i % 1455);
    ASSERT_TRUE(device.receive(frame));
    ASSERT_EQ(receive(), 1U);
    ASSERT_EQ(stack.frames.back(), frame) << i;
    stack.frames.clear();
  }
  EXPECT_TRUE(device.good);
  EXPECT_EQ(traffic.rx_frames.value(), 70'000U);
}

// 2.7.8: a device may use buffers in any order, unless it offers IN_ORDER.
TEST_F(Receiving, BuffersMayBeUsedInAnyOrder) {
  prepare();
  unsigned number = 0;
  for (unsigned round = 0; round < 3000; ++round) {
    std::vector<std::uint32_t> ids;
    for (unsigned i = 0; i < 1 + round % 7; ++i) ids.push_back(device.take());
    if (round > 100) std::ranges::reverse(ids);  // in order at first
    for (const std::uint32_t id : ids) {
      const Bytes frame = frame_of(number++, 100);
      auto* const buffer = static_cast<std::byte*>(machine::direct_map(device.chain(id).at(0).address));
      const FrameHeader header{.buffers = 1};
      std::memcpy(buffer, &header, sizeof header);
      std::memcpy(buffer + sizeof header, frame.data(), frame.size());
      device.put(id, frame_header_bytes + 100);
    }
    ASSERT_EQ(receive(), ids.size());
    for (unsigned i = 0; i < ids.size(); ++i) ASSERT_EQ(stack.frames[i], frame_of(number - static_cast<unsigned>(ids.size()) + i, 100));
    stack.frames.clear();
  }
  EXPECT_EQ(queue.fault(), nullptr);
  queue.empty();
  EXPECT_EQ(queue.pool().available(), queue.pool().size());
}

TEST_F(Receiving, ALongFrameArrivesInSeveralBuffers) {
  prepare();
  for (const std::size_t bytes : {2036U, 2037U, 4084U, 4085U, 9014U, 65'000U}) {
    const Bytes frame = frame_of(3, bytes);
    ASSERT_TRUE(device.receive(frame));
    const unsigned buffers = 1 + (static_cast<unsigned>(bytes) + 11) / 2048;
    EXPECT_EQ(receive(), buffers);
    ASSERT_EQ(stack.frames.back(), frame);
    EXPECT_EQ(stack.pieces, buffers);
  }
  stack.frames.clear();
  // The budget divides a frame. It arrives with the next event.
  ASSERT_TRUE(device.receive(frame_of(4, 5000)));
  EXPECT_EQ(receive(2), 2U);
  EXPECT_TRUE(stack.frames.empty());
  EXPECT_EQ(receive(2), 1U);
  EXPECT_EQ(stack.frames.back(), frame_of(4, 5000));
  // A buffer that continued a frame begins one later.
  for (unsigned i = 0; i < 1000; ++i) {
    ASSERT_TRUE(device.receive(frame_of(i, 60)));
    ASSERT_EQ(receive(), 1U);
    ASSERT_EQ(stack.frames.back(), frame_of(i, 60));
  }
}

TEST_F(Receiving, ChecksumsThatTheDeviceCheckedAreReported) {
  prepare();
  const Bytes frame = ipv4_frame(60);
  const auto info_with = [&](std::uint8_t flags) {
    EXPECT_TRUE(device.receive(frame, {.flags = flags}));
    EXPECT_EQ(receive(), 1U);
    return stack.last_info;
  };
  EXPECT_FALSE(info_with(0).l4_checksum_good());
  for (const std::uint8_t flags : {header_flag::data_valid, header_flag::needs_checksum}) {
    EXPECT_TRUE(info_with(flags).l4_checksum_good());
    EXPECT_FALSE(info_with(flags).ip_checksum_good()) << "the stack checks the header";
    EXPECT_FALSE(info_with(flags).checksum_bad());
  }
}

TEST_F(Receiving, WithoutTheFeatureNoChecksumCounts) {
  prepare(feature::merged_buffers);
  ASSERT_TRUE(device.receive(ipv4_frame(60), {.flags = header_flag::data_valid}));
  EXPECT_EQ(receive(), 1U);
  EXPECT_FALSE(stack.last_info.l4_checksum_good());
}

TEST_F(Receiving, InterruptsAreWantedForTheNextFrameOnly) {
  for (const std::uint64_t features : {usual, feature::merged_buffers}) {
    ReceiveQueue other{traffic};
    host::prepare_pages();
    ASSERT_TRUE(other.prepare(64, features).has_value());
    const bool index = (features & feature::event_index) != 0;
    other.ring().connect(&doorbell, 0, index);
    DeviceRing ring(other.ring(), index);
    other.refill();
    ASSERT_TRUE(ring.receive(frame_of(1, 60)));
    EXPECT_TRUE(ring.publish());
    ASSERT_TRUE(ring.receive(frame_of(1, 60)));
    EXPECT_EQ(ring.publish(), !index) << "no second interrupt before the first one was handled";
    EXPECT_EQ(other.receive(stack, 64), 2U);
    other.want_interrupts(false);
    ASSERT_TRUE(ring.receive(frame_of(1, 60)));
    EXPECT_FALSE(ring.publish());
    EXPECT_EQ(other.receive(stack, 64), 1U);
    ASSERT_TRUE(ring.receive(frame_of(1, 60)));
    EXPECT_FALSE(ring.publish());
    EXPECT_EQ(other.receive(stack, 64), 1U);
    other.want_interrupts(true);
    ASSERT_TRUE(ring.receive(frame_of(1, 60)));
    EXPECT_TRUE(ring.publish());
    EXPECT_EQ(other.receive(stack, 64), 1U);
    stack.release_all();
    other.empty();
  }
}

TEST_F(Receiving, BuffersThatTheStackKeepsAreReplacedUntilThePoolIsEmpty) {
  prepare();
  stack.keep = true;
  unsigned received = 0;
  while (device.receive(frame_of(received, 60))) {
    ASSERT_EQ(receive(), 1U);
    ++received;
  }
  EXPECT_GE(received, 64 + ReceiveQueue::buffers_beyond_ring - 16);
  EXPECT_NE(queue.counters().pool_empty.value(), 0U);
  stack.release_all();
  queue.refill();
  EXPECT_TRUE(device.receive(frame_of(1, 60)));
}

// A hostile device: each entry closes the queue, and the rest of the ring is not read.
TEST_F(Receiving, AnImpossibleEntryClosesTheQueue) {
  struct Case {
    const char* what;
    std::function<void(DeviceRing&)> act;
  };
  const Case cases[] = {
      {"an index outside of the ring", [](DeviceRing& ring) { ring.put(64, 100); }},
      {"a large index", [](DeviceRing& ring) { ring.put(0xFFFF'FFFF, 100); }},
      {"a descriptor twice",
       [](DeviceRing& ring) {
         ring.put(3, 100);
         ring.put(3, 100);
       }},
      {"too many bytes", [](DeviceRing& ring) { ring.put(0, 2049); }},
      {"far too many bytes", [](DeviceRing& ring) { ring.put(0, 0xFFFF'FFFF); }},
      {"more entries than buffers",
       [](DeviceRing& ring) {
         for (unsigned i = 0; i < 65; ++i) ring.put(i % 64, 100);
       }},
  };
  for (const Case& one : cases) {
    ReceiveQueue other{traffic};
    host::prepare_pages();
    ASSERT_TRUE(other.prepare(64, feature::event_index).has_value());
    other.ring().connect(&doorbell, 0, true);
    DeviceRing ring(other.ring(), true);
    other.refill();
    one.act(ring);
    static_cast<void>(ring.publish());
    static_cast<void>(other.receive(stack, 64));
    EXPECT_NE(other.fault(), nullptr) << one.what;
    EXPECT_FALSE(other.ready()) << one.what;
    EXPECT_EQ(other.receive(stack, 64), 0U) << one.what;
    other.empty();
    EXPECT_EQ(other.pool().available(), other.pool().size()) << one.what;
  }
}

TEST_F(Receiving, AShortFrameIsCountedAndDropped) {
  prepare(feature::event_index);
  for (const std::uint32_t bytes : {0U, 11U, 12U, 25U}) {
    device.put(device.take(), bytes);
    EXPECT_EQ(receive(), 1U);
  }
  EXPECT_TRUE(stack.frames.empty());
  EXPECT_EQ(queue.counters().dropped_short.value(), 4U);
  EXPECT_EQ(queue.fault(), nullptr);
}

}  // namespace
}  // namespace neap::virtio::test
