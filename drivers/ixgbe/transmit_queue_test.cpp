// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/transmit_queue.hpp"

#include <gtest/gtest.h>

#include <random>

#include "drivers/ixgbe/test_card.hpp"

namespace neap::ixgbe {
namespace {

using namespace test;

constexpr std::uint32_t ring = 64;

struct TransmitQueueTest : testing::Test {
  void make(const QueueOptions& options = {.transmit_descriptors = ring}) {
    ASSERT_TRUE(queue.prepare(options).has_value());
    queue.program(options);
  }
  /// Returns a frame of `bytes` in pieces of `piece_bytes`, which are kept until the test ends.
  TestFrame frame(const Bytes& bytes, std::size_t piece_bytes = 1 << 20, void* token = nullptr) {
    auto& kept = contents.emplace_back(bytes);
    auto& cut = pieces.emplace_back();
    for (std::size_t offset = 0; offset < kept.size(); offset += piece_bytes) {
      const std::size_t length = std::min(piece_bytes, kept.size() - offset);
      cut.push_back({.data = reinterpret_cast<const std::byte*>(kept.data()) + offset, .bytes = static_cast<std::uint32_t>(length)});
    }
    return {.pieces = cut, .token = token};
  }
  /// Calls the queue in the same sequence as a queue pair does.
  TransmitResult send(const TestFrame& frame) {
    const auto alike = [&] { return queue.transmit_alike(frame.pieces, frame.offload, frame.token); };
    if (alike()) return {};
    if (frame.pieces.size() == 1) {
      queue.reopen_run();
      if (alike()) return {};
      queue.begin_run();
      if (alike()) return {};
    }
    return queue.transmit(frame.pieces, frame.offload, frame.token);
  }
  void collect() {
    queue.reclaim();
    queue.deliver(stack);
  }
  void finish() {
    queue.flush();
    card.transmit();
    collect();
  }
  /// Writes the card's head back to the word that the queue named.
  void write_head(std::uint32_t head) {
    const std::uint64_t low = card.registers().read(reg::TDWBAL(0)).address_low_4,
                        high = card.registers().read(reg::TDWBAH(0)).address_high;
    std::atomic_ref(*static_cast<std::uint32_t*>(machine::direct_map(low << 2 | high << 32))).store(head);
  }

  test::TestCard card;
  log::Traffic traffic;
  TransmitQueue queue{card.registers(), 0, traffic};
  test::TestReceiver stack;
  std::deque<Bytes> contents;
  std::deque<std::vector<TransmitPiece>> pieces;
};

// Users compare the log's counts with the card's counters, which count each TSO segment as a frame with its own headers.
TEST_F(TransmitQueueTest, CountsWhatTheCardWillCount) {
  make();
  const auto counts_are = [&](std::uint64_t frames, std::uint64_t bytes, std::uint64_t descriptors) {
    finish();
    EXPECT_EQ(traffic.tx_frames.value(), frames);
    EXPECT_EQ(traffic.tx_bytes.value(), bytes);
    EXPECT_EQ(traffic.tx_descriptors.value(), descriptors);
  };
  ASSERT_TRUE(send(frame(frame_of(1, 42))).has_value());
  counts_are(1, 42, 1);
  ASSERT_TRUE(send(frame(frame_of(2, 1000), 300)).has_value());
  counts_are(2, 1042, 5);
  // After headers of 54 bytes, 2,400 bytes become two segments of 1,000 bytes and one of 400; a context is added.
  ASSERT_TRUE(send(with_tso(frame(frame_of(3, 2454)), 1000)).has_value());
  counts_are(5, 1042 + 2 * 1054 + 454, 7);
  ASSERT_TRUE(send(with_tso(frame(frame_of(4, 1056)), 1000)).has_value());
  counts_are(7, 3604 + 1054 + 56, 8);
  ASSERT_TRUE(send(with_tso(frame(frame_of(5, 1054)), 1000)).has_value());
  counts_are(8, 4714 + 1054, 9);
  ASSERT_FALSE(send(frame(frame_of(6, 3000))).has_value());
  counts_are(8, 5768, 9);
}

TEST_F(TransmitQueueTest, FramesOfAnEventAreOneTailWriteAndOneReport) {
  make();
  for (std::uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(send(frame(frame_of(i, 100))).has_value());
  EXPECT_EQ(card.transmit_waiting(), 0U) << "the tail is not written before the event's end";
  queue.flush();
  queue.flush();
  EXPECT_EQ(queue.counters().tail_writes.value(), 1U);
  card.transmit();
  ASSERT_EQ(card.sent.size(), 10U);
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(card.sent[i].bytes, frame_of(i, 100));
  EXPECT_EQ(card.reports, 1U);
  EXPECT_EQ(card.contexts_seen, 0U) << "plain frames need no context";
  EXPECT_TRUE(queue.ready());
  queue.reclaim();
  EXPECT_EQ(queue.pending(), 0U);
}

TEST_F(TransmitQueueTest, TokensAreReturnedInOrderAndExactlyOnceAtAnyPaceOfTheCard) {
  make();
  std::mt19937 random(1);
  std::uintptr_t queued = 0;
  std::vector<Bytes> expected;
  for (int step = 0; step < 5000; ++step) {
    for (unsigned frames = random() % 8; frames != 0; --frames) {
      const Bytes bytes = frame_of(static_cast<std::uint32_t>(queued + 1), 60 + random() % 1400);
      TestFrame next = frame(bytes, 1 + bytes.size() / (1 + random() % 5), token_of(queued + 1));
      if (random() % 3 == 0) next = with_checksums(next);
      const auto done = send(next);
      if (!done) {
        ASSERT_EQ(done.error(), ErrorCode::full);
        break;
      }
      expected.push_back(bytes);
      ++queued;
    }
    if (random() % 4 != 0) queue.flush();
    card.transmit(random() % 24);
    if (random() % 2 == 0) queue.reclaim();
    if (random() % 2 == 0) queue.deliver(stack);
    if (random() % 4 == 0) queue.reap(stack);
    ASSERT_LE(stack.tokens.size(), card.sent.size()) << "a token before its frame was read";
  }
  finish();
  finish();
  ASSERT_GT(queued, 5000U);
  ASSERT_EQ(stack.tokens.size(), queued);
  for (std::uintptr_t i = 0; i < queued; ++i) ASSERT_EQ(stack.tokens[i], token_of(i + 1));
  ASSERT_EQ(card.sent.size(), queued);
  for (std::uintptr_t i = 0; i < queued; ++i) ASSERT_EQ(card.sent[i].bytes, expected[i]);
  EXPECT_GT(queue.counters().refused_full.value(), 0U);
  EXPECT_EQ(queue.pending(), 0U);
}

TEST_F(TransmitQueueTest, AFullRingRefusesCountsAndReportsRoom) {
  make();
  std::uint32_t queued = 0;
  while (send(frame(frame_of(queued, 100))).has_value()) ++queued;
  EXPECT_EQ(queued, ring - 1) << "a full ring looks like an empty one, so one stays free";
  EXPECT_EQ(queue.counters().refused_full.value(), 1U);
  queue.flush();
  card.transmit(32);  // up to the first descriptor with RS
  collect();
  EXPECT_EQ(stack.room_again, 0U) << "only once there is room for the largest frame";
  EXPECT_TRUE(send(frame(frame_of(99, 100))).has_value()) << "a small frame fits already";
  finish();
  EXPECT_EQ(stack.room_again, 1U);
  finish();
  EXPECT_EQ(stack.room_again, 1U) << "once";
  EXPECT_TRUE(stack.tokens.empty()) << "frames without a token return none";
  EXPECT_EQ(card.sent.size(), queued + 1);
}

// One frame's offload must not be applied to the next frame.
TEST_F(TransmitQueueTest, FramesOfEveryKindInAnyOrderGetTheirOwnOffload) {
  make();
  std::mt19937 random(7);
  struct Asked {
    Bytes bytes;
    TransmitOffload offload;
  };
  std::vector<Asked> asked;
  std::uint64_t refused = 0;
  for (int event = 0; event < 400; ++event) {
    for (unsigned i = random() % 24; i != 0; --i) {
      const std::size_t bytes = 54 + random() % 1461;
      TestFrame next = frame(frame_of(static_cast<std::uint32_t>(asked.size()), bytes), random() % 5 == 0 ? 400 : 1 << 20);
      const unsigned kind = random() % 8;
      if (kind == 1) next = with_checksums(next, 32);
      if (kind == 2) next = with_tso(next, static_cast<std::uint16_t>(200 + 200 * (random() % 2)));
      if (kind == 3) next.offload = {.l3_bytes = 20, .checksums = Checksums::ipv4};
      if (kind == 4) next.offload = {.l3_bytes = 40, .l4_bytes = 8, .checksums = Checksums::udp_ipv6};
      if (kind >= 5) next = with_checksums(next);
      const std::uint32_t least = next.offload.checksums == Checksums::none ? 1 : next.offload.headers_bytes();
      const bool valid = bytes >= least + (next.offload.segment_bytes != 0 ? 1 : 0);
      next.token = token_of(asked.size() + 1);
      if (const auto done = send(next); done.has_value()) {
        ASSERT_TRUE(valid);
        asked.push_back({contents.back(), next.offload});
      } else if (done.error() == ErrorCode::invalid) {
        ASSERT_FALSE(valid);
        ++refused;
      }
    }
    finish();
  }
  EXPECT_GT(refused, 0U);
  ASSERT_GT(asked.size(), 2000U);
  ASSERT_EQ(card.sent.size(), asked.size());
  ASSERT_EQ(stack.tokens.size(), asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto& [bytes, offload] = asked[i];
    const test::SentFrame& sent = card.sent[i];
    ASSERT_EQ(stack.tokens[i], token_of(i + 1));
    ASSERT_EQ(sent.bytes, bytes) << i;
    ASSERT_EQ(sent.first.insert_ip_checksum, offload.ipv4()) << i;
    ASSERT_EQ(sent.first.insert_l4_checksum, offload.tcp() || offload.udp()) << i;
    ASSERT_EQ(sent.first.segment, offload.segment_bytes != 0) << i;
    ASSERT_EQ(sent.first.payload_length, bytes.size() - (sent.first.segment ? offload.headers_bytes() : 0)) << i;
    if (offload.checksums == Checksums::none) continue;
    ASSERT_EQ(sent.context.mac_length, offload.l2_bytes) << i;
    ASSERT_EQ(sent.context.ip_length, offload.l3_bytes) << i;
    ASSERT_EQ(sent.context.ipv4, offload.ipv4()) << i;
    ASSERT_EQ(sent.context.l4_type, offload.tcp() ? 1U : 0U) << i;
    ASSERT_EQ(sent.context.mss, offload.segment_bytes) << i;
  }
}

// Within a run of frames that are alike, not only the offloads but also the lengths are compared.
TEST_F(TransmitQueueTest, AFrameLikeTheLastIsStillRefusedForAWrongLength) {
  make();
  ASSERT_TRUE(send(with_checksums(frame(frame_of(1, 100)))).has_value());
  queue.begin_run();
  const auto alike = [&](const TestFrame& next) { return queue.transmit_alike(next.pieces, next.offload, nullptr); };
  EXPECT_TRUE(alike(with_checksums(frame(frame_of(2, 54)))));
  EXPECT_FALSE(alike(with_checksums(frame(frame_of(3, 53)))));
  EXPECT_TRUE(alike(with_checksums(frame(frame_of(4, 1514)))));
  EXPECT_FALSE(alike(with_checksums(frame(frame_of(5, 1515)))));
  EXPECT_FALSE(alike(with_checksums(frame(frame_of(6, 100), 50)))) << "two pieces";
  EXPECT_FALSE(alike(frame(frame_of(7, 100)))) << "no checksums";
  EXPECT_FALSE(alike(with_tso(frame(frame_of(8, 1000)), 500)));
  EXPECT_EQ(send(with_checksums(frame(frame_of(9, 53)))).error(), ErrorCode::invalid);
  finish();
  EXPECT_EQ(card.sent.size(), 3U);
  EXPECT_FALSE(alike(with_checksums(frame(frame_of(2, 54))))) << "the run ended with the flush";
}

TEST_F(TransmitQueueTest, AQueueHeldDuringARunRefusesFrames) {
  make();
  ASSERT_TRUE(send(frame(frame_of(1, 100))).has_value());
  queue.begin_run();
  ASSERT_TRUE(send(frame(frame_of(2, 100))).has_value());
  queue.hold(true);
  EXPECT_EQ(send(frame(frame_of(3, 100))).error(), ErrorCode::full);
  queue.begin_run();
  EXPECT_EQ(send(frame(frame_of(3, 100))).error(), ErrorCode::full);
  finish();
  EXPECT_EQ(card.sent.size(), 2U);
  EXPECT_EQ(queue.pending(), 0U);
}

// 7.2.3.5.2: the card writes its head to one word and does not change DD bits.
TEST_F(TransmitQueueTest, TheWrittenHeadReportsCompletions) {
  make({.transmit_descriptors = ring, .head_write_back = 1});
  ASSERT_TRUE(card.registers().read(reg::TDWBAL(0)).head_write_back);
  std::uint32_t told = 0;
  for (std::uintptr_t round = 0; round < 40; ++round) {  // across the ring's end
    for (std::uintptr_t i = 0; i < 5; ++i) ASSERT_TRUE(send(frame(frame_of(1, 100), 1 << 20, token_of(5 * round + i + 1))).has_value());
    queue.flush();
    EXPECT_FALSE(queue.ready());
    told = (told + 5) % ring;
    write_head(told - 1 + (told == 0 ? ring : 0));  // this head is before the last descriptor, which has RS
    EXPECT_FALSE(queue.ready());
    write_head(told);
    EXPECT_TRUE(queue.ready());
    collect();
    EXPECT_EQ(stack.tokens.size(), 5 * (round + 1));
  }
}

// A head behind the previous one or beyond the last tail must be ignored, because it would free buffers that the card may still read.
TEST_F(TransmitQueueTest, OnlyAHeadBetweenTheOldOneAndTheTailFreesDescriptors) {
  card.registers().write(reg::DCA_TXCTRL(0), reg::DcaTxctrl::from_raw(0x2A00));  // the reset value
  make({.transmit_descriptors = ring, .head_write_back = 1});
  EXPECT_EQ(card.registers().read(reg::DCA_TXCTRL(0)).raw(), 0x2200U) << "write-backs keep their order, reads need not";
  const auto reclaimed_at = [&](std::uint32_t written) {
    write_head(written);
    EXPECT_EQ(queue.ready(), written == 30) << written;
    collect();
    return stack.tokens.size();
  };
  const auto send_ten = [&] {
    for (std::uintptr_t i = 1; i <= 10; ++i) ASSERT_TRUE(send(frame(frame_of(1, 100), 1 << 20, token_of(i))).has_value());
    queue.flush();
  };
  send_ten();
  send_ten();
  write_head(20);
  collect();
  ASSERT_EQ(stack.tokens.size(), 20U);
  send_ten();
  // Wrong heads: an older one, one beyond the last tail, one outside of the ring, and the value that a read of a removed card returns.
  std::uint64_t wrong = 0;
  for (const std::uint32_t written : {19U, 10U, 0U, 31U, 63U, 64U, 20U + ring, 0x1EU + (1U << 16), ~0U - 1}) {
    EXPECT_EQ(reclaimed_at(written), 20U) << written;
    EXPECT_EQ(queue.counters().wrong_heads.value(), ++wrong);
  }
  EXPECT_EQ(reclaimed_at(25), 20U) << "in order, but before the report's end";
  EXPECT_EQ(queue.counters().wrong_heads.value(), wrong);
  EXPECT_EQ(reclaimed_at(30), 30U);
  EXPECT_EQ(queue.pending(), 0U);
}

TEST_F(TransmitQueueTest, AStoppedQueueReturnsTokensAndTheNumberOfUnsentFrames) {
  make();
  for (std::uintptr_t i = 1; i <= 6; ++i) ASSERT_TRUE(send(with_checksums(frame(frame_of(1, 100), 30, token_of(i)))).has_value());
  queue.hold(true);
  EXPECT_EQ(send(frame(frame_of(1, 100))).error(), ErrorCode::full);
  queue.flush();
  card.transmit(5);  // a context and a frame of four pieces, without a report
  EXPECT_EQ(queue.empty(), 6U) << "frames without a report may or may not be sent";
  queue.deliver(stack);
  EXPECT_EQ(stack.tokens.size(), 6U);
  EXPECT_EQ(queue.counters().lost.value(), 6U);
  EXPECT_EQ(stack.room_again, 0U);
  queue.hold(false);
  queue.deliver(stack);
  EXPECT_EQ(stack.room_again, 1U);
}

// The stack calls `transmit`, which reclaims descriptors when the ring is full but must not call the stack back.
TEST_F(TransmitQueueTest, TransmitReclaimsButDoesNotDeliver) {
  make();
  std::uint32_t queued = 0;
  while (send(frame(frame_of(queued, 100), 1 << 20, token_of(queued + 1))).has_value()) ++queued;
  queue.flush();
  card.transmit();
  EXPECT_TRUE(send(frame(frame_of(queued, 100), 1 << 20, token_of(queued + 1))).has_value());
  EXPECT_TRUE(stack.tokens.empty());
  EXPECT_TRUE(queue.deliverable());
  queue.deliver(stack);
  EXPECT_EQ(stack.tokens.size(), queued);
}

// If the stack does not take its tokens, the queue refuses frames and loses no token.
TEST_F(TransmitQueueTest, UndeliveredTokensBoundTheQueue) {
  make();
  std::uintptr_t queued = 0;
  for (int i = 0; i < 1000; ++i) {
    if (send(frame(frame_of(1, 60), 1 << 20, token_of(queued + 1))).has_value()) ++queued;
    queue.flush();
    card.transmit();
    queue.reclaim();
  }
  EXPECT_EQ(queued, ring);
  queue.deliver(stack);
  EXPECT_EQ(stack.tokens.size(), ring);
  EXPECT_EQ(stack.tokens.back(), token_of(ring));
  EXPECT_TRUE(send(frame(frame_of(1, 60), 1 << 20, token_of(1))).has_value());
}

TEST_F(TransmitQueueTest, ALongBurstIsReportedInParts) {
  make();
  for (std::uint32_t i = 0; i < ring - 1; ++i) ASSERT_TRUE(send(frame(frame_of(i, 60))).has_value());
  queue.flush();
  card.transmit();
  EXPECT_EQ(card.reports, 2U);
}

TEST_F(TransmitQueueTest, AContextIsWrittenOnlyWhenItChanges) {
  make();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(send(with_checksums(frame(frame_of(1, 100)))).has_value());
  finish();
  EXPECT_EQ(card.contexts_seen, 1U);
  // TSO has its own context, so alternating frames need no further context.
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(send(with_tso(frame(frame_of(1, 3000)), 1448)).has_value());
    ASSERT_TRUE(send(with_checksums(frame(frame_of(1, 100)))).has_value());
  }
  finish();
  EXPECT_EQ(card.contexts_seen, 2U);
  TestFrame udp = with_checksums(frame(frame_of(1, 100)), 8);
  udp.offload.checksums = Checksums::udp_ipv4;
  ASSERT_TRUE(send(udp).has_value());
  ASSERT_TRUE(send(with_tso(frame(frame_of(1, 3000)), 500)).has_value());
  finish();
  EXPECT_EQ(card.contexts_seen, 4U);
  EXPECT_EQ(queue.counters().contexts.value(), 4U);
}

TEST_F(TransmitQueueTest, OffloadFieldsFollowTheDatasheet) {
  make();
  ASSERT_TRUE(send(frame(frame_of(1, 200))).has_value());
  ASSERT_TRUE(send(with_checksums(frame(frame_of(1, 200), 54), 32)).has_value());
  TestFrame udp = with_checksums(frame(frame_of(1, 200)), 8);
  udp.offload.checksums = Checksums::udp_ipv6;
  udp.offload.l3_bytes = 40;
  ASSERT_TRUE(send(udp).has_value());
  ASSERT_TRUE(send(with_tso(frame(frame_of(1, 5000), 1000), 1400)).has_value());
  TestFrame tcp6 = frame(frame_of(1, 60'000));
  tcp6.offload = {.l3_bytes = 40, .l4_bytes = 32, .checksums = Checksums::tcp_ipv6, .segment_bytes = 1428};
  ASSERT_TRUE(send(tcp6).has_value());
  finish();
  ASSERT_EQ(card.sent.size(), 5U);
  const auto& [plain, tcp, udp6, tso, tso6] = std::tie(card.sent[0], card.sent[1], card.sent[2], card.sent[3], card.sent[4]);

  EXPECT_TRUE(tso6.first.insert_l4_checksum && tso6.first.segment);
  EXPECT_FALSE(tso6.first.insert_ip_checksum || tso6.context.ipv4);
  EXPECT_EQ(tso6.first.payload_length, 60'000U - 14 - 40 - 32);
  EXPECT_EQ(tso6.context.ip_length + tso6.context.l4_length, 40U + 32);
  EXPECT_TRUE(tso6.context.l4_type == 1 && tso6.context.mss == 1428);

  EXPECT_TRUE(plain.first.insert_fcs);
  EXPECT_FALSE(plain.first.insert_ip_checksum || plain.first.insert_l4_checksum || plain.first.segment);
  EXPECT_EQ(plain.first.payload_length, 200U);

  EXPECT_TRUE(tcp.first.insert_ip_checksum && tcp.first.insert_l4_checksum);
  EXPECT_EQ(tcp.first.payload_length, 200U) << "PAYLEN without TSO is the whole frame";
  EXPECT_EQ(tcp.data_descriptors, 4U);
  EXPECT_EQ(tcp.context.mac_length, 14U);
  EXPECT_EQ(tcp.context.ip_length, 20U);
  EXPECT_EQ(tcp.context.l4_type, 1U);
  EXPECT_TRUE(tcp.context.ipv4);
  EXPECT_EQ(tcp.context.mss, 0U);

  EXPECT_FALSE(udp6.first.insert_ip_checksum);
  EXPECT_TRUE(udp6.first.insert_l4_checksum);
  EXPECT_EQ(udp6.context.ip_length, 40U);
  EXPECT_EQ(udp6.context.l4_type, 0U);
  EXPECT_FALSE(udp6.context.ipv4);

  EXPECT_TRUE(tso.first.segment);
  EXPECT_EQ(tso.first.payload_length, 5000U - 54U) << "PAYLEN with TSO excludes the headers";
  EXPECT_EQ(tso.context.mss, 1400U);
  EXPECT_EQ(tso.context.l4_length, 20U);
  EXPECT_NE(tso.first.index, tcp.first.index);
}

TEST_F(TransmitQueueTest, TheLargestAllowedFrameFitsTheCardsLimit) {
  make();
  const Bytes bytes = frame_of(5, TransmitQueue::tso_bytes_max);
  TestFrame largest = with_tso(frame(bytes, (bytes.size() + TransmitQueue::pieces_max - 1) / TransmitQueue::pieces_max), 1448);
  ASSERT_EQ(largest.pieces.size(), TransmitQueue::pieces_max);
  ASSERT_TRUE(send(largest).has_value());
  finish();
  ASSERT_EQ(card.sent.size(), 1U);
  EXPECT_EQ(card.sent[0].bytes, bytes);
  // A single large piece is cut into several descriptors.
  ASSERT_TRUE(send(with_tso(frame(bytes), 1448)).has_value());
  finish();
  ASSERT_EQ(card.sent.size(), 2U);
  EXPECT_EQ(card.sent[1].bytes, bytes);
  EXPECT_EQ(card.sent[1].data_descriptors, TransmitQueue::tso_bytes_max / TransmitQueue::descriptor_bytes_max);
}

TEST_F(TransmitQueueTest, RefusesFramesThatTheCardCannotSend) {
  make();
  const Bytes bytes = frame_of(1, 1500);
  std::vector<std::pair<const char*, TestFrame>> bad;
  bad.emplace_back("empty", frame({}));
  bad.emplace_back("too long", frame(frame_of(1, 1515)));
  bad.emplace_back("too many pieces", frame(bytes, 30));
  TestFrame udp_tso = with_tso(frame(bytes), 500);
  udp_tso.offload.checksums = Checksums::udp_ipv4;
  bad.emplace_back("TSO of UDP", udp_tso);
  TestFrame no_header = with_tso(frame(bytes), 500);
  no_header.offload.l4_bytes = 0;
  bad.emplace_back("TSO without a TCP header", no_header);
  bad.emplace_back("segments longer than a frame", with_tso(frame(bytes), 1461));
  TestFrame no_ip = with_checksums(frame(bytes));
  no_ip.offload.l3_bytes = 0;
  bad.emplace_back("checksum without an IP header", no_ip);
  TestFrame ipv6 = frame(bytes);
  ipv6.offload = {.l3_bytes = 39, .l4_bytes = 20, .checksums = Checksums::tcp_ipv6};
  bad.emplace_back("checksum behind less than a header of IPv6", ipv6);
  ipv6.offload = {.l3_bytes = 40, .l4_bytes = 20, .checksums = Checksums::tcp_ipv6, .segment_bytes = 1441};
  bad.emplace_back("segments of IPv6 longer than a frame", ipv6);
  bad.emplace_back("headers longer than the frame", with_checksums(frame(frame_of(1, 40))));
  bad.emplace_back("TSO without payload", with_tso(frame(frame_of(1, 54)), 500));
  bad.emplace_back("too much TSO", with_tso(frame(frame_of(1, TransmitQueue::tso_bytes_max + 1)), 500));
  for (const auto& [why, refused] : bad) {
    const auto done = send(refused);
    ASSERT_FALSE(done.has_value()) << why;
    EXPECT_EQ(done.error(), ErrorCode::invalid) << why;
  }
  EXPECT_EQ(queue.counters().refused_invalid.value(), bad.size());
  EXPECT_EQ(queue.pending(), 0U);
  finish();
  EXPECT_TRUE(card.sent.empty());
}

// An empty piece (a header-only buffer chain) adds no descriptor.
TEST_F(TransmitQueueTest, EmptyPiecesAddNoDescriptor) {
  make();
  TestFrame split = frame(frame_of(1, 100), 50);
  std::vector<TransmitPiece> with_hole = {split.pieces[0], {.data = nullptr, .bytes = 0}, split.pieces[1]};
  split.pieces = with_hole;
  ASSERT_TRUE(send(split).has_value());
  finish();
  ASSERT_EQ(card.sent.size(), 1U);
  EXPECT_EQ(card.sent[0].bytes, frame_of(1, 100));
  EXPECT_EQ(card.sent[0].data_descriptors, 2U);
}

}  // namespace
}  // namespace neap::ixgbe
