// SPDX-License-Identifier: BSL-1.0
// Rules of TCP that a peer can see: options, selective acknowledgements, resets, path MTU, delayed acknowledgements. The peer's segments
// are made by hand.
#include <gtest/gtest.h>

#include <optional>

#include "net/testing/hand_peer.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;

Bytes pattern_bytes(std::size_t from, std::size_t count, unsigned seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = pattern(from + i, seed);
  return bytes;
}

/// The content of an option; none if it is missing.
std::optional<Bytes> option_of(const Bytes& options, unsigned kind) {
  for (std::size_t at = 0; at < options.size() && octet(options, at) != 0;) {
    if (octet(options, at) == 1) {
      ++at;
      continue;
    }
    const std::size_t length = at + 1 < options.size() ? octet(options, at + 1) : 0;
    if (length < 2 || at + length > options.size()) return std::nullopt;
    const auto begin = options.begin() + static_cast<std::ptrdiff_t>(at);
    if (octet(options, at) == kind) return Bytes(begin + 2, begin + static_cast<std::ptrdiff_t>(length));
    at += length;
  }
  return std::nullopt;
}

constexpr unsigned mss_kind = 2, scale_kind = 3, sack_permitted_kind = 4, sack_kind = 5, timestamps_kind = 8;

Bytes timestamps(std::uint32_t value, std::uint32_t echo) {
  Bytes options;
  append(options, 0x0101'080A, 4);
  append(options, value, 4);
  append(options, echo, 4);
  return options;
}

class TcpRules : public ::testing::Test {
 protected:
  explicit TcpRules(const RecordingHandler::Behaviour& behaviour = {.check_seed = 6, .close_when_sent = false}) : peer(behaviour) {}

  /// Opens a connection with window scale, SACK and timestamps.
  void open_with_options() {
    Bytes options = timestamps(1000, 0);
    append(options, 0x0204'05B4, 4);
    append(options, 0x0402'0303, 4);
    append(options, 0x0700'0000, 4);
    peer.begin_open_with_answer(40000, 0xFFFF, options, answer);
    const auto own = option_of(answer.options, timestamps_kind);
    ASSERT_TRUE(own.has_value());
    machine_clock = quad(*own, 0);
    EXPECT_EQ(quad(*own, 4), 1000U);
    peer.send({.seq = peer.seq, .acknowledged = peer.acknowledged, .options = timestamps(1000, machine_clock)});
    peer.take_segments();
  }
  void send_at(std::uint32_t ahead, std::size_t bytes, std::uint32_t clock) {
    peer.send({.seq = peer.seq + ahead,
               .acknowledged = peer.acknowledged,
               .payload = pattern_bytes(sent + ahead, bytes, 6),
               .options = timestamps(clock, machine_clock)});
  }
  void send_next(std::size_t bytes, std::uint32_t clock) {
    send_at(0, bytes, clock);
    peer.seq += static_cast<std::uint32_t>(bytes);
    sent += bytes;
  }

  HandPeer peer;
  Segment answer;
  std::uint32_t machine_clock = 0;
  std::size_t sent = 0;
};

TEST_F(TcpRules, ASynAckHasTheOptionsOfTheSynOnly) {
  open_with_options();
  EXPECT_EQ(word(option_of(answer.options, mss_kind).value_or(Bytes(2)), 0), 1460);
  EXPECT_TRUE(option_of(answer.options, scale_kind).has_value());
  EXPECT_TRUE(option_of(answer.options, sack_permitted_kind).has_value());
  Segment plain;
  peer.begin_open_with_answer(40001, 0xFFFF, {}, plain);
  EXPECT_TRUE(option_of(plain.options, mss_kind).has_value());
  for (const unsigned kind : {scale_kind, sack_permitted_kind, timestamps_kind}) EXPECT_FALSE(option_of(plain.options, kind).has_value());
}

// RFC 7323, 5: a segment with an old timestamp is acknowledged and dropped; one without a timestamp is dropped.
TEST_F(TcpRules, OldSegmentsAreFoundByTheirTimestamps) {
  open_with_options();
  send_next(100, 2000);
  EXPECT_EQ(peer.record().received, 100U);
  peer.take_segments();
  send_at(0, 100, 1999);
  EXPECT_EQ(peer.record().received, 100U);
  const std::vector<Segment> answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].acknowledged, peer.seq);
  EXPECT_EQ(quad(option_of(answers[0].options, timestamps_kind).value_or(Bytes(8)), 4), 2000U);
  peer.send({.seq = peer.seq, .acknowledged = peer.acknowledged, .payload = pattern_bytes(sent, 100, 6)});
  EXPECT_EQ(peer.record().received, 100U);
  send_next(100, 2000);
  EXPECT_EQ(peer.record().received, 200U);
  EXPECT_EQ(peer.record().mismatches, 0U);
}

// RFC 2018 and 2883.
TEST_F(TcpRules, SegmentsOutOfOrderAreKeptAndReported) {
  open_with_options();
  send_at(1000, 500, 1001);
  std::vector<Segment> answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  Bytes block = option_of(answers[0].options, sack_kind).value_or(Bytes{});
  ASSERT_EQ(block.size(), 8U);
  EXPECT_EQ(quad(block, 0), peer.seq + 1000);
  EXPECT_EQ(quad(block, 4), peer.seq + 1500);
  send_at(2000, 500, 1001);
  answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  block = option_of(answers[0].options, sack_kind).value_or(Bytes{});
  ASSERT_EQ(block.size(), 16U);
  EXPECT_EQ(quad(block, 0), peer.seq + 2000) << "the latest range is the first block";
  send_at(2000, 500, 1001);  // again
  answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  block = option_of(answers[0].options, sack_kind).value_or(Bytes{});
  ASSERT_EQ(block.size(), 24U);
  EXPECT_EQ(quad(block, 0), peer.seq + 2000) << "a duplicate is reported first";
  EXPECT_EQ(quad(block, 4), peer.seq + 2500);
  send_at(0, 1000, 1001);
  EXPECT_EQ(peer.record().received, 1500U);
  send_at(1500, 500, 1001);
  EXPECT_EQ(peer.record().received, 2500U);
  EXPECT_EQ(peer.record().mismatches, 0U);
}

// RFC 9293, 3.10.7.1.
TEST_F(TcpRules, ResetsForSegmentsWithoutAConnectionHaveTheRightForm) {
  const auto answer_to = [&](unsigned flags, std::uint32_t acknowledged, std::size_t bytes) {
    peer.watch_port(40123);
    peer.card().arrive(net::testing::frame_of({.from = {.address = HandPeer::peer_address, .port = 40123},
                                               .to = {.address = HandPeer::machine_address, .port = 99},
                                               .sequence = 5000,
                                               .acknowledged = acknowledged,
                                               .flags = flags,
                                               .payload = Bytes(bytes)},
                                              peer.card().mac()),
                       0);
    peer.settle();
    return peer.take_segments();
  };
  const std::vector<Segment> to_ack = answer_to(tcp::ack, 777, 0);
  ASSERT_EQ(to_ack.size(), 1U);
  EXPECT_EQ(to_ack[0].flags, tcp::rst);
  EXPECT_EQ(to_ack[0].seq, 777U);
  const std::vector<Segment> to_syn = answer_to(tcp::syn, 0, 0);
  ASSERT_EQ(to_syn.size(), 1U);
  EXPECT_EQ(to_syn[0].flags, tcp::rst | tcp::ack);
  EXPECT_EQ(to_syn[0].seq, 0U);
  EXPECT_EQ(to_syn[0].acknowledged, 5001U);
  EXPECT_TRUE(answer_to(tcp::rst, 0, 0).empty());
}

// RFC 1122, 4.2.3.10.
TEST_F(TcpRules, SynsFromOrToGroupsAreNotAnswered) {
  const auto frames = peer.card().frames_sent();
  for (const Ipv4Address from : {Ipv4Address{0}, Ipv4Address{0xE0000005}, Ipv4Address{0xFFFFFFFF}, Ipv4Address{0x0A0000FF}}) {
    peer.card().arrive(net::testing::frame_of({.from = {.address = from, .port = 40000},
                                               .to = {.address = HandPeer::machine_address, .port = HandPeer::service_port},
                                               .sequence = 5000,
                                               .flags = tcp::syn},
                                              peer.card().mac()),
                       0);
  }
  for (const Ipv4Address to : {Ipv4Address{0x0A0000FF}, Ipv4Address{0xFFFFFFFF}, Ipv4Address{0xE0000001}}) {
    peer.card().arrive(net::testing::frame_of({.from = {.address = HandPeer::peer_address, .port = 40000},
                                               .to = {.address = to, .port = HandPeer::service_port},
                                               .sequence = 5000,
                                               .flags = tcp::syn},
                                              peer.card().mac()),
                       0);
  }
  peer.settle();
  EXPECT_EQ(peer.card().frames_sent(), frames);
  EXPECT_EQ(peer.counters().half_open, 0U);
}

// RFC 1191: the segment is sent again in smaller segments. RFC 5927: a message that quotes a number that is not in flight has no effect.
TEST_F(TcpRules, SmallerPathsAreUsed) {
  peer.open(40000, 0xFFFF, {std::byte{2}, std::byte{4}, std::byte{5}, std::byte{0xB4}});
  peer.application_sends(1460);
  const std::vector<Segment> first = peer.take_segments();
  ASSERT_EQ(first.size(), 1U);
  ASSERT_EQ(first[0].payload.size(), 1460U);
  const auto report = [&](std::uint32_t sequence) {
    Bytes icmp;
    append(icmp, 0x0304'0000, 4);
    append(icmp, 1000, 4);  // the next link's MTU
    Bytes quoted = net::testing::frame_of({.from = {.address = HandPeer::machine_address, .port = HandPeer::service_port},
                                           .to = {.address = HandPeer::peer_address, .port = 40000},
                                           .sequence = sequence,
                                           .flags = tcp::ack,
                                           .payload = Bytes(1460)},
                                          peer.card().mac());
    icmp.insert(icmp.end(), quoted.begin() + 14, quoted.begin() + 14 + 28);
    const std::uint16_t sum = internet_sum(icmp);
    put_word(icmp, 2, static_cast<std::uint16_t>(~sum));
    peer.card().arrive(HandPeer::ipv4_frame(1, icmp), 0);
    peer.settle();
  };
  report(first[0].seq + 100'000);
  EXPECT_TRUE(peer.take_segments().empty());
  report(first[0].seq);
  const std::vector<Segment> again = peer.take_segments();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].payload, pattern_bytes(0, 960, 5));
  EXPECT_EQ(again[1].payload, pattern_bytes(960, 500, 5));
  EXPECT_EQ(peer.counters().icmp_errors, 2U);
}

// RFC 9293, 3.8.6.3: after the connection's first segments, a single one is acknowledged after 40 ms, and every second one at once.
TEST_F(TcpRules, AcknowledgementsAreDelayed) {
  peer.open(40000, 0xFFFF, {std::byte{2}, std::byte{4}, std::byte{5}, std::byte{0xB4}});
  for (int i = 0; i < 20; ++i) peer.send_data(pattern_bytes(static_cast<std::size_t>(i) * 1460, 1460, 6));
  peer.advance(100ms);
  peer.take_segments();
  peer.send_data(pattern_bytes(20 * 1460, 1460, 6));
  EXPECT_TRUE(peer.take_segments().empty());
  peer.advance(50ms);
  std::vector<Segment> answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].acknowledged, peer.seq);
  peer.send_data(pattern_bytes(21 * 1460, 1460, 6));
  peer.send_data(pattern_bytes(22 * 1460, 1460, 6));
  answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].acknowledged, peer.seq);
}

}  // namespace
}  // namespace neap::net::testing
