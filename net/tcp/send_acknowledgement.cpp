// SPDX-License-Identifier: BSL-1.0
// Acknowledgements of a connection that has much in flight, or has lost something.
#include "net/tcp/send_state.hpp"

namespace neap::net::tcp {

// --- With a Flow -------------------------------------------------------------------------------------------------------------------------
// `una` is still the old one while segments are counted.
[[gnu::always_inline]] inline SentSegment* SendState::remove_acknowledged(std::uint32_t number, Progress& progress) noexcept {
  using enum SentSegment::Flag;
  Flow& f = *flow;
  SentSegment* const first = head;
  SentSegment* last = nullptr;
  SentSegment* segment = first;
  const auto take = [&](SentSegment& s, std::uint32_t numbers) {
    if (s.has(sacked)) [[unlikely]] {
      f.sacked -= std::min(f.sacked, numbers);
      progress.resent_acked |= s.has(ever_retransmitted);
      return;
    }
    if (s.has(lost)) f.lost -= std::min(f.lost, numbers);
    progress.delivered += numbers;
    if (s.has(ever_retransmitted)) [[unlikely]] {
      progress.resent_acked = true;
      return;
    }
    if (!progress.has_round_trip) progress.first_sent_us = s.sent_us;
    progress.last_sent_us = s.sent_us;
    progress.has_round_trip = true;
  };
  for (; segment != nullptr && at_or_before(segment->end(), number); segment = segment->next) {
    take(*segment, rest_of(*segment));
    if (!segment->has(sacked)) delivered(*segment, progress.now_us, progress.echo_before_resent);
    if (!segment->has(ever_retransmitted) && at_or_before(segment->end(), f.recover)) progress.original_delivered |= !segment->has(sacked);
    last = segment;
  }
  if (segment != nullptr && before(segment->sequence, number)) {
    take(*segment, number - later(segment->sequence, una));
    if (!segment->has(ever_retransmitted | sacked) && at_or_before(number, f.recover)) progress.original_delivered = true;
    f.delivered_to = later(f.delivered_to, number);
  }
  progress.acked = number - una;
  una = number;
  if (last == nullptr) return nullptr;
  last->next = nullptr;
  head = segment;
  return first;
}

// Karn: a segment that was sent twice does not tell which transmission was acknowledged. The echoed timestamp does.
[[gnu::always_inline]] inline void SendState::measure(const Acknowledgement& ack, const Progress& progress, bool new_round) noexcept {
  Flow& f = *flow;
  std::uint32_t round_trip_us = 0;
  if (progress.has_round_trip && !progress.resent_acked) [[likely]] {
    round_trip_us = progress.now_us - progress.first_sent_us;
    const std::uint32_t last_us = progress.now_us - progress.last_sent_us;
    f.least_round_trip.sample(last_us, progress.now_us);
    if (ssthresh == ~0U) sample_slow_start(last_us);
  } else if (progress.acked != 0 && ack.has_echo) {
    const std::uint32_t elapsed_ms = milliseconds(ack.now_us) - ack.echoed_ms;
    if (elapsed_ms > RoundTrip::max_rto_us / 1'000) return;  // not one of our timestamps
    round_trip_us = elapsed_ms * 1'000 + 500;
  } else if (progress.has_sacked_round_trip && !progress.resent_acked && !f.reordering_seen) {
    round_trip_us = progress.now_us - progress.sacked_sent_us;
  } else {
    return;
  }
  round_trip.sample(round_trip_us, rto_min_us, new_round);
  backoff = 0;
}

[[gnu::noinline]] void SendState::begin_round() noexcept {
  Flow& f = *flow;
  f.round_end = nxt;
  f.flight_max = in_flight();
  f.limited_before = std::exchange(f.limited, false);
  if (ssthresh == ~0U || f.slow_start.conservative_rounds != 0) begin_slow_start_round();
}

/// As `set_timer`, if nothing is lost, no probe is in flight, and `rto_start_us_` is `now_us`.
[[gnu::always_inline]] inline void SendState::set_timer_in_order(std::uint32_t now_us) noexcept {
  if (head == nullptr || flow->check_pending || flow->pacing_pending) return set_timer(now_us);
  timer_ = Timer::retransmission;
  due_ = now_us + round_trip.rto_us;
  if (!has(uses_sack) || nxt - una <= mss) return;
  if (const std::uint32_t at = tail_probe_us(now_us); before(at, due_)) {
    timer_ = Timer::tail_probe;
    due_ = at;
  }
}

// The usual acknowledgement of a long transfer, without losses. Returns false, with no change, if a segment was sent more than once.
[[gnu::always_inline]] inline bool SendState::take_in_order(const Acknowledgement& ack, Acknowledged& acknowledged) noexcept {
  Flow& f = *flow;
  const auto now = static_cast<std::uint32_t>(ack.now_us);
  SentSegment* const first = head;
  SentSegment* last = nullptr;
  SentSegment* segment = first;
  unsigned flags = 0;
  for (; segment != nullptr && at_or_before(segment->end(), ack.number); segment = segment->next) {
    flags |= segment->flags;
    last = segment;
  }
  if (segment != nullptr) flags |= segment->flags;
  if ((flags & SentSegment::ever_retransmitted) != 0) return false;
  const std::uint32_t acked = ack.number - una;
  una = ack.number;
  rto_start_us_ = now;
  f.delivered_to = ack.number;
  std::uint32_t last_sent = first->sent_us;
  const std::uint32_t first_sent = last_sent;
  if (segment != nullptr && before(segment->sequence, ack.number)) last_sent = segment->sent_us;
  acknowledged = {.segments = nullptr, .numbers = acked};
  if (last != nullptr) {
    last->next = nullptr;
    head = segment;
    acknowledged.segments = first;
    last_sent = last->sent_us;
    f.recent_valid = true;
    f.recent_sent_us = last_sent;
    f.recent_end = last->end();
    f.recent_round_trip_us = now - last_sent;
  }
  const bool new_round = at_or_after(una, f.round_end);
  f.least_round_trip.sample(now - last_sent, now);
  round_trip.sample_at(now, first_sent, rto_min_us, new_round);
  backoff = 0;
  if (ssthresh == ~0U) sample_slow_start(now - last_sent);
  f.dctcp.acknowledged += acked;
  if (new_round) f.dctcp.end_window();
  grow(acked, milliseconds(ack.now_us));
  if (new_round) [[unlikely]]
    begin_round();
  set_timer_in_order(now);
  return true;
}

SendState::Acknowledged SendState::on_ack(const Acknowledgement& ack, SplitSegment split) noexcept {
  const auto now = static_cast<std::uint32_t>(ack.now_us);
  unanswered = 0;
  if (flow != nullptr && after(ack.number, una)) [[likely]] {
    const bool ordinary = flow->phase == Phase::open && (flow->sacked | flow->lost) == 0 && !flow->probing && ack.sack.empty() && !ack.ece;
    if (ordinary && !has(unanswered_time_out)) [[likely]] {
      update_window(ack.sequence, ack.number, ack.window);
      if (Acknowledged acknowledged; take_in_order(ack, acknowledged)) return acknowledged;
    }
  }
  const bool duplicate = ack.number == una && ack.segment_length == 0 && ack.window == window && head != nullptr;
  if (at_or_after(ack.number, una)) update_window(ack.sequence, ack.number, ack.window);
  if (flow == nullptr) {
    const bool loss_sign = duplicate || !ack.sack.empty() || (ack.ece && has(uses_ecn));
    if (!loss_sign || head == nullptr || head->has(SentSegment::syn) || !make_flow(ack.now_us)) return on_plain_ack(ack, duplicate);
  }
  Flow& f = *flow;
  Progress progress{.now_us = now, .prior_una = una};
  progress.duplicate = duplicate;
  progress.echo_before_resent = f.echo_valid && ack.has_echo && before(ack.echoed_ms, f.first_resent_ms);
  if (!ack.sack.empty() && has(uses_sack)) [[unlikely]]
    take_sack(ack, progress, split);
  SentSegment* segments = nullptr;
  if (after(ack.number, una)) {
    segments = remove_acknowledged(ack.number, progress);
    // RFC 6582, 4: without SACK, recovery of many losses by partial acknowledgements is slower than a time-out. So only the first one of
    // these acknowledgements postpones the time-out.
    if (has(uses_sack) || f.phase != Phase::recovery || !f.partial) rto_start_us_ = now;
    f.partial = f.phase == Phase::recovery;
    if (has(unanswered_time_out)) clear(unanswered_time_out);
  }
  const bool new_round = progress.acked != 0 && at_or_after(una, f.round_end);
  measure(ack, progress, new_round);
  if (congestion_ == CongestionControl::dctcp) {
    f.dctcp.acknowledged += progress.acked;
    if (ack.ece) f.dctcp.marked += progress.acked;
    if (new_round) f.dctcp.end_window();
  }
  const bool unusual_ack = duplicate || progress.dsack || progress.newly_sacked || f.probing || ack.ece;
  if (f.phase == Phase::open && (f.sacked | f.lost) == 0 && !unusual_ack) [[likely]] {
    if (progress.delivered != 0) grow(progress.delivered, milliseconds(ack.now_us));
  } else {
    react(ack, progress, split);
    if (head != nullptr && head->has(SentSegment::lost)) {
      if (SentSegment* const part = trim_head(split); part != nullptr) {
        SentSegment** end = &segments;
        while (*end != nullptr) end = &(*end)->next;
        *end = part;
      }
    }
  }
  if (new_round) begin_round();
  set_timer(now);
  return {.segments = segments, .numbers = progress.acked};
}

// --- Without a Flow ----------------------------------------------------------------------------------------------------------------------
// RFC 5681 and 6582. Usually nothing is lost here. If memory for a Flow is short, this is all that the connection has.
[[gnu::noinline]] SendState::Acknowledged SendState::on_plain_ack(const Acknowledgement& ack, bool duplicate) noexcept {
  const auto now = static_cast<std::uint32_t>(ack.now_us);
  if (!after(ack.number, una)) {
    if (duplicate && !has(in_recovery) && ++duplicates_ == 3 && after(una, plain_recover_)) {
      ssthresh = std::max((nxt - una) / 2, 2U * mss);
      cwnd = ssthresh;
      plain_recover_ = nxt;
      set(in_recovery);
      set(head_lost);
    }
    return {.segments = nullptr, .numbers = 0};
  }
  SentSegment* const first = head;
  SentSegment* last = nullptr;
  bool resent_acked = false;
  while (head != nullptr && at_or_before(head->end(), ack.number)) {
    resent_acked |= head->has(SentSegment::ever_retransmitted);
    last = head;
    head = head->next;
  }
  const SentSegment* const measured = first;
  if (measured != nullptr && !resent_acked && !measured->has(SentSegment::ever_retransmitted)) {
    round_trip.sample(now - measured->sent_us, rto_min_us);
    backoff = 0;
  } else if (ack.has_echo && milliseconds(ack.now_us) - ack.echoed_ms <= RoundTrip::max_rto_us / 1'000) {
    round_trip.sample((milliseconds(ack.now_us) - ack.echoed_ms) * 1'000 + 500, rto_min_us);
    backoff = 0;
  }
  const std::uint32_t acked = ack.number - una;
  una = ack.number;
  rto_start_us_ = now;
  duplicates_ = 0;
  clear(unanswered_time_out | head_lost);
  if (has(in_recovery)) {
    if (at_or_after(una, plain_recover_)) {
      clear(in_recovery);
    } else if (head != nullptr) {
      set(head_lost);
    }
  }
  // Only without memory the window can have limited the sender here.
  if (const std::uint32_t outstanding = acked + nxt - una; outstanding + mss > cwnd) {
    const std::uint64_t growth = cwnd < ssthresh ? std::min(acked, burst_bytes_max) : std::uint64_t{acked} * mss / cwnd;
    cwnd = static_cast<std::uint32_t>(std::min<std::uint64_t>(cwnd + growth, window_bytes_max));
  }
  set_timer(now);
  if (last == nullptr) return {.segments = nullptr, .numbers = acked};
  last->next = nullptr;
  return {.segments = first, .numbers = acked};
}

}  // namespace neap::net::tcp
