// SPDX-License-Identifier: BSL-1.0
// The sender's state of a connection that has much in flight, or has lost something.
//
// Most connections of a server are idle, or exchange messages that fit the initial window. They need neither CUBIC's curve nor the times of
// RACK. So this state is a separate object. It is made when the congestion window first limits the sender, or at the first sign of a loss,
// and it is released when the connection has been idle. Without memory for it, the connection goes on by RFC 5681 and 6582 alone
// (send_state.hpp).
#pragma once

#include <cstdint>

#include "net/tcp/sequence.hpp"
#include "net/tcp/settings.hpp"

namespace neap::net::tcp {

/// The least round trip of the last 150 to 300 s, in two periods of 150 s.
class LeastRoundTrip {
 public:
  [[nodiscard]] std::uint32_t us() const noexcept { return least_us_; }
  [[nodiscard]] bool known() const noexcept { return least_us_ != none; }
  void sample(std::uint32_t round_trip_us, std::uint32_t now_us) noexcept {
    if (now_us - period_start_us_ >= period_us) [[unlikely]] {
      least_us_ = recent_us_;
      recent_us_ = none;
      period_start_us_ = now_us;
    }
    if (round_trip_us < recent_us_) recent_us_ = round_trip_us;
    if (round_trip_us < least_us_) least_us_ = round_trip_us;
  }
  void begin(std::uint32_t now_us) noexcept { period_start_us_ = now_us; }

 private:
  static constexpr std::uint32_t none = ~0U, period_us = 150'000'000;
  std::uint32_t least_us_ = none, recent_us_ = none, period_start_us_ = 0;
};

/// CUBIC (RFC 9438). Windows are in bytes, times in milliseconds.
struct Cubic {
  std::uint32_t window_max = 0;     ///< W_max; 0: no congestion yet
  std::uint32_t epoch_window = 0;   ///< cwnd_epoch; 0: the epoch begins with the next acknowledgement
  std::uint32_t epoch_ms = 0;       ///< when the epoch began
  std::uint32_t inflection_ms = 0;  ///< K
  std::uint32_t prior_window = 0;   ///< cwnd_prior: the window before the last congestion
  std::uint32_t reno_window = 0;    ///< W_est
  std::uint64_t reno_rest = 0;      ///< the part of its growth that is less than a byte, times `cwnd`
  std::uint32_t target = 0;         ///< of the window a round trip later, computed at `target_ms`
  std::uint32_t target_ms = 0;
};

/// HyStart++ (RFC 9406): leaves slow start when the round trips of a round are longer than those of the round before.
struct SlowStart {
  std::uint32_t round_least_us = ~0U;     ///< currentRoundMinRTT
  std::uint32_t previous_least_us = ~0U;  ///< lastRoundMinRTT
  std::uint32_t baseline_us = ~0U;        ///< cssBaselineMinRtt
  std::uint8_t samples = 0;               ///< rttSampleCount, at most 255
  std::uint8_t conservative_rounds = 0;   ///< rounds of Conservative Slow Start so far; 0: in slow start
};

/// DCTCP (RFC 8257).
struct Dctcp {
  static constexpr std::uint32_t one = 1024;
  std::uint32_t alpha = one;                   ///< DCTCP.Alpha
  std::uint32_t acknowledged = 0, marked = 0;  ///< bytes in this observation window
  /// RFC 8257, 3.3, with g = 1/16.
  void end_window() noexcept {
    if (acknowledged == 0) return;
    const std::uint64_t fraction = std::uint64_t{marked < acknowledged ? marked : acknowledged} * one / acknowledged;
    alpha = static_cast<std::uint32_t>(alpha - (alpha + 15) / 16 + (fraction + 15) / 16);
    if (alpha > one) alpha = one;
    acknowledged = marked = 0;
  }
};

/// The reaction to congestion that is in progress.
enum class Phase : std::uint8_t {
  open,       ///< nothing is believed to be lost
  reduction,  ///< the window is being reduced because of ECN, or because a tail loss probe repaired a loss
  recovery,   ///< fast recovery: RFC 6675 with the detection of RFC 8985, or RFC 6582 without SACK
  timed_out,  ///< after a retransmission time-out
};

/// F-RTO (RFC 5682) tests whether a time-out was spurious.
enum class ForwardProbe : std::uint8_t {
  none,
  first,   ///< the first acknowledgement after the time-out is awaited
  second,  ///< new bytes were sent; the next acknowledgement decides
};

struct Flow {
  // The scoreboard, in sequence numbers.
  std::uint32_t sacked = 0;        ///< in segments with the flag `sacked`; without SACK, an estimate from duplicate acknowledgements
  std::uint32_t lost = 0;          ///< in segments with the flag `lost`
  std::uint32_t delivered_to = 0;  ///< RACK.fack: the highest number that was acknowledged or reported by SACK

  // RACK (RFC 8985). `recent` is the segment that was sent last among those that were delivered.
  std::uint32_t recent_sent_us = 0, recent_end = 0, recent_round_trip_us = 0;
  std::uint32_t dsack_round_end = 0;    ///< RACK.dsack_round
  std::uint32_t reordering_us = 0;      ///< the largest time by which a segment was late, behind one that was sent later
  std::uint32_t check_due_us = 0;       ///< when the reordering timer is due, if `check_pending`
  std::uint8_t reordering_steps = 1;    ///< RACK.reo_wnd_mult
  std::uint8_t reordering_persist = 0;  ///< RACK.reo_wnd_persist
  bool reordering_seen = false, check_pending = false;
  bool recent_valid = false, dsack_round = false;

  Phase phase = Phase::open;
  ForwardProbe forward_probe = ForwardProbe::none;
  bool hold_retransmissions = false;  ///< F-RTO sends new bytes first
  bool probing = false;               ///< a tail loss probe is in flight
  bool probe_resent = false;          ///< the probe was an old segment
  bool cwr_due = false;               ///< the next new segment has the flag CWR
  bool limited = false;               ///< in this round the congestion window limited the sender
  bool limited_before = false;        ///< and in the round before
  bool undo_possible = false;         ///< the last reduction may prove unnecessary
  bool undo_resent = false;           ///< something was sent again in the phase
  bool after_time_out = false;        ///< the phase that may be undone began with a time-out
  bool partial = false;               ///< recovery has had an acknowledgement of new data
  bool echo_valid = false;            ///< `first_resent_ms` is valid
  std::uint32_t probe_end = 0;        ///< TLP.end_seq
  std::uint32_t recover = 0;          ///< the phase ends when this number is acknowledged
  // Proportional rate reduction (RFC 6937).
  std::uint32_t reduction_window = 0, reduction_delivered = 0, reduction_sent = 0;
  // Undoing a reduction that was spurious: RFC 4015, and DSACK as in RFC 3708.
  std::uint32_t prior_window = 0, prior_threshold = 0;
  SequenceRange resent{};             ///< holds all that was sent again in the phase, if `undo_resent`
  std::uint32_t undo_bytes = 0;       ///< sent again in the phase, and not reported by DSACK as unnecessary
  std::uint32_t first_resent_ms = 0;  ///< time of the phase's first retransmission, on the clock of timestamps

  std::uint32_t round_end = 0;    ///< the round ends when this number is acknowledged
  std::uint32_t flight_max = 0;   ///< the most that was in flight in the round
  std::uint64_t growth_rest = 0;  ///< the part of the window's growth that is less than a byte, times `cwnd`
  std::uint32_t pacing_us = 0;    ///< with pacing: when the next segment may be sent
  bool pacing_pending = false;    ///< bytes wait for `pacing_us`
  LeastRoundTrip least_round_trip;
  SlowStart slow_start;
  Cubic cubic, prior_cubic;
  Dctcp dctcp;

  /// Returns null without memory.
  [[nodiscard]] static Flow* make() noexcept;
  static void release(Flow* flow) noexcept;
  /// Returns this core's spare objects to malloc (for tests that look for leaks).
  static void trim() noexcept;
};

}  // namespace neap::net::tcp
