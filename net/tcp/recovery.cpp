// SPDX-License-Identifier: BSL-1.0
// The phases of the sender: reductions of the window, fast recovery, recovery after a time-out, and undoing any of them.
#include "net/tcp/send_state.hpp"

namespace neap::net::tcp {

// --- Reductions --------------------------------------------------------------------------------------------------------------------------
void SendState::begin_reduction(Phase phase) noexcept {
  Flow& f = *flow;
  if (f.phase == Phase::open || f.phase == Phase::timed_out) {
    f.prior_window = cwnd;
    f.prior_threshold = ssthresh;
    f.prior_cubic = f.cubic;
    ssthresh = reduced_window(phase == Phase::reduction);
    f.reduction_window = cwnd;
    f.reduction_delivered = f.reduction_sent = 0;
  }
  f.phase = phase;
  f.recover = nxt;
  f.probing = f.hold_retransmissions = false;
  f.forward_probe = ForwardProbe::none;
  f.slow_start = {};
  f.partial = f.after_time_out = false;
  f.undo_possible = phase == Phase::recovery;
  // Segments that were sent again before, and are not acknowledged, count as if they were sent again in this phase.
  f.undo_bytes = 0;
  f.undo_resent = false;
  for (const SentSegment* segment = head; segment != nullptr; segment = segment->next) {
    if (segment->has(SentSegment::retransmitted)) count_resent(*segment);
  }
  f.echo_valid = f.echo_valid && f.undo_resent;
}

void SendState::end_reduction() noexcept {
  if (ssthresh != ~0U) cwnd = ssthresh;
  flow->phase = Phase::open;
}

// RFC 6937. Sends in proportion to what arrives while more is in flight than the threshold. Below it, sends what arrives, and one segment
// more when the acknowledgement shows progress without new losses.
void SendState::reduce(const Progress& progress) noexcept {
  Flow& f = *flow;
  if (progress.delivered == 0 && f.reduction_sent != 0) return;
  f.reduction_delivered += progress.delivered;
  const std::uint32_t flight = in_flight();
  std::int64_t may_send = 0;
  if (flight > ssthresh) {
    const std::uint64_t share = std::uint64_t{ssthresh} * f.reduction_delivered + f.reduction_window - 1;
    may_send = static_cast<std::int64_t>(share / f.reduction_window) - f.reduction_sent;
  } else {
    may_send = std::max<std::int64_t>(std::int64_t{f.reduction_delivered} - f.reduction_sent, progress.delivered);
    if (f.reduction_sent == 0 || (progress.acked != 0 && progress.lost == 0)) may_send += mss;
    may_send = std::min<std::int64_t>(may_send, ssthresh - flight);
  }
  // The first retransmission is sent at once.
  may_send = std::max<std::int64_t>(may_send, f.reduction_sent != 0 ? 0 : mss);
  cwnd = static_cast<std::uint32_t>(std::min<std::int64_t>(flight + may_send, window_bytes_max));
}

void SendState::count_resent(const SentSegment& segment) noexcept {
  Flow& f = *flow;
  const SequenceRange range{later(segment.sequence, una), segment.end()};
  f.undo_bytes += range.end - range.first;
  f.resent = f.undo_resent ? SequenceRange{earlier(f.resent.first, range.first), later(f.resent.end, range.end)} : range;
  f.undo_resent = true;
}

// --- Undoing -----------------------------------------------------------------------------------------------------------------------------
// True if all that was sent again was not lost: each retransmission was reported as a duplicate, or an acknowledgement of the originals
// arrived (RFC 3522).
bool SendState::may_undo(const Progress& progress) const noexcept {
  const Flow& f = *flow;
  return f.undo_possible && ((f.undo_resent && f.undo_bytes == 0) || (progress.acked != 0 && progress.echo_before_resent));
}

// RFC 4015, 3.2, and RFC 9438, 4.9.
void SendState::undo() noexcept {
  Flow& f = *flow;
  cwnd = std::max(cwnd, f.prior_window);
  ssthresh = std::max(ssthresh, f.prior_threshold);
  f.cubic = f.prior_cubic;
  if (f.phase != Phase::timed_out && !f.after_time_out) f.reordering_seen = true;
  // The acknowledgement of a segment that was sent twice may have been that of the original, so its time is not known.
  if (f.phase == Phase::timed_out) f.recent_valid = false;
  f.undo_possible = f.hold_retransmissions = false;
  f.forward_probe = ForwardProbe::none;
  f.phase = Phase::open;
  if (f.lost == 0) return;
  for (SentSegment* segment = head; segment != nullptr; segment = segment->next) segment->clear(SentSegment::lost);
  f.lost = 0;
}

// --- Acknowledgements --------------------------------------------------------------------------------------------------------------------
// RFC 8985, 7.4: if only the probe repaired a loss, the window is reduced as for any loss.
void SendState::take_probe_result(const Progress& progress) noexcept {
  Flow& f = *flow;
  if (!f.probing || before(una, f.probe_end)) return;
  if (!f.probe_resent) {
    f.probing = false;  // new bytes were the probe
  } else if (after(una, f.probe_end)) {
    f.probing = false;
    if (f.phase == Phase::open) {
      begin_reduction(Phase::reduction);
      end_reduction();
    }
  } else if (progress.duplicate && !progress.newly_sacked) {
    f.probing = false;  // the original and the probe have arrived
  }
}

void SendState::leave_recovery() noexcept {
  Flow& f = *flow;
  if (f.reordering_persist != 0 && --f.reordering_persist == 0) f.reordering_steps = 1;
  if (!has(uses_sack)) f.sacked = 0;
  duplicates_ = 0;
  end_reduction();
}

// After a time-out, segments are sent again in slow start, unless F-RTO finds that the time-out was spurious (RFC 5682, 3.1).
void SendState::after_time_out(const Acknowledgement& ack, Progress& progress) noexcept {
  Flow& f = *flow;
  // A segment of the peer's data says nothing new by its acknowledgement number.
  if (progress.acked == 0 && !progress.duplicate && !progress.newly_sacked && !progress.dsack) return;
  f.hold_retransmissions = false;
  if (may_undo(progress)) return undo();
  if (f.forward_probe == ForwardProbe::second) {
    if (progress.original_delivered && f.undo_possible) return undo();  // step 3.b
    if (progress.newly_sacked || progress.duplicate || progress.acked != 0) {
      f.forward_probe = ForwardProbe::none;
      cwnd = std::max(cwnd, 3U * mss);  // step 3.a
    }
  } else if (f.forward_probe == ForwardProbe::first) {
    if (progress.acked != 0 && before(una, f.recover) && ack.more_queued && before(nxt, una + window)) {
      f.recover = nxt;
      f.hold_retransmissions = true;
      f.forward_probe = ForwardProbe::second;  // step 2.b
    } else if (progress.acked != 0 || progress.duplicate) {
      f.forward_probe = ForwardProbe::none;  // step 2.a
    }
  }
  if (at_or_after(una, f.recover)) {
    f.forward_probe = ForwardProbe::none;
    f.phase = Phase::open;
    if (!has(uses_sack)) f.sacked = 0;
  }
}

void SendState::react(const Acknowledgement& ack, Progress& progress, SplitSegment split) noexcept {
  Flow& f = *flow;
  const std::uint32_t lost_before = f.lost;
  bool ends_reduction = false;  // the window becomes the threshold (RFC 5681, 3.2, step 6), without growth by the same acknowledgement
  take_probe_result(progress);
  if (f.phase == Phase::timed_out) {
    after_time_out(ack, progress);
  } else if (may_undo(progress)) {
    undo();
  } else if (f.phase != Phase::open && at_or_after(una, f.recover)) {
    ends_reduction = true;
    if (f.phase == Phase::recovery) {
      leave_recovery();
    } else {
      end_reduction();
    }
  }
  if (has(uses_sack)) {
    detect_losses(progress.now_us);
  } else {
    take_duplicates(progress, split);
  }
  if (f.lost > lost_before) progress.lost = f.lost - lost_before;
  if (f.lost != 0 && (f.phase == Phase::open || f.phase == Phase::reduction)) {
    begin_reduction(Phase::recovery);
  } else if (ack.ece && has(uses_ecn) && f.phase == Phase::open) {
    begin_reduction(Phase::reduction);
    f.cwr_due = true;
  }
  if (f.phase == Phase::recovery || f.phase == Phase::reduction) {
    reduce(progress);
  } else if (progress.delivered != 0 && (progress.acked != 0 || f.reordering_seen) && !ends_reduction) {
    grow(progress.delivered, milliseconds(ack.now_us));
  }
  if (head == nullptr && f.phase == Phase::open) f.check_pending = false;
}

}  // namespace neap::net::tcp
