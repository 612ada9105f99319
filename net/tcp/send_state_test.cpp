// SPDX-License-Identifier: BSL-1.0
// The sender's decisions for single events. send_simulation_test.cpp has whole transfers.
#include "net/tcp/send_state.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace neap::net::tcp {
namespace {

using Kind = SendState::Action::Kind;
using Timer = SendState::Timer;

constexpr std::uint32_t mss = 1'000;

class Sender : public testing::Test {
 protected:
  void TearDown() override {
    release(state.abandon());
    Flow::trim();
  }
  void establish(Settings chosen = {}, bool sack = true, std::uint32_t window = 1U << 20) {
    state.begin(first, chosen);
    state.establish(mss, sack, chosen.ecn);
    state.update_window(1, first, window);
    peer_window = window;
  }
  void send(std::uint32_t bytes) {
    auto* const segment = new SentSegment;
    segment->bytes = bytes;
    state.sent(*segment, now_us);
  }
  /// Sends `segments` of one MSS each.
  void send_segments(unsigned segments) {
    for (unsigned i = 0; i < segments; ++i) send(mss);
  }
  /// Returns the newly acknowledged numbers. `number` and the blocks count from the first number.
  std::uint32_t acknowledge(std::uint32_t number, std::initializer_list<SequenceRange> blocks = {}, bool ece = false) {
    std::vector<SequenceRange> sack;
    for (const SequenceRange& block : blocks) sack.push_back({first + block.first, first + block.end});
    const SendState::Acknowledged result = state.on_ack({.now_us = now_us,
                                                         .number = first + number,
                                                         .sequence = 1,
                                                         .window = peer_window,
                                                         .segment_length = 0,
                                                         .sack = sack,
                                                         .echoed_ms = echoed_ms,
                                                         .has_echo = echoed_ms != 0,
                                                         .ece = ece,
                                                         .more_queued = true},
                                                        &split);
    release(result.segments);
    return result.numbers;
  }
  SendState::Action fire(std::uint32_t queued = 0) {
    EXPECT_NE(state.timer(), Timer::none);
    now_us = std::max(now_us, state.due_us(now_us));
    const SendState::Action action = state.on_timer(now_us, queued, &split);
    release(action.acknowledged);
    return action;
  }
  /// Sends all that is to be sent again. Returns the first numbers, counted from the first number of all.
  std::vector<std::uint32_t> resend() {
    std::vector<std::uint32_t> numbers;
    while (SentSegment* const segment = state.next_retransmission(now_us, &split)) {
      numbers.push_back(segment->sequence - first);
      state.resent(*segment, now_us);
    }
    return numbers;
  }
  static SentSegment* split(SentSegment& /*segment*/, std::uint32_t /*first_bytes*/) noexcept {
    ++splits;
    return new SentSegment;
  }
  static void release(SentSegment* segment) {
    while (segment != nullptr) delete std::exchange(segment, segment->next);
  }
  unsigned segments() const {
    unsigned count = 0;
    for (const SentSegment* segment = state.head; segment != nullptr; segment = segment->next) ++count;
    return count;
  }

  static constexpr std::uint32_t first = 0xFFFF'F000;  // numbers wrap
  static inline unsigned splits = 0;
  SendState state;
  std::uint64_t now_us = 0xFFFF'0000;  // so does the low word of the clock
  std::uint32_t echoed_ms = 0;
  std::uint32_t peer_window = 0;
};

TEST_F(Sender, AReplyNeedsNoFlow) {
  establish();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(state.fits(mss));
    send(mss);
    EXPECT_EQ(state.timer(), Timer::retransmission);
    now_us += 300;
    ASSERT_TRUE(state.plain(state.nxt));
    release(state.ack_all(now_us));
    EXPECT_EQ(state.timer(), Timer::none);
  }
  EXPECT_EQ(state.flow, nullptr);
  EXPECT_EQ(state.cwnd, 10 * mss) << "a window that is not used does not grow";
  EXPECT_NEAR(state.round_trip.smoothed_us(), 300, 10);
  EXPECT_NEAR(state.round_trip.rto_us, 200'300, 50);
}

TEST_F(Sender, TheInitialWindowIsTenSegments) {
  establish();
  EXPECT_EQ(state.room(now_us, 100 * mss), 10 * mss);
  EXPECT_EQ(state.room(now_us, 3 * mss + 7), 3 * mss + 7) << "the last bytes are sent at once";
  SendState large;
  large.begin(0, {});
  large.establish(8'960, true, false);
  EXPECT_EQ(large.cwnd, 2U * 8'960);
}

TEST_F(Sender, ThePeersWindowIsNeverExceeded) {
  establish({}, true, 3'500);
  EXPECT_EQ(state.room(now_us, 100 * mss), 3 * mss);
  send(3 * mss);
  EXPECT_EQ(state.room(now_us, 100 * mss), 0U) << "500 bytes would be a silly window";
  EXPECT_EQ(state.room(now_us, 400), 400U);
}

TEST_F(Sender, TheSettingBoundsTheBytesInFlight) {
  const Settings before = std::exchange(settings, {.send_bytes_max = 64'000});
  establish();
  state.last_sent_us = static_cast<std::uint32_t>(now_us);  // not idle
  state.cwnd = 200 * mss;
  EXPECT_EQ(state.room(now_us, 100 * mss), 64 * mss);
  send(64 * mss);
  EXPECT_EQ(state.room(now_us, 100 * mss), 0U);
  settings = before;
}

TEST_F(Sender, AHalfOfTheLargestWindowIsNotSilly) {
  establish({}, true, 900);
  EXPECT_EQ(state.room(now_us, 100 * mss), 900U);
}

TEST_F(Sender, RetransmissionTimeOutsDoubleUntilAMeasurement) {
  establish();
  send(mss);
  now_us += 10'000;
  release(state.ack_all(now_us));
  send(mss);
  const std::uint32_t rto_us = state.round_trip.rto_us;
  const std::uint64_t sent_us = now_us;
  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(state.timer(), Timer::retransmission);
    fire();
    EXPECT_EQ(resend(), std::vector<std::uint32_t>{1'000});
    EXPECT_EQ(state.round_trip.rto_us, rto_us << (i + 1));
  }
  EXPECT_EQ(now_us - sent_us, 15ULL * rto_us);
  // Karn: the acknowledgement of a segment that was sent twice is no measurement, so the next segment has the long time-out.
  acknowledge(2'000);
  EXPECT_EQ(state.round_trip.rto_us, rto_us << 4);
  send(mss);
  now_us += 10'000;
  acknowledge(3'000);
  EXPECT_LT(state.round_trip.rto_us, rto_us * 2);
}

TEST_F(Sender, AnEchoMeasuresARetransmission) {
  establish();
  send(mss);
  fire();
  resend();
  echoed_ms = static_cast<std::uint32_t>(now_us / 1'000);
  now_us += 20'000;
  acknowledge(1'000);
  EXPECT_NEAR(state.round_trip.smoothed_us(), 20'000, 1'000);
  EXPECT_EQ(state.backoff, 0);
}

TEST_F(Sender, ASilentPeerIsGivenUpAfterFifteenMinutes) {
  establish();
  send(mss);
  const std::uint64_t from_us = now_us;
  unsigned fired = 0;
  while (fire().kind != Kind::give_up) {
    resend();
    ASSERT_LT(++fired, 40U);
  }
  EXPECT_GE(now_us - from_us, 900'000'000U);
  EXPECT_LE(now_us - from_us, 1'100'000'000U);
}

TEST_F(Sender, ThreeReportedSegmentsMeanALoss) {
  establish();
  send_segments(6);
  now_us += 10'000;
  EXPECT_EQ(acknowledge(0, {{1'000, 2'000}}), 0U);
  EXPECT_EQ(state.room(now_us, 50 * mss), 5 * mss) << "limited transmit (RFC 3042): what has arrived leaves room";
  acknowledge(0, {{1'000, 3'000}});
  EXPECT_FALSE(state.has_retransmission());
  acknowledge(0, {{1'000, 4'000}});
  ASSERT_TRUE(state.has_retransmission());
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{0});
  EXPECT_EQ(state.ssthresh, 7 * mss) << "CUBIC's 0.7";
  EXPECT_EQ(acknowledge(6'000), 6'000U);
  EXPECT_NEAR(state.cwnd, 7 * mss, mss / 2);
  EXPECT_EQ(state.flow->phase, Phase::open);
}

// Bytes behind a lost segment stay unacknowledged for a round trip, and new ones must follow them. A bound by the reduced window would stop
// the sender until the end of recovery.
TEST_F(Sender, ALossDoesNotShrinkTheQueue) {
  establish();
  state.cwnd = 100 * mss;
  EXPECT_EQ(state.send_bytes_wanted(), 200 * mss);
  send_segments(100);
  now_us += 10'000;
  acknowledge(0, {{1'000, 4'000}});
  ASSERT_EQ(state.flow->phase, Phase::recovery);
  EXPECT_EQ(state.ssthresh, 70 * mss);
  EXPECT_EQ(state.send_bytes_wanted(), 200 * mss);
}

TEST_F(Sender, ASegmentThatIsLateIsAwaitedForAQuarterOfTheRoundTrip) {
  establish();
  send(mss);
  now_us += 40'000;
  release(state.ack_all(now_us));
  send_segments(3);
  now_us += 40'000;
  acknowledge(1'000, {{2'000, 3'000}});
  EXPECT_EQ(state.timer(), Timer::reordering);
  EXPECT_NEAR(static_cast<double>(state.due_us(now_us) - now_us), 10'000, 500);
  now_us += 5'000;
  EXPECT_EQ(acknowledge(4'000), 3'000U);
  EXPECT_TRUE(state.flow->reordering_seen);
  EXPECT_EQ(state.cwnd, 10 * mss);
}

TEST_F(Sender, HostileBlocksChangeNothing) {
  establish();
  send(20 * mss);
  now_us += 10'000;
  splits = 0;
  const auto huge = 0x8000'0000U;
  acknowledge(0, {{20'000, 21'000}, {5'000, 4'000}, {4'000, 4'000}, {0U - huge, 4'000}});
  acknowledge(0, {{0U - 9'000, 3'000}, {19'000, 20'001}, {1, 999}, {500, 600}});
  EXPECT_EQ(state.flow->sacked, 0U);
  EXPECT_EQ(state.flow->lost, 0U);
  // Blocks of single bytes split nothing: a peer makes at most one segment for each frame.
  for (std::uint32_t at = 1; at < 20'000; at += 7) acknowledge(0, {{at, at + 1}});
  EXPECT_LE(segments(), 20U);
  for (std::uint32_t at = 1; at < 20'000; at += 7) acknowledge(0, {{at, at + 1'500}});
  EXPECT_LE(segments(), 20U);
  EXPECT_EQ(acknowledge(20'000), 20'000U);
  EXPECT_EQ(state.flow->sacked, 0U);
}

TEST_F(Sender, ALongSegmentIsSplitAtWhatIsLost) {
  establish();
  send(10 * mss);
  now_us += 10'000;
  acknowledge(3'000, {{4'000, 10'000}});
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{3'000});
  EXPECT_EQ(state.head->bytes, 1'000U);
  EXPECT_EQ(state.in_flight(), 1'000U);
  EXPECT_EQ(acknowledge(10'000), 7'000U);
  EXPECT_EQ(state.head, nullptr);
}

TEST_F(Sender, ATailLossIsProbedBeforeTheTimeOut) {
  establish();
  send(mss);
  now_us += 20'000;
  release(state.ack_all(now_us));
  send_segments(3);
  EXPECT_EQ(state.timer(), Timer::tail_probe);
  EXPECT_LE(state.due_us(now_us) - now_us, 50'000U);
  const SendState::Action action = fire();
  ASSERT_EQ(action.kind, Kind::resend);
  EXPECT_EQ(action.segment->sequence - first, 3'000U);
  state.resent(*action.segment, now_us);
  EXPECT_EQ(state.timer(), Timer::retransmission) << "one probe only";
  // The probe's SACK shows the loss of the rest.
  now_us += 20'000;
  acknowledge(1'000, {{3'000, 4'000}});
  fire();
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{1'000});
  now_us += 20'000;
  acknowledge(2'000, {{3'000, 4'000}});
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{2'000});
  now_us += 20'000;
  acknowledge(4'000);
  EXPECT_LT(state.cwnd, 10 * mss);
}

TEST_F(Sender, AProbeThatWasNotNeededReducesNothing) {
  establish();
  send(mss);
  now_us += 20'000;
  release(state.ack_all(now_us));
  send_segments(2);
  const SendState::Action action = fire();
  ASSERT_EQ(action.kind, Kind::resend);
  state.resent(*action.segment, now_us);
  acknowledge(3'000);
  now_us += 20'000;
  send(mss);
  acknowledge(3'000, {{2'000, 3'000}});  // DSACK
  now_us += 20'000;
  acknowledge(4'000);
  EXPECT_EQ(state.cwnd, 10 * mss);
}

// Eifel: the echo is older than the retransmission.
TEST_F(Sender, ASpuriousTimeOutIsUndone) {
  establish();
  send_segments(10);
  echoed_ms = static_cast<std::uint32_t>(now_us / 1'000);
  fire();
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{0});
  EXPECT_EQ(state.cwnd, 1 * mss);
  now_us += 100'000;
  acknowledge(2'000);
  EXPECT_GE(state.cwnd, 10 * mss);
  EXPECT_EQ(state.ssthresh, ~0U);
  EXPECT_FALSE(state.has_retransmission());
  EXPECT_EQ(state.in_flight(), 8 * mss);
}

TEST_F(Sender, AProvenTimeOutStartsSlowly) {
  establish();
  send_segments(10);
  fire();
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{0});
  echoed_ms = static_cast<std::uint32_t>(now_us / 1'000);
  now_us += 100'000;
  acknowledge(1'000);
  EXPECT_EQ(resend().size(), 0U) << "F-RTO: new bytes first";
  EXPECT_EQ(state.room(now_us, 5 * mss), 2 * mss);
  send_segments(2);
  now_us += 100'000;
  acknowledge(1'000, {{10'000, 11'000}});
  EXPECT_EQ(resend(), (std::vector<std::uint32_t>{1'000, 2'000}));
  EXPECT_EQ(state.ssthresh, 7 * mss);
}

TEST_F(Sender, AClosedWindowIsProbedForEver) {
  establish({}, true, 0);
  EXPECT_EQ(state.room(now_us, 5'000), 0U);
  ASSERT_EQ(state.timer(), Timer::window_probe);
  std::uint64_t last_us = now_us;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(fire(5'000).kind, Kind::probe_window);
    EXPECT_EQ(state.window_probe_bytes(5'000), 0U);
    EXPECT_LE(now_us - last_us, 60'000'000U);
    last_us = now_us;
    acknowledge(0);
  }
  EXPECT_GT(state.window_closed_s(now_us), 3'600U);
  peer_window = 10'000;
  acknowledge(0);
  EXPECT_EQ(state.room(now_us, 5'000), 5'000U);
  EXPECT_EQ(state.window_closed_s(now_us), 0U);
}

TEST_F(Sender, AClosedWindowOfASilentPeerEnds) {
  establish({}, true, 0);
  EXPECT_EQ(state.room(now_us, 5'000), 0U);
  const std::uint64_t from_us = now_us;
  unsigned probes = 0;
  while (fire(5'000).kind == Kind::probe_window) ASSERT_LT(++probes, 30U);
  EXPECT_GE(now_us - from_us, 100'000'000U) << "R2 of RFC 9293 is at least 100 s";
}

TEST_F(Sender, AnIdleConnectionStartsSlowlyAndHoldsNoFlow) {
  establish();
  for (int round = 0; round < 4; ++round) {
    while (const std::uint32_t room = state.room(now_us, 1U << 20)) send(room);
    now_us += 10'000;
    acknowledge(state.nxt - first);
  }
  EXPECT_GT(state.cwnd, 60 * mss);
  ASSERT_NE(state.flow, nullptr);
  ASSERT_EQ(state.timer(), Timer::idle);
  fire();
  EXPECT_EQ(state.flow, nullptr);
  EXPECT_EQ(state.timer(), Timer::none);
  now_us += 3'000'000;
  EXPECT_EQ(state.room(now_us, 1U << 20), 10 * mss) << "RFC 5681, 4.1";
}

TEST_F(Sender, EcnReducesOnceInARoundTrip) {
  establish({.ecn = true});
  while (const std::uint32_t room = state.room(now_us, 1U << 20)) send(room);
  now_us += 10'000;
  acknowledge(2'000, {}, true);
  EXPECT_TRUE(state.take_cwr());
  EXPECT_FALSE(state.take_cwr());
  const std::uint32_t threshold = state.ssthresh;
  EXPECT_EQ(threshold, 7 * mss);
  acknowledge(4'000, {}, true);
  EXPECT_EQ(state.ssthresh, threshold);
  acknowledge(10'000);
  EXPECT_NEAR(state.cwnd, threshold, mss / 2);
  EXPECT_FALSE(state.has_retransmission());
}

TEST_F(Sender, ASmallerMssSendsAgainWithoutReduction) {
  establish();
  send_segments(4);
  state.change_mss(600, now_us);
  EXPECT_EQ(state.flow->lost, 4'000U);
  const std::uint32_t window = state.cwnd;
  const std::vector<std::uint32_t> numbers = resend();
  EXPECT_EQ(numbers.size(), 4U);
  EXPECT_EQ(state.cwnd, window);
  EXPECT_EQ(acknowledge(4'000), 4'000U);
}

TEST_F(Sender, ALostSynMakesTheWindowOneSegment) {
  state.begin(first, {});
  auto* const syn = new SentSegment;
  syn->flags = SentSegment::syn;
  state.sent(*syn, now_us);
  EXPECT_EQ(state.nxt, first + 1);
  EXPECT_EQ(state.due_us(now_us) - now_us, 1'000'000U);
  EXPECT_EQ(fire().kind, Kind::none);
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{0});
  EXPECT_EQ(state.due_us(now_us) - now_us, 2'000'000U);
  EXPECT_EQ(acknowledge(1), 1U);
  state.establish(mss, true, false);
  EXPECT_EQ(state.cwnd, mss);
  EXPECT_EQ(state.round_trip.rto_us, 3'000'000U);
}

TEST_F(Sender, AFinTakesANumber) {
  establish();
  auto* const segment = new SentSegment;
  segment->bytes = 5;
  segment->flags = SentSegment::fin;
  state.sent(*segment, now_us);
  EXPECT_EQ(state.nxt, first + 6);
  now_us += 1'000;
  EXPECT_EQ(acknowledge(5), 5U);
  ASSERT_NE(state.head, nullptr);
  EXPECT_EQ(acknowledge(6), 1U);
  EXPECT_EQ(state.head, nullptr);
}

TEST_F(Sender, ARenegingPeerGetsAllAgain) {
  establish();
  send_segments(5);
  now_us += 10'000;
  acknowledge(0, {{1'000, 5'000}});
  resend();
  acknowledge(1'000);  // and the blocks are gone
  while (state.timer() != Timer::retransmission) fire();
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 4 && state.head != nullptr; ++i) {
    fire();
    for (const std::uint32_t number : resend()) numbers.push_back(number);
    now_us += 10'000;
    acknowledge(2'000 + static_cast<std::uint32_t>(i) * 1'000);
  }
  EXPECT_EQ(state.head, nullptr);
  EXPECT_FALSE(numbers.empty());
}

TEST_F(Sender, WithoutSackThreeDuplicatesMeanALoss) {
  establish({}, false);
  send_segments(8);
  now_us += 10'000;
  for (int i = 0; i < 3; ++i) acknowledge(0);
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{0});
  now_us += 10'000;
  acknowledge(3'000);  // partial: RFC 6582
  EXPECT_EQ(resend(), std::vector<std::uint32_t>{3'000});
  now_us += 10'000;
  acknowledge(8'000);
  EXPECT_EQ(state.cwnd, 7 * mss);
}

}  // namespace
}  // namespace neap::net::tcp
