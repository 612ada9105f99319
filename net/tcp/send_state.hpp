// SPDX-License-Identifier: BSL-1.0
// The sending side of a connection: how much may be sent, what was lost, and when something is due.
//
// A reply that fits the windows is sent at once and acknowledged at once, thousands of times a second. A long transfer needs congestion
// control, loss detection and several timers. Both use this object. Its inline functions serve the first case in a few dozen instructions;
// all state that only the second case needs is in a Flow (flow.hpp), which most connections do not have.
//
// The object contains logic only: it sends nothing, reads no clock and knows no frames. Its owner calls `sent` and `resent` for segments
// that the card has taken, `on_ack` for acknowledgements, and `on_timer` when `due_us` has passed. After each of these, the owner sends the
// segments of `next_retransmission`, and then as many new bytes as `room` permits.
//
// Rules: RFC 9293, 5681 (with the limited transmit of 3042), 6298, 6582, 6675, 6928, 6937, 8985 (RACK-TLP), 5682 (F-RTO), 3522 and 4015
// (undoing spurious reductions), 9438 (CUBIC), 8257 (DCTCP), 9406 (HyStart++), 3168 (ECN), 7661 (only a window that is used grows).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "net/tcp/flow.hpp"
#include "net/tcp/round_trip.hpp"
#include "net/tcp/sent_segment.hpp"
#include "net/tcp/sequence.hpp"
#include "net/tcp/settings.hpp"

namespace neap::net::tcp {

/// The fields of an acceptable segment with the flag ACK that matter to the sender. The caller MUST have checked that `number` is at most
/// `nxt`.
struct Acknowledgement {
  std::uint64_t now_us;                 ///< the boot clock
  std::uint32_t number;                 ///< SEG.ACK
  std::uint32_t sequence;               ///< SEG.SEQ
  std::uint32_t window;                 ///< SEG.WND, scaled
  std::uint32_t segment_length;         ///< SEG.LEN; only segments without payload are duplicate acknowledgements
  std::span<const SequenceRange> sack;  ///< as received; not trusted
  std::uint32_t echoed_ms = 0;          ///< TSecr without the connection's offset: a value of (boot clock in us / 1000), low word
  bool has_echo = false;
  bool ece = false;          ///< the flag ECE, on a connection that uses ECN
  bool more_queued = false;  ///< the owner has bytes that were never sent
};

class SendState {
 public:
  enum class Timer : std::uint8_t {
    none,
    retransmission,  ///< RFC 6298
    tail_probe,      ///< RFC 8985, 7
    reordering,      ///< RFC 8985, 6.3
    window_probe,    ///< RFC 9293, 3.8.6.1; also ends the avoidance of silly windows
    pacing,
    idle,  ///< releases the Flow
  };
  struct Action {
    enum class Kind : std::uint8_t {
      none,          ///< only call `next_retransmission` and `room`, as after an acknowledgement
      resend,        ///< send `segment` again, whatever the congestion window permits, and call `resent`
      probe_new,     ///< send one segment of new bytes, whatever the congestion window permits, and call `sent`
      probe_window,  ///< send `window_probe_bytes` new bytes and call `sent`; if that is 0, an empty segment with the number `una - 1`
      give_up,       ///< end the connection: the peer does not answer
    };
    Kind kind = Kind::none;
    SentSegment* segment = nullptr;
    SentSegment* acknowledged = nullptr;  ///< a part that was acknowledged before; the owner releases it
  };
  static constexpr std::uint32_t initial_window_segments = 10;  // RFC 6928
  /// The peer's window makes no shorter segments, except those of a window probe.
  static constexpr std::uint32_t least_segment_bytes = 88;
  /// A segment that is not acknowledged for so long ends the connection, as on Linux with tcp_retries2 = 15. RFC 9293 asks for 100 s.
  static constexpr std::uint32_t give_up_s = 924;
  static constexpr std::uint32_t burst_bytes_max = 0xFFFF - 120;  ///< payload of the longest segment that a card cuts up

  // --- Beginning and end ---
  /// Before the SYN. The first number is `first`. Takes the settings.
  void begin(std::uint32_t first, const Settings& chosen) noexcept;
  /// After the handshake. `mss` is the payload of a full segment, without the room for the options that each segment has.
  void establish(std::uint32_t mss, bool sack, bool ecn) noexcept;
  /// Takes all segments from the sender, and releases the Flow. No timer is due then.
  [[nodiscard]] SentSegment* abandon() noexcept;

  // --- Sending ---
  /// The numbers that are believed to be in the network.
  [[nodiscard]] std::uint32_t in_flight() const noexcept {
    const std::uint32_t outstanding = nxt - una;
    if (flow == nullptr) [[likely]]
      return outstanding;
    const std::uint32_t absent = flow->sacked + flow->lost;
    return outstanding - std::min(outstanding, absent);
  }
  /// True if nothing is believed to be lost. Then an acknowledgement may be dropped if a later one has a greater number.
  [[nodiscard]] bool is_open() const noexcept {
    return (flow == nullptr || flow->phase == Phase::open) && (state_flags_ & (head_lost | in_recovery)) == 0;
  }
  /// True if the whole queue, with so many bytes, may be sent now as one segment. False says nothing; ask `room`.
  [[nodiscard, gnu::always_inline]] bool fits(std::uint32_t bytes) const noexcept {
    return flow == nullptr && bytes <= mss && nxt - una + bytes <= std::min(window, cwnd) && (state_flags_ & unusual) == 0;
  }
  /// Returns how many of `queued` bytes may be sent now: all of them, or a multiple of the MSS, or as much as the avoidance of silly
  /// windows permits (RFC 9293, 3.8.6.2.1). If the result is 0 and nothing is in flight, the window probe's timer is armed. Nagle's
  /// algorithm is left to the caller. A result longer than `burst_bytes_max` takes several segments.
  [[nodiscard]] std::uint32_t room(std::uint64_t now_us, std::uint32_t queued) noexcept;
  /// `segment` was sent for the first time. Its numbers begin at `nxt`.
  [[gnu::always_inline]] void sent(SentSegment& segment, std::uint64_t now_us) noexcept { sent_up_to(segment, segment.numbers(), now_us); }
  /// As `sent`, for a segment without SYN and FIN.
  [[gnu::always_inline]] void sent_bytes(SentSegment& segment, std::uint64_t now_us) noexcept {
    sent_up_to(segment, segment.bytes, now_us);
  }
  /// True once after each reduction because of ECN: the next new segment MUST have the flag CWR.
  [[nodiscard]] bool take_cwr() noexcept { return flow != nullptr && std::exchange(flow->cwr_due, false); }

  // --- Acknowledgements ---
  /// RFC 9293, 3.10.7.4: takes the window of an acceptable segment.
  [[gnu::always_inline]] void update_window(std::uint32_t sequence, std::uint32_t number, std::uint32_t offered) noexcept {
    if (before(wl1, sequence) || (wl1 == sequence && at_or_before(wl2, number))) [[likely]]
      take_window(sequence, number, offered);
  }
  /// As `update_window`, for a segment that begins at RCV.NXT and does not acknowledge less than an earlier one: it is the newest one.
  [[gnu::always_inline]] void take_window(std::uint32_t sequence, std::uint32_t number, std::uint32_t offered) noexcept {
    window = offered;
    if (offered > window_max) [[unlikely]]
      window_max = offered;
    wl1 = sequence;
    wl2 = number;
  }
  /// True if an acknowledgement of `number` without SACK blocks and ECE may go to `ack_all`.
  [[nodiscard, gnu::always_inline]] bool plain(std::uint32_t number) const noexcept {
    return flow == nullptr && number == nxt && head != nullptr && (state_flags_ & unusual) == 0;
  }
  /// All that was sent is acknowledged. Requires `plain(nxt)`. Returns the segments. The window is updated apart.
  [[nodiscard, gnu::always_inline]] SentSegment* ack_all(std::uint64_t now_us) noexcept;
  struct Acknowledged {
    SentSegment* segments;  ///< no longer the sender's; the owner releases them
    std::uint32_t numbers;  ///< newly acknowledged, a SYN and a FIN included; 0 if `una` is as before
  };
  /// Any acknowledgement; also takes the window.
  [[nodiscard]] Acknowledged on_ack(const Acknowledgement& ack, SplitSegment split) noexcept;

  // --- Retransmissions ---
  [[nodiscard]] bool has_retransmission() const noexcept { return flow != nullptr ? flow->lost != 0 : (state_flags_ & head_lost) != 0; }
  /// Returns the next segment to send again; null if there is none, or if the windows do not permit it. The caller calls `resent` after
  /// it was sent. The result MAY have more than the MSS.
  [[nodiscard]] SentSegment* next_retransmission(std::uint64_t now_us, SplitSegment split) noexcept;
  void resent(SentSegment& segment, std::uint64_t now_us) noexcept;

  // --- Timers ---
  [[nodiscard]] Timer timer() const noexcept { return timer_; }
  /// The time at which `on_timer` is due. Valid if `timer()` is not `none`, and within 30 min after the last call.
  [[nodiscard]] std::uint64_t due_us(std::uint64_t now_us) const noexcept {
    return now_us + static_cast<std::uint64_t>(std::int64_t{distance(static_cast<std::uint32_t>(now_us), due_)});
  }
  /// Does nothing if the timer is not due. `queued`: bytes that were never sent.
  [[nodiscard]] Action on_timer(std::uint64_t now_us, std::uint32_t queued, SplitSegment split) noexcept;
  /// The new bytes of a window probe: those that the peer's window permits.
  [[nodiscard]] std::uint32_t window_probe_bytes(std::uint32_t queued) const noexcept {
    return std::min({queued, window - std::min(window, nxt - una), std::uint32_t{mss}});
  }
  /// Seconds since the peer closed its window with bytes waiting and nothing in flight; 0 if it is open.
  [[nodiscard]] std::uint32_t window_closed_s(std::uint64_t now_us) const noexcept {
    return (state_flags_ & window_stalled) != 0 ? seconds(now_us) - stalled_s_ : 0;
  }

  // --- The path ---
  /// Changes the MSS. Segments in flight that are longer than the new one are sent again, without a reduction of the window (RFC
  /// 1191, 6.5).
  void change_mss(std::uint32_t new_mss, std::uint64_t now_us) noexcept;
  /// RFC 6069: ICMP says that the path is broken, so the last time-out did not mean congestion. Halves the time-out again.
  void revert_backoff(std::uint64_t now_us) noexcept;
  /// Bytes that the connection should be able to keep unacknowledged: twice the window, so that it can grow. After a loss it is the window
  /// from before, because the bytes behind the lost ones are not acknowledged yet.
  [[nodiscard]] std::uint32_t send_bytes_wanted() const noexcept {
    return 2 * std::min(std::max(cwnd, flow != nullptr ? flow->prior_window : 0), window_bytes_max);
  }

  std::uint32_t una = 0;         ///< SND.UNA
  std::uint32_t nxt = 0;         ///< SND.NXT
  std::uint32_t window = 0;      ///< SND.WND
  std::uint32_t window_max = 0;  ///< the largest window that the peer has offered
  std::uint32_t wl1 = 0, wl2 = 0;
  std::uint32_t cwnd = 0;
  std::uint32_t ssthresh = ~0U;
  SentSegment* head = nullptr;  ///< the segment with `una`
  SentSegment* tail = nullptr;
  Flow* flow = nullptr;
  RoundTrip round_trip;
  std::uint32_t rto_min_us = 200'000;
  std::uint32_t last_sent_us = 0;
  std::uint16_t mss = 536;
  std::uint8_t backoff = 0;     ///< time-outs since the last new measurement; each doubles the time-out (RFC 6298, 5.5)
  std::uint8_t unanswered = 0;  ///< window probes and time-outs since the peer's last segment

 private:
  enum StateFlag : std::uint8_t {
    uses_sack = 1 << 0,
    uses_ecn = 1 << 1,
    uses_pacing = 1 << 2,
    syn_repeated = 1 << 3,
    head_lost = 1 << 4,            ///< without a Flow: `head` is to be sent again
    in_recovery = 1 << 5,          ///< without a Flow: until `plain_recover_` is acknowledged
    window_stalled = 1 << 6,       ///< `stalled_s_` counts the time of a closed window
    unanswered_time_out = 1 << 7,  ///< `stalled_s_` counts the time without an acknowledgement
    unusual = head_lost | in_recovery | window_stalled | unanswered_time_out,
  };
  /// The effects of one acknowledgement.
  struct Progress {
    std::uint32_t now_us, prior_una;
    std::uint32_t acked = 0;                            ///< by which `una` has advanced
    std::uint32_t delivered = 0;                        ///< acknowledged or reported by SACK for the first time
    std::uint32_t lost = 0;                             ///< newly marked as lost
    std::uint32_t first_sent_us = 0, last_sent_us = 0;  ///< of original transmissions that were acknowledged, if `has_round_trip`
    std::uint32_t sacked_sent_us = 0;  ///< of an original transmission that was reported by SACK, if `has_sacked_round_trip`
    bool has_round_trip = false, has_sacked_round_trip = false;
    bool resent_acked = false;        ///< segments that were sent more than once are acknowledged
    bool original_delivered = false;  ///< an original transmission from before `recover`
    bool newly_sacked = false, dsack = false, duplicate = false;
    bool echo_before_resent = false;  ///< Eifel: the acknowledgement is of a transmission before the phase's first retransmission
  };

  static constexpr std::uint32_t window_bytes_max = 1U << 30;  // RFC 7323, 2.2

  static constexpr std::uint32_t seconds(std::uint64_t now_us) noexcept { return static_cast<std::uint32_t>(now_us / 1'000'000); }
  static constexpr std::uint32_t milliseconds(std::uint64_t now_us) noexcept { return static_cast<std::uint32_t>(now_us / 1'000); }
  void set(StateFlag flag) noexcept { state_flags_ = static_cast<std::uint8_t>(state_flags_ | flag); }
  void clear(unsigned flags) noexcept { state_flags_ = static_cast<std::uint8_t>(state_flags_ & ~flags); }
  [[nodiscard]] bool has(StateFlag flag) const noexcept { return (state_flags_ & flag) != 0; }
  /// The numbers of `segment` that are not acknowledged.
  [[nodiscard]] std::uint32_t rest_of(const SentSegment& segment) const noexcept { return segment.end() - later(segment.sequence, una); }

  void sent_up_to(SentSegment& segment, std::uint32_t numbers, std::uint64_t now_us) noexcept;

  // send_state.cpp
  bool make_flow(std::uint64_t now_us) noexcept;
  void sent_more(SentSegment& segment, std::uint64_t now_us) noexcept;
  void restart_after_idle(std::uint32_t now_us) noexcept;
  [[nodiscard]] std::uint32_t paced(std::uint64_t now_us, std::uint32_t bytes) noexcept;
  /// Splits `segment`, and links the new segment behind it. Returns false without memory.
  bool split_at(SentSegment& segment, std::uint32_t first_bytes, SplitSegment split) noexcept;
  /// Removes the acknowledged part of `head`, if there is one. Returns it.
  [[nodiscard]] SentSegment* trim_head(SplitSegment split) noexcept;

  // send_acknowledgement.cpp
  [[nodiscard]] bool take_in_order(const Acknowledgement& ack, Acknowledged& acknowledged) noexcept;
  [[nodiscard]] SentSegment* remove_acknowledged(std::uint32_t number, Progress& progress) noexcept;
  [[nodiscard]] Acknowledged on_plain_ack(const Acknowledgement& ack, bool duplicate) noexcept;
  void measure(const Acknowledgement& ack, const Progress& progress, bool new_round) noexcept;
  void set_timer_in_order(std::uint32_t now_us) noexcept;
  void begin_round() noexcept;

  // loss_detection.cpp
  void take_sack(const Acknowledgement& ack, Progress& progress, SplitSegment split) noexcept;
  bool take_dsack(const Acknowledgement& ack, Progress& progress) noexcept;
  void mark_sacked(SentSegment& segment, Progress& progress) noexcept;
  void mark_lost(SentSegment& segment) noexcept;
  void delivered(const SentSegment& segment, std::uint32_t now_us, bool echo_before_resent) noexcept;
  void take_duplicates(Progress& progress, SplitSegment split) noexcept;
  void mark_head_lost(SplitSegment split) noexcept;
  [[nodiscard]] std::uint32_t reordering_window_us() const noexcept;
  void detect_losses(std::uint32_t now_us) noexcept;

  // recovery.cpp
  void react(const Acknowledgement& ack, Progress& progress, SplitSegment split) noexcept;
  void begin_reduction(Phase phase) noexcept;
  void end_reduction() noexcept;
  void count_resent(const SentSegment& segment) noexcept;
  void reduce(const Progress& progress) noexcept;
  void take_probe_result(const Progress& progress) noexcept;
  [[nodiscard]] bool may_undo(const Progress& progress) const noexcept;
  void undo() noexcept;
  void after_time_out(const Acknowledgement& ack, Progress& progress) noexcept;
  void leave_recovery() noexcept;

  // send_timers.cpp
  static constexpr std::uint32_t idle_us = 1'000'000;
  /// When a tail loss probe is due (RFC 8985, 7.2), with the granularity of clocks.
  [[nodiscard]] std::uint32_t tail_probe_us(std::uint32_t now_us) const noexcept {
    constexpr std::uint32_t clock_us = 2'000;
    return now_us + 2 * round_trip.smoothed_us() + clock_us;
  }
  void set_timer(std::uint32_t now_us) noexcept;
  [[nodiscard]] Action time_out(std::uint64_t now_us, SplitSegment split) noexcept;
  [[nodiscard]] Action probe_tail(std::uint64_t now_us, std::uint32_t queued, SplitSegment split) noexcept;
  [[nodiscard]] Action probe_window(std::uint64_t now_us, std::uint32_t queued) noexcept;

  // congestion.cpp
  /// Increases the window after `acked` bytes were acknowledged.
  void grow(std::uint32_t acked, std::uint32_t now_ms) noexcept;
  void grow_cubic(std::uint32_t acked, std::uint32_t now_ms) noexcept;
  void grow_reno(std::uint32_t acked) noexcept;
  [[nodiscard]] std::uint32_t slow_start(std::uint32_t acked) noexcept;
  void sample_slow_start(std::uint32_t round_trip_us) noexcept;
  void begin_slow_start_round() noexcept;
  /// The threshold after a loss or a mark. Remembers the window for CUBIC.
  [[nodiscard]] std::uint32_t reduced_window(bool by_mark) noexcept;

  std::uint32_t rto_start_us_ = 0;  ///< the retransmission time-out counts from here
  std::uint32_t due_ = 0;
  std::uint32_t stalled_s_ = 0;
  std::uint32_t plain_recover_ = 0;
  Timer timer_ = Timer::none;
  std::uint8_t state_flags_ = 0;
  std::uint8_t duplicates_ = 0;  ///< duplicate acknowledgements, without SACK
  CongestionControl congestion_ = CongestionControl::cubic;
};
static_assert(sizeof(SendState) == 104, "a part of the memory of every idle connection");

[[gnu::always_inline]] inline void SendState::sent_up_to(SentSegment& segment, std::uint32_t numbers, std::uint64_t now_us) noexcept {
  const auto now = static_cast<std::uint32_t>(now_us);
  segment.next = nullptr;
  segment.sequence = nxt;
  segment.sent_us = now;
  nxt += numbers;
  last_sent_us = now;
  if (head == nullptr) [[likely]] {
    head = tail = &segment;
    rto_start_us_ = now;
    due_ = now + round_trip.rto_us;
    timer_ = Timer::retransmission;
    if (flow == nullptr) [[likely]]
      return;
  } else {
    tail->next = &segment;
    tail = &segment;
  }
  sent_more(segment, now_us);
}

inline SentSegment* SendState::ack_all(std::uint64_t now_us) noexcept {
  SentSegment* const segments = std::exchange(head, nullptr);
  una = nxt;
  timer_ = Timer::none;
  unanswered = 0;
  if (!segments->has(SentSegment::ever_retransmitted)) [[likely]] {
    round_trip.sample_at(static_cast<std::uint32_t>(now_us), segments->sent_us, rto_min_us);
    backoff = 0;
  }
  return segments;
}

}  // namespace neap::net::tcp
