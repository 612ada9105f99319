// SPDX-License-Identifier: BSL-1.0
// A queue pair with the options for an MTU of 9000. RSC is on, as by default.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "drivers/ixgbe/queue_pair.hpp"
#include "drivers/ixgbe/test_card.hpp"
#include "kernel/interrupts.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::ixgbe {
namespace {

using host::HostMachine;
using test::frame_of;

constexpr std::uint32_t jumbo_bytes = 9014;

struct JumboFrames : testing::Test {
  JumboFrames() {
    machine.on(0, [&] {
      const QueueOptions options{.frame_bytes_max = jumbo_bytes};
      ASSERT_TRUE(pair->prepare(options).has_value());
      pair->program(options);
      pair->receive_queue().refill();
      pair->set_link(true);
      static_cast<void>(allocate_vector(0, [this] { pair->interrupt(); }).value());
      pair->attach(stack);
    });
  }
  ~JumboFrames() override {
    machine.on(0, [&] { pair.reset(); });
  }
  /// Sends the first `bytes` bytes of a frame, in pieces of `piece_bytes`. MUST be called on core 0.
  bool sends(std::uint32_t bytes, std::uint32_t piece_bytes, TransmitOffload offload = {}) {
    std::vector<TransmitPiece> pieces;
    for (std::uint32_t at = 0; at < bytes; at += piece_bytes)
      pieces.push_back({.data = reinterpret_cast<const std::byte*>(long_frame.data()) + at, .bytes = std::min(piece_bytes, bytes - at)});
    return pair->transmit(pieces, offload, nullptr).has_value();
  }

  const test::Bytes long_frame = frame_of(1, 20'000);
  test::TestCard card;
  test::TestReceiver stack;
  HostMachine machine{1};
  std::unique_ptr<QueuePair> pair = std::make_unique<QueuePair>(card.registers(), 0);
};

// 8,948 bytes are a segment with timestamps.
TEST_F(JumboFrames, AreSentInOneOrManyPiecesAndCutFromLongSegments) {
  machine.on(0, [&] {
    EXPECT_TRUE(sends(jumbo_bytes, jumbo_bytes));
    EXPECT_TRUE(sends(jumbo_bytes, 300));
    EXPECT_FALSE(sends(jumbo_bytes + 1, jumbo_bytes + 1));
    EXPECT_FALSE(sends(jumbo_bytes + 1, 300));
    TransmitOffload segments{.l3_bytes = 20, .l4_bytes = 32, .checksums = Checksums::tcp_ipv4, .segment_bytes = 8948};
    EXPECT_TRUE(sends(20'000, 4'000, segments));
    segments.segment_bytes = 8949;
    EXPECT_FALSE(sends(20'000, 4'000, segments));
  });
  machine.on(0, [&] {
    card.transmit();
    ASSERT_EQ(card.sent.size(), 3U);
    for (const std::size_t i : {0U, 1U}) EXPECT_TRUE(std::ranges::equal(card.sent[i].bytes, std::span(long_frame).first(jumbo_bytes))) << i;
    EXPECT_EQ(card.sent[2].context.mss, 8948U);
  });
}

TEST_F(JumboFrames, ArriveInSeveralBuffers) {
  for (const std::uint32_t bytes : {jumbo_bytes, 8193U, 8192U, 2049U, 2048U, 60U}) {
    machine.on(0, [&] {
      ASSERT_TRUE(card.receive(frame_of(3, bytes)));
      pair->interrupt();
    });
    ASSERT_TRUE(HostMachine::wait_until([&] { return machine.value_on(0, [&] { return !stack.frames.empty(); }); })) << bytes;
    machine.on(0, [&] {
      EXPECT_EQ(stack.frames.front(), frame_of(3, bytes));
      EXPECT_EQ(stack.pieces, (bytes + 2047) / 2048) << bytes;
      stack.frames.clear();
    });
  }
}

}  // namespace
}  // namespace neap::ixgbe
