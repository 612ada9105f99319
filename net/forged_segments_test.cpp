// SPDX-License-Identifier: BSL-1.0
// Segments that a third machine forges or a hostile peer sends. None of them may disturb the connection.
#include <gtest/gtest.h>

#include <atomic>

#include "net/stack.hpp"
#include "net/testing/hand_peer.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;

Bytes pattern_bytes(std::size_t from, std::size_t count, unsigned seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = pattern(from + i, seed);
  return bytes;
}

Bytes mss_option(std::uint16_t mss) { return {std::byte{2}, std::byte{4}, static_cast<std::byte>(mss >> 8), static_cast<std::byte>(mss)}; }

/// Acknowledges in-order segments until no more arrive; returns the sizes of their payloads.
std::vector<std::size_t> drain(HandPeer& peer, std::size_t& received, std::uint16_t window) {
  std::vector<std::size_t> sizes;
  for (int round = 0; round < 2000; ++round) {
    bool any = false;
    for (const Segment& segment : peer.take_segments()) {
      if (segment.payload.empty()) continue;
      any = true;
      sizes.push_back(segment.payload.size());
      EXPECT_LE(segment.payload.size(), 1460U);
      const auto behind = static_cast<std::int32_t>(peer.acknowledged - segment.seq);
      EXPECT_GE(behind, 0) << "a gap";
      if (behind < 0) continue;
      const auto skip = static_cast<std::size_t>(behind);
      if (skip >= segment.payload.size()) continue;
      const Bytes fresh(segment.payload.begin() + behind, segment.payload.end());
      EXPECT_EQ(fresh, pattern_bytes(received, fresh.size(), 5));
      received += fresh.size();
      peer.acknowledged += static_cast<std::uint32_t>(fresh.size());
    }
    if (!any) return sizes;
    peer.acknowledge(window);
  }
  ADD_FAILURE() << "the segments do not end";
  return sizes;
}

class ForgedSegments : public ::testing::Test {
 protected:
  explicit ForgedSegments(const RecordingHandler::Behaviour& behaviour = {.close_when_sent = false}) : peer(behaviour) {}
  std::vector<std::size_t> drained(std::uint16_t window = 0xFFFF) { return drain(peer, received, window); }

  HandPeer peer;
  std::size_t received = 0;  ///< payload bytes that the peer received from the application
};

class CheckedForgedSegments : public ForgedSegments {
 protected:
  CheckedForgedSegments() : ForgedSegments({.check_seed = 6, .close_when_sent = false}) {}
};

// In an earlier version, options were read before the sequence number was checked. One forged segment with an MSS option shrank all later
// segments to one byte.
TEST(ForgedSegmentsOfPeers, MssOutsideASynIsNotRead) {
  for (const std::uint32_t wrong : {0U, 0x40000000U}) {
    HandPeer peer;
    peer.open(40000, 0xFFFF, mss_option(1460));
    peer.send({.seq = peer.seq + wrong, .acknowledged = peer.acknowledged, .options = mss_option(1)});
    peer.application_sends(20'000);
    std::size_t received = 0;
    const std::vector<std::size_t> sizes = drain(peer, received, 0xFFFF);
    EXPECT_EQ(received, 20'000U);
    EXPECT_LE(sizes.size(), 15U);
  }
}

// In an earlier version, a smaller MSS with queued data made lengths wrap below 0. A build with assertions panicked; a build without them
// made a frame too long for the card.
TEST_F(ForgedSegments, MssWhileDataIsQueuedIsHarmless) {
  peer.open(40000, 2000, mss_option(1460));
  peer.application_sends(10'000);  // more than the window
  peer.send({.seq = peer.seq + 0x40000000, .acknowledged = peer.acknowledged, .options = mss_option(1)});
  peer.application_sends(10'000);
  drained();
  EXPECT_EQ(received, 20'000U);
  EXPECT_EQ(peer.counters().transmit_failed, 0U);
}

// CVE-2019-11479: with an MSS of a few bytes, every few bytes cost a segment.
TEST_F(ForgedSegments, MssOfASynHasALowerBound) {
  peer.open(40000, 0xFFFF, mss_option(1));
  peer.application_sends(8'800);
  const std::vector<std::size_t> sizes = drained();
  EXPECT_EQ(received, 8'800U);
  EXPECT_LE(sizes.size(), 101U);
}

// A peer reports a loss by three duplicate ACKs, together with its next request. In an earlier version, the answer or the FIN was appended
// to the retransmitted segment, although a later segment was in flight. The peer then got wrong bytes at valid sequence numbers.
class FastRetransmission : public ::testing::TestWithParam<bool> {};

TEST_P(FastRetransmission, IsNotMixedWithWhatTheApplicationSendsNext) {
  const bool closes = GetParam();
  HandPeer peer({.close_when_sent = false, .on_received = [closes](RecordingHandler& handler, const Buffer&) {
                   if (closes) return handler.connection().close();
                   EXPECT_TRUE(handler.connection().send(Buffer::copy(pattern_bytes(200, 100, 5))).has_value());
                 }});
  peer.open();
  peer.application_sends(100);  // is lost
  peer.application_sends(100);
  const Segment duplicate{.seq = peer.seq, .acknowledged = peer.acknowledged};
  peer.take_segments();
  peer.send_together({duplicate, duplicate, duplicate, {.seq = peer.seq, .acknowledged = peer.acknowledged, .payload = Bytes(10)}});
  const std::uint32_t first = peer.acknowledged;
  bool again = false, next = false;
  for (const Segment& segment : peer.take_segments()) {
    const std::uint32_t at = segment.seq - first;
    EXPECT_EQ(segment.payload, pattern_bytes(at, segment.payload.size(), 5));
    if ((segment.flags & tcp::fin) != 0) EXPECT_EQ(at + segment.payload.size(), 200U);
    again = again || (at == 0 && segment.payload.size() == 100);
    next = next || (at == 200 && (segment.payload.size() == 100 || (segment.flags & tcp::fin) != 0));
  }
  EXPECT_TRUE(again);
  EXPECT_TRUE(next);
}

INSTANTIATE_TEST_SUITE_P(Next, FastRetransmission, ::testing::Bool(), [](const auto& tested) { return tested.param ? "Fin" : "Data"; });

// Data written while the window is closed is segmented for the full MSS. In an earlier version, lengths wrapped below 0 when the window
// then opened by a few bytes.
TEST(ForgedSegmentsOfPeers, WindowThatOpensLateByAFewBytesIsHarmless) {
  for (const std::uint16_t window : {2, 100, 1000, 2919}) {
    HandPeer peer;
    peer.open(40000, 0, mss_option(1460));
    peer.application_sends(200);
    peer.application_sends(4'000);
    peer.acknowledge(window);
    peer.application_sends(200);
    peer.application_sends(60'000);
    EXPECT_EQ(peer.counters().transmit_failed, 0U);
    std::size_t received = 0;
    for (int second = 0; second < 20; ++second) {  // the first, long segment is sent by the persist timer
      drain(peer, received, window);
      peer.advance(500ms);
    }
    EXPECT_GT(received, 0U);
    peer.acknowledge();
    drain(peer, received, 0xFFFF);
    peer.advance(2s);
    drain(peer, received, 0xFFFF);
    EXPECT_EQ(received, 64'400U) << window;
  }
}

// With a closed window, an old number is sent as a probe (as Linux). The probing ends when the only queued byte was sent and acknowledged.
TEST_F(ForgedSegments, AcknowledgedByteEndsTheProbing) {
  peer.open(40000, 0);
  peer.application_sends(1);
  bool probed = false;
  for (int i = 0; i < 200 && !probed; ++i) {
    peer.advance(50ms);
    for (const Segment& segment : peer.take_segments()) probed = probed || segment.seq == peer.acknowledged - 1;
  }
  ASSERT_TRUE(probed);
  peer.acknowledge(1);
  for (int i = 0; i < 200 && peer.take_segments().empty(); ++i) peer.advance(50ms);  // a window of one byte is used slowly
  ++peer.acknowledged;
  peer.acknowledge(0);
  peer.advance(3s);
  EXPECT_EQ(peer.waits().tcp_ms, 0U);
  EXPECT_EQ(peer.record().closed, 0);
}

struct Forgery {
  const char* name;
  /// The differences from the numbers that the machine expects.
  std::uint32_t seq, acknowledged;
  std::uint8_t flags;
  std::uint16_t window;
  std::size_t payload_bytes;
  Bytes options;
};

class EachForgery : public CheckedForgedSegments, public ::testing::WithParamInterface<Forgery> {};

// After one forged segment, and after a hundred, both directions continue without delay or wrong bytes, and few answers are sent.
TEST_P(EachForgery, LeavesTheConnectionAsItWas) {
  const Forgery& forgery = GetParam();
  peer.open(40000, 0xFFFF, mss_option(1460));
  peer.send_data(pattern_bytes(0, 100, 6));
  peer.application_sends(1000);
  drained();
  const Counters before = peer.counters();
  for (int i = 0; i < 100; ++i) {
    peer.send({.seq = peer.seq + forgery.seq,
               .acknowledged = peer.acknowledged + forgery.acknowledged,
               .flags = forgery.flags,
               .window = forgery.window,
               .payload = Bytes(forgery.payload_bytes, std::byte{0xEE}),
               .options = forgery.options});
  }
  EXPECT_EQ(peer.counters().segments_refused - before.segments_refused, 100U);
  const std::uint64_t challenges = peer.counters().challenge_acks - before.challenge_acks;
  EXPECT_LE(challenges, 1U);
  if (challenges != 0) EXPECT_EQ(peer.counters().challenge_acks_limited - before.challenge_acks_limited, 99U);
  const std::vector<Segment> answers = peer.take_segments();
  // Every segment with data or a FIN is answered, because it may be a genuine segment that the peer repeats after a lost ACK.
  const bool fills_sequence_space = forgery.payload_bytes > 0 || (forgery.flags & tcp::fin) != 0;
  const bool out_of_place = (forgery.flags & (tcp::syn | tcp::rst)) != 0;
  EXPECT_LE(answers.size(), fills_sequence_space && !out_of_place ? 100U : 1U);
  for (const Segment& answer : answers) {
    EXPECT_EQ(answer.flags, tcp::ack);
    EXPECT_EQ(answer.seq, peer.acknowledged);
    EXPECT_EQ(answer.acknowledged, peer.seq);
  }
  EXPECT_EQ(peer.record().received, 100U);
  EXPECT_EQ(peer.record().peer_closed + peer.record().closed, 0);

  peer.application_sends(10'000);
  const std::vector<std::size_t> sizes = drained();
  EXPECT_EQ(received, 11'000U);
  EXPECT_LE(sizes.size(), 8U);
  peer.send_data(pattern_bytes(100, 1000, 6));
  EXPECT_EQ(peer.record().received, 1100U);
  EXPECT_EQ(peer.record().mismatches, 0U);
}

constexpr std::uint32_t far = 0x40000000;
INSTANTIATE_TEST_SUITE_P(
    ForgedSegments, EachForgery,
    ::testing::Values(
        Forgery{"DataOutsideTheWindow", far, 0, tcp::ack, 0xFFFF, 100, {}}, Forgery{"OldData", std::uint32_t(-50), 0, tcp::ack, 0, 20, {}},
        Forgery{"ClosedWindow", far, 0, tcp::ack, 0, 0, {}},
        Forgery{"ClosedWindowWithOptions", std::uint32_t(-far), 0, tcp::ack, 0, 0, mss_option(1)},
        Forgery{"AckOfUnsentData", 0, 5000, tcp::ack, 0, 0, {}}, Forgery{"DataWithAckOfUnsentData", 0, 5000, tcp::ack, 0xFFFF, 100, {}},
        Forgery{"DataWithVeryOldAck", 0, std::uint32_t(-0x200000), tcp::ack, 0, 100, {}},
        Forgery{"DataWithoutAck", 0, 0, 0, 0xFFFF, 100, {}}, Forgery{"NoFlags", 0, 0, 0, 0, 0, mss_option(1)},
        Forgery{"SynInTheWindow", 10, 0, tcp::syn, 0, 0, mss_option(1)},
        Forgery{"SynAtTheEdge", 0, 0, tcp::syn | tcp::ack, 0, 0, mss_option(1)}, Forgery{"SynOutside", far, 0, tcp::syn, 0, 0, {}},
        Forgery{"ResetInTheWindow", 10, 0, tcp::rst, 0, 0, {}}, Forgery{"ResetOutside", far, 0, tcp::rst | tcp::ack, 0, 0, {}},
        Forgery{"FinOutside", far, 0, tcp::fin | tcp::ack, 0, 0, {}},
        Forgery{"FinWithAckOfUnsentData", 0, 77, tcp::fin | tcp::ack, 0, 0, {}}, Forgery{"FinWithoutAck", 0, 0, tcp::fin, 0, 0, {}}),
    [](const auto& one) { return one.param.name; });

// The rate limit suppresses challenge ACKs for half a second. After that, a restarted peer gets another challenge ACK.
TEST_F(ForgedSegments, ChallengesComeAgainAfterHalfASecond) {
  peer.open();
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 10; ++j) peer.send({.seq = peer.seq + 10, .flags = tcp::syn});
    EXPECT_EQ(peer.take_segments().size(), 1U) << i;
    peer.advance(600ms);
  }
}

// A half-open connection refers to its listener, in the place of a handler. The end of either must be without
// effect for the other.
enum class HalfOpenEnd { reset, time_out, listener_ends };
class HalfOpen : public ::testing::TestWithParam<HalfOpenEnd> {};

TEST_P(HalfOpen, EndsWithoutAConnection) {
  HandPeer peer;
  peer.begin_open();
  EXPECT_EQ(peer.counters().half_open, 1U);
  switch (GetParam()) {
    case HalfOpenEnd::reset:
      peer.send({.seq = peer.seq, .flags = tcp::rst});
      break;
    case HalfOpenEnd::time_out:
      peer.advance(25s);
      break;
    case HalfOpenEnd::listener_ends:
      peer.machine().on(0, [] { Stack::here()->stop_listening(HandPeer::service_port); });
      break;
  }
  EXPECT_EQ(peer.counters().half_open, 0U);
  peer.take_segments();
  peer.acknowledge();
  const std::vector<Segment> answer = peer.take_segments();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].flags & tcp::rst, tcp::rst);
  EXPECT_EQ(peer.counters().connections_accepted, 0U);
}

INSTANTIATE_TEST_SUITE_P(Each, HalfOpen, ::testing::Values(HalfOpenEnd::reset, HalfOpenEnd::time_out, HalfOpenEnd::listener_ends));

TEST_F(ForgedSegments, AValidResetStillResets) {
  peer.open();
  peer.send({.seq = peer.seq, .flags = tcp::rst});
  EXPECT_EQ(peer.record().closed, 1);
}

// A reordered segment has an old acknowledgement number, but its data is new.
TEST_F(CheckedForgedSegments, DataWithAnOldAckIsAccepted) {
  peer.open();
  peer.application_sends(1000);
  drained();
  peer.send({.seq = peer.seq, .acknowledged = peer.acknowledged - 500, .window = 0, .payload = pattern_bytes(0, 100, 6)});
  EXPECT_EQ(peer.record().received, 100U);
  peer.seq += 100;
  peer.application_sends(1000);
  drained();
  EXPECT_EQ(received, 2000U) << "its window is old too";
}

// The receive window is 65,535 bytes, without window scaling, and the application reads no bytes.
class FullWindow : public ::testing::Test {
 protected:
  FullWindow()
      : peer_({.check_seed = 6, .close_when_sent = false, .answer_close = false, .on_received = [this](RecordingHandler&, Buffer data) {
                 held_.append(std::move(data));
               }}) {
    peer_.open();
    right_edge_ = peer_.seq + 0xFFFF;
    for (int i = 0; i < 44; ++i) send_in_order(1460);
  }
  ~FullWindow() override {
    peer_.machine().on(0, [this] { held_ = Buffer{}; });
  }
  void send_in_order(std::size_t bytes) {
    peer_.send_data(pattern_bytes(sent_, bytes, 6));
    sent_ += bytes;
  }
  /// Sends a segment that begins `ahead` bytes after the end of the peer's in-order bytes.
  void send_ahead(std::size_t ahead, std::size_t bytes, std::uint8_t flags = tcp::ack) {
    peer_.send({.seq = peer_.seq + static_cast<std::uint32_t>(ahead),
                .acknowledged = peer_.acknowledged,
                .flags = flags,
                .payload = pattern_bytes(sent_ + ahead, bytes, 6)});
  }
  void expect_edge_kept() {
    for (const Segment& segment : peer_.take_segments()) {
      EXPECT_LE(static_cast<std::int32_t>(segment.acknowledged + segment.window - right_edge_), 0);
    }
    EXPECT_EQ(peer_.record().mismatches, 0U);
  }
  [[nodiscard]] std::size_t left() const { return 0xFFFF - sent_; }

  Buffer held_;
  HandPeer peer_;
  std::uint32_t right_edge_ = 0;
  std::size_t sent_ = 0;
};

// In an earlier version, an out-of-order segment could reach beyond the window. When the gap was filled, the window wrapped below 0.
TEST_F(FullWindow, SegmentKeptOutOfOrderEndsAtTheEdge) {
  send_ahead(left() - 95, 1000);
  send_in_order(left() - 95);
  EXPECT_EQ(peer_.record().received, 0xFFFFU);
  expect_edge_kept();
}

TEST_F(FullWindow, SegmentKeptInFrontOfOthersEndsAtTheEdge) {
  send_ahead(left() - 10, 10);
  send_ahead(left() - 95, 1000, tcp::ack | tcp::fin);
  send_in_order(left() - 95);
  EXPECT_EQ(peer_.record().received, 0xFFFFU);
  EXPECT_EQ(peer_.record().peer_closed, 0) << "its FIN was beyond the edge";
  expect_edge_kept();
}

// Data after a FIN is ignored. In an earlier version, such data moved the FIN, and the end of accepted data, beyond the window.
TEST_F(FullWindow, NothingFollowsAFin) {
  send_ahead(left() - 95, 10, tcp::ack | tcp::fin);
  send_in_order(left());
  EXPECT_EQ(peer_.record().received, 0xFFFFU - 85);
  EXPECT_EQ(peer_.record().peer_closed, 1);
  expect_edge_kept();
}

TEST_F(FullWindow, NothingFollowsAFinThatWasKept) {
  send_ahead(left() - 95, 10, tcp::ack | tcp::fin);
  send_ahead(left() - 100, 100);
  send_in_order(left() - 100);
  EXPECT_EQ(peer_.record().received, 0xFFFFU - 85);
  EXPECT_EQ(peer_.record().peer_closed, 1);
  expect_edge_kept();
}

// In an earlier version, a forged SYN made the machine send a reset to the peer, with a sequence number that the forger chose. A forged FIN
// kept the connection in TIME-WAIT.
TEST_F(ForgedSegments, TimeWaitAnswersASynByAnAck) {
  peer.open();
  peer.close_by_application();
  const std::vector<Segment> end = peer.take_segments();
  ASSERT_EQ(end.size(), 1U);
  ASSERT_EQ(end[0].flags & tcp::fin, tcp::fin);
  ++peer.acknowledged;
  peer.send({.seq = peer.seq, .acknowledged = peer.acknowledged, .flags = tcp::ack | tcp::fin});
  ++peer.seq;
  peer.take_segments();
  for (int i = 0; i < 5; ++i) {
    peer.send({.seq = peer.seq - 5, .acknowledged = 12345, .flags = tcp::syn});
    peer.send({.seq = peer.seq + 5, .acknowledged = 12345, .flags = tcp::fin | tcp::ack});
  }
  const std::vector<Segment> answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].flags, tcp::ack);
  // The peer's own FIN, repeated after a lost ACK, is answered every time.
  for (int i = 0; i < 3; ++i) {
    peer.send({.seq = peer.seq - 1, .acknowledged = peer.acknowledged, .flags = tcp::ack | tcp::fin});
    EXPECT_EQ(peer.take_segments().size(), 1U);
  }
  // A SYN with a later number begins a new connection (RFC 1122, 4.2.2.13).
  peer.send({.seq = peer.seq + 5, .flags = tcp::syn});
  const std::vector<Segment> answer = peer.take_segments();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].flags, tcp::syn | tcp::ack);
  EXPECT_GT(static_cast<std::int32_t>(answer[0].seq - peer.acknowledged), 0);
}

// The resets to segments of connections that do not exist have a limit for each second, and those that it suppresses are counted.
TEST_F(ForgedSegments, ResetsAreLimited) {
  constexpr std::size_t segments = 4000, of_a_second = 1000;
  std::size_t answers = 0;
  for (std::size_t i = 0; i < segments; ++i) {
    peer.send({.seq = 1000, .acknowledged = 2000});
    answers += peer.take_segments().size();
  }
  EXPECT_GE(answers, of_a_second / 2);
  EXPECT_LE(answers, of_a_second * 2);
  EXPECT_EQ(answers + peer.counters().resets_limited, segments);
}

// Two fragments at different offsets are both marked as the datagram's last one. An earlier version then delivered a wrong datagram.
TEST_F(ForgedSegments, FragmentsBeyondTheEndAreDropped) {
  std::atomic<std::size_t> bytes{0};
  std::atomic<int> datagrams{0};
  peer.machine().run(0, [&]() -> task<void> {
    EXPECT_TRUE((co_await peer.network().receive_datagrams(9, [&](const Datagram& datagram) {
                  bytes += datagram.data.bytes();
                  ++datagrams;
                })).has_value());
  });
  constexpr std::uint8_t udp = 17;
  constexpr std::uint16_t more = 0x2000;
  const auto number = [](unsigned value) { return static_cast<std::byte>(value); };
  const Bytes header{number(0), number(9), number(0), number(9), number(0), number(16), number(0), number(0)};
  const auto arrive = [&](const Bytes& payload, std::uint16_t fragment) {
    peer.card().arrive(HandPeer::ipv4_frame(udp, payload, 77, fragment), 0);
    peer.settle();
  };
  arrive(Bytes(8, number(1)), 1);                                     // the last fragment: the datagram has 16 bytes
  arrive(Bytes(8, number(2)), static_cast<std::uint16_t>(more | 2));  // a fragment beyond the datagram's end
  arrive(Bytes(8, number(3)), 3);                                     // a second fragment that is marked as the last
  arrive(header, more);
  EXPECT_EQ(datagrams, 1);
  EXPECT_EQ(bytes, 8U);

  // The datagram has 65,535 bytes after its header of 20 bytes. In an earlier version, the length of the whole datagram wrapped.
  constexpr std::size_t piece = 1472;
  for (std::size_t begin = 0; begin < 0xFFFF; begin += piece) {
    const std::size_t length = std::min(piece, 0xFFFF - begin);
    arrive(Bytes(length, number(4)), static_cast<std::uint16_t>((begin == 1472 ? 0U : more) | begin / 8));
  }
  EXPECT_EQ(datagrams, 1);
}

}  // namespace
}  // namespace neap::net::testing
