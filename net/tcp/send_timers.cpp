// SPDX-License-Identifier: BSL-1.0
// The sender's timers. One is due at a time: a tail loss probe and the check for reordering come before the retransmission time-out.
#include "net/tcp/send_state.hpp"

namespace neap::net::tcp {

void SendState::set_timer(std::uint32_t now_us) noexcept {
  Flow* const f = flow;
  if (head == nullptr) {
    timer_ = f != nullptr ? Timer::idle : Timer::none;
    due_ = now_us + std::max(round_trip.rto_us, idle_us);
  } else {
    timer_ = Timer::retransmission;
    due_ = rto_start_us_ + round_trip.rto_us;
    Timer sooner = Timer::none;
    std::uint32_t at = 0;
    if (f != nullptr && f->check_pending) {
      sooner = Timer::reordering;
      at = f->check_due_us;
    } else if (has(uses_sack) && round_trip.known() && backoff == 0 && nxt - una > mss &&
               (f == nullptr ? !has(in_recovery)
                             : (f->phase == Phase::open || f->phase == Phase::reduction) && (f->sacked | f->lost) == 0 && !f->probing)) {
      // A single segment may wait for the peer's delayed acknowledgement as long as for the retransmission time-out.
      sooner = Timer::tail_probe;
      at = tail_probe_us(now_us);
    }
    if (sooner != Timer::none && before(at, due_)) {
      timer_ = sooner;
      due_ = at;
    }
  }
  if (f != nullptr && f->pacing_pending && (head == nullptr || before(f->pacing_us, due_))) {
    timer_ = Timer::pacing;
    due_ = f->pacing_us;
  }
}

SendState::Action SendState::on_timer(std::uint64_t now_us, std::uint32_t queued, SplitSegment split) noexcept {
  const auto now = static_cast<std::uint32_t>(now_us);
  if (timer_ == Timer::none || before(now, due_)) return {};
  switch (timer_) {
    case Timer::none:
      return {};
    case Timer::retransmission:
      return time_out(now_us, split);
    case Timer::tail_probe:
      return probe_tail(now_us, queued, split);
    case Timer::window_probe:
      return probe_window(now_us, queued);
    case Timer::reordering: {
      const std::uint32_t lost_before = flow->lost;
      detect_losses(now);
      if (flow->lost > lost_before) {
        if (flow->phase == Phase::open || flow->phase == Phase::reduction) {
          Progress progress{.now_us = now, .prior_una = una};
          progress.lost = flow->lost - lost_before;
          begin_reduction(Phase::recovery);
          reduce(progress);
        }
      }
      set_timer(now);
      return {.acknowledged = head != nullptr && head->has(SentSegment::lost) ? trim_head(split) : nullptr};
    }
    case Timer::pacing:
      flow->pacing_pending = false;
      set_timer(now);
      return {};
    case Timer::idle:
      if (head == nullptr) {
        Flow::release(std::exchange(flow, nullptr));
        timer_ = Timer::none;
      } else {
        set_timer(now);
      }
      return {};
  }
  return {};
}

// RFC 6298, 5.4 to 5.7, and RFC 8985, 6.3.
SendState::Action SendState::time_out(std::uint64_t now_us, SplitSegment split) noexcept {
  const auto now = static_cast<std::uint32_t>(now_us);
  if (head == nullptr) {
    set_timer(now);
    return {};
  }
  const bool repeated = has(unanswered_time_out);
  // A peer that has closed its window and answers is alive (RFC 9293, 3.8.6.1).
  if (repeated && window == 0 && unanswered == 0) stalled_s_ = seconds(now_us);
  if (unanswered != 0xFF) ++unanswered;
  if (!repeated) {
    clear(window_stalled);
    set(unanswered_time_out);
    stalled_s_ = seconds(now_us);
  } else if (seconds(now_us) - stalled_s_ >= give_up_s) {
    return {.kind = Action::Kind::give_up};
  }
  if (head->has(SentSegment::syn) || !make_flow(now_us)) {
    set(head_lost);
    if (head->has(SentSegment::syn)) {
      set(syn_repeated);
    } else {
      if (!repeated) ssthresh = std::max((nxt - una) / 2, 2U * mss);
      cwnd = mss;
      plain_recover_ = nxt;
      set(in_recovery);
    }
  } else {
    Flow& f = *flow;
    const bool new_loss =
        f.phase == Phase::open || f.phase == Phase::reduction || at_or_after(una, f.recover) || (f.phase == Phase::timed_out && !repeated);
    if (new_loss) {
      f.phase = Phase::open;
      begin_reduction(Phase::recovery);
    }
    f.phase = Phase::timed_out;
    f.after_time_out = true;
    f.forward_probe = new_loss || repeated ? ForwardProbe::first : ForwardProbe::none;
    f.hold_retransmissions = f.probing = false;
    f.recover = nxt;
    duplicates_ = 0;
    if (!has(uses_sack)) f.sacked = 0;
    // The first segment was reported by SACK, but not acknowledged: the peer has dropped it (RFC 2018, 8).
    const bool reneged = head->has(SentSegment::sacked);
    const std::uint32_t allowed_us = f.recent_valid ? f.recent_round_trip_us + reordering_window_us() : 0;
    for (SentSegment* segment = head; segment != nullptr; segment = segment->next) {
      if (reneged && segment->has(SentSegment::sacked)) {
        f.sacked -= std::min(f.sacked, rest_of(*segment));
        segment->clear(SentSegment::sacked);
      }
      if (segment->has(SentSegment::sacked | SentSegment::lost)) continue;
      if (segment != head && before(now, segment->sent_us + allowed_us)) continue;
      mark_lost(*segment);
    }
    f.check_pending = false;
    cwnd = in_flight() + mss;
  }
  round_trip.rto_us = std::min(2 * round_trip.rto_us, RoundTrip::max_rto_us);
  if (backoff != 0xFF) ++backoff;
  rto_start_us_ = now;
  set_timer(now);
  return {.acknowledged = trim_head(split)};
}

// RFC 8985, 7.3.
SendState::Action SendState::probe_tail(std::uint64_t now_us, std::uint32_t queued, SplitSegment split) noexcept {
  const auto now = static_cast<std::uint32_t>(now_us);
  if (head == nullptr || !make_flow(now_us)) {
    timer_ = head == nullptr ? Timer::none : Timer::retransmission;
    due_ = rto_start_us_ + round_trip.rto_us;
    return {};
  }
  Flow& f = *flow;
  f.probing = true;
  rto_start_us_ = now;
  set_timer(now);
  if (queued != 0 && window_probe_bytes(queued) >= std::min<std::uint32_t>(queued, mss)) {
    f.probe_resent = false;
    f.probe_end = nxt;
    return {.kind = Action::Kind::probe_new};
  }
  f.probe_resent = true;
  f.probe_end = nxt;
  SentSegment* last = tail;
  if (last->bytes > mss) {
    const std::uint32_t rest = last->bytes % mss;
    if (split_at(*last, last->bytes - (rest != 0 ? rest : mss), split)) last = tail;
  }
  return {.kind = Action::Kind::resend, .segment = last};
}

SendState::Action SendState::probe_window(std::uint64_t now_us, std::uint32_t queued) noexcept {
  const auto now = static_cast<std::uint32_t>(now_us);
  constexpr std::uint8_t probes_max = 15;
  if (queued == 0 || head != nullptr) {
    clear(window_stalled);
    set_timer(now);
    return {};
  }
  if (unanswered >= probes_max) return {.kind = Action::Kind::give_up};
  ++unanswered;
  if (backoff != 0xFF) ++backoff;
  round_trip.rto_us = std::min(2 * round_trip.rto_us, RoundTrip::max_rto_us);
  due_ = now + round_trip.rto_us;
  return {.kind = Action::Kind::probe_window};
}

}  // namespace neap::net::tcp
