// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/send_state.hpp"

namespace neap::net::tcp {

// --- Beginning and end -------------------------------------------------------------------------------------------------------------------
void SendState::begin(std::uint32_t first, const Settings& chosen) noexcept {
  una = nxt = wl2 = plain_recover_ = first;
  congestion_ = chosen.congestion;
  rto_min_us = chosen.rto_min_us;
  if (chosen.pacing) set(uses_pacing);
  cwnd = initial_window_segments * mss;
}

void SendState::establish(std::uint32_t segment_bytes, bool sack, bool ecn) noexcept {
  mss = static_cast<std::uint16_t>(std::clamp(segment_bytes, std::uint32_t{1}, std::uint32_t{0xFFFF}));
  if (sack) set(uses_sack);
  if (ecn) set(uses_ecn);
  // RFC 6928, 2: ten segments, but not more than 14,600 bytes of long segments.
  cwnd = std::min(initial_window_segments * mss, std::max(2U * mss, 14'600U));
  if (has(syn_repeated)) {
    cwnd = mss;                                                                            // RFC 5681, 3.1
    if (!round_trip.known()) round_trip.rto_us = std::max(3'000'000U, round_trip.rto_us);  // RFC 6298, 5.7
  }
  plain_recover_ = una - 1;
}

SentSegment* SendState::abandon() noexcept {
  Flow::release(std::exchange(flow, nullptr));
  timer_ = Timer::none;
  una = nxt;
  return std::exchange(head, nullptr);
}

bool SendState::make_flow(std::uint64_t now_us) noexcept {
  if (flow != nullptr) return true;
  flow = Flow::make();
  if (flow == nullptr) return false;
  flow->delivered_to = una;
  flow->recover = has(in_recovery) ? plain_recover_ : una - 1;
  flow->round_end = nxt;
  flow->flight_max = nxt - una;
  flow->pacing_us = static_cast<std::uint32_t>(now_us);
  flow->least_round_trip.begin(static_cast<std::uint32_t>(now_us));
  duplicates_ = 0;
  if (has(head_lost) && head != nullptr) mark_lost(*head);
  clear(head_lost | in_recovery);
  return true;
}

// --- Sending -----------------------------------------------------------------------------------------------------------------------------
// RFC 5681, 4.1. The threshold remembers most of the window, so that slow start reaches it again.
void SendState::restart_after_idle(std::uint32_t now_us) noexcept {
  const std::uint32_t restart_window = std::min(initial_window_segments * mss, std::max(2U * mss, 14'600U));
  last_sent_us = now_us;
  if (cwnd <= restart_window) return;
  ssthresh = std::max(ssthresh, cwnd - cwnd / 4);
  cwnd = restart_window;
  if (flow != nullptr) flow->cubic.epoch_window = 0;
}

// Bursts of a millisecond, at the rate of the window and the round trip. Slow start needs twice the rate to double its window.
[[gnu::noinline]] std::uint32_t SendState::paced(std::uint64_t now_us, std::uint32_t bytes) noexcept {
  if (flow == nullptr || !round_trip.known()) return bytes;
  const auto now = static_cast<std::uint32_t>(now_us);
  Flow& f = *flow;
  if (before(now, f.pacing_us)) {
    f.pacing_pending = true;
    if (timer_ == Timer::none || before(f.pacing_us, due_)) {
      timer_ = Timer::pacing;
      due_ = f.pacing_us;
    }
    return 0;
  }
  f.pacing_pending = false;
  constexpr std::uint64_t burst_us = 1'000;
  const auto burst = static_cast<std::uint32_t>(std::min<std::uint64_t>(burst_us * 2 * cwnd / round_trip.smoothed_us(), burst_bytes_max));
  return std::min(bytes, std::max(2U * mss, burst - burst % mss));
}

std::uint32_t SendState::room(std::uint64_t now_us, std::uint32_t queued) noexcept {
  if (queued == 0) return 0;
  const auto now = static_cast<std::uint32_t>(now_us);
  if (head == nullptr && now - last_sent_us > round_trip.rto_us) restart_after_idle(now);
  const std::uint32_t outstanding = nxt - una, flight = in_flight();
  const std::uint32_t permitted = std::min(window, settings.send_bytes_max);
  const std::uint32_t by_window = permitted - std::min(permitted, outstanding), by_congestion = cwnd - std::min(cwnd, flight);
  if (queued + mss > by_congestion && by_congestion <= by_window && make_flow(now_us)) flow->limited = true;
  const std::uint32_t usable = std::min(by_window, by_congestion);
  std::uint32_t bytes = queued;
  if (usable < queued) {
    bytes = usable - usable % mss;
    if (bytes == 0) {
      // A window of a few bytes would make segments of a few bytes (CVE-2019-11479). The window probe's timer sends them, slowly.
      if (by_window < mss && usable == by_window && by_window >= least_segment_bytes && 2 * std::uint64_t{by_window} >= window_max)
        bytes = by_window;
    } else if (flow != nullptr && flow->phase == Phase::open && flow->sacked == 0 && outstanding != 0 && bytes < burst_bytes_max) {
      // A long segment costs as much as a short one. So shortly after the last event that sent something, when the next acknowledgement is
      // near, the sender waits for a third of the window. Within one event it does not wait, even if the bytes leave in several calls.
      constexpr std::uint32_t recent_us = 1'000;
      const std::uint32_t since_us = now - last_sent_us;
      const LeastRoundTrip& least = flow->least_round_trip;
      const std::uint32_t usual_us = least.known() ? least.us() : round_trip.smoothed_us();
      const bool near = since_us != 0 && since_us < recent_us && now - head->sent_us >= usual_us / 2;
      if (near && 3 * std::uint64_t{bytes} < std::min(window, cwnd)) return 0;
    }
  }
  if (bytes != 0) [[likely]] {
    if (has(window_stalled)) clear(window_stalled);
    return has(uses_pacing) ? paced(now_us, bytes) : bytes;
  }
  if (head == nullptr && timer_ != Timer::window_probe) {
    timer_ = Timer::window_probe;
    due_ = now + round_trip.rto_us;
    unanswered = 0;
    if (!has(window_stalled)) {
      set(window_stalled);
      stalled_s_ = seconds(now_us);
    }
  }
  return 0;
}

// The part of `sent` for a connection with a Flow, or with several segments in flight.
[[gnu::noinline]] void SendState::sent_more(SentSegment& segment, std::uint64_t now_us) noexcept {
  const auto now = static_cast<std::uint32_t>(now_us);
  if (flow == nullptr && nxt - una + mss > cwnd && !segment.has(SentSegment::syn) && make_flow(now_us)) flow->limited = true;
  if (flow != nullptr) {
    Flow& f = *flow;
    f.flight_max = std::max(f.flight_max, in_flight());
    if (f.phase == Phase::recovery || f.phase == Phase::reduction) f.reduction_sent += segment.bytes;
    if (has(uses_pacing) && round_trip.known()) {
      // Twice the window in a round trip in slow start, and 1.25 times the window later.
      const std::uint64_t rate_window = cwnd < ssthresh ? std::uint64_t{2} * cwnd : std::uint64_t{cwnd} + cwnd / 4;
      f.pacing_us =
          later(f.pacing_us, now) + static_cast<std::uint32_t>(std::uint64_t{segment.bytes} * round_trip.smoothed_us() / rate_window);
    }
  }
  set_timer(now);
}

// --- The queue of segments -------------------------------------------------------------------------------------------------------------
bool SendState::split_at(SentSegment& segment, std::uint32_t first_bytes, SplitSegment split) noexcept {
  const std::uint32_t bytes = segment.bytes;
  if (first_bytes == 0 || first_bytes >= bytes || segment.has(SentSegment::syn)) return false;
  SentSegment* const second = split(segment, first_bytes);
  if (second == nullptr) return false;
  second->sequence = segment.sequence + first_bytes;
  second->bytes = bytes - first_bytes;
  second->sent_us = segment.sent_us;
  second->flags = segment.flags;
  second->next = segment.next;
  segment.bytes = first_bytes;
  segment.clear(SentSegment::fin);
  segment.next = second;
  if (tail == &segment) tail = second;
  return true;
}

SentSegment* SendState::trim_head(SplitSegment split) noexcept {
  if (head == nullptr || !before(head->sequence, una) || !split_at(*head, una - head->sequence, split)) return nullptr;
  SentSegment* const acknowledged = head;
  head = acknowledged->next;
  acknowledged->next = nullptr;
  return acknowledged;
}

SentSegment* SendState::next_retransmission(std::uint64_t now_us, SplitSegment split) noexcept {
  if (head == nullptr) return nullptr;
  if (flow == nullptr) {
    if (!has(head_lost)) return nullptr;
    if (head->bytes > mss) split_at(*head, mss, split);
    return head;
  }
  const Flow& f = *flow;
  if (f.lost == 0 || f.hold_retransmissions) return nullptr;
  SentSegment* segment = head;
  while (segment != nullptr && !segment->has(SentSegment::lost)) segment = segment->next;
  if (segment == nullptr) return nullptr;
  const std::uint32_t flight = in_flight();
  std::uint32_t room = cwnd - std::min(cwnd, flight);
  if (has(uses_pacing)) room = paced(now_us, room);
  if (room < std::min<std::uint32_t>(segment->bytes, mss)) return nullptr;
  // The peer has made its window smaller: only the first segment tests it.
  if (segment != head && !before(segment->sequence, una + window)) return nullptr;
  if (room < segment->bytes) split_at(*segment, room - room % mss, split);
  return segment;
}

void SendState::resent(SentSegment& segment, std::uint64_t now_us) noexcept {
  const auto now = static_cast<std::uint32_t>(now_us);
  const std::uint32_t numbers = rest_of(segment);
  if (flow != nullptr) {
    Flow& f = *flow;
    if (segment.has(SentSegment::lost)) f.lost -= numbers;
    if (f.phase != Phase::open) count_resent(segment);
    if (!f.echo_valid) {
      f.echo_valid = true;
      f.first_resent_ms = milliseconds(now_us);
    }
    if (f.phase == Phase::recovery || f.phase == Phase::reduction) f.reduction_sent += numbers;
    if (has(uses_pacing) && round_trip.known() && cwnd != 0)
      f.pacing_us = later(f.pacing_us, now) + static_cast<std::uint32_t>(std::uint64_t{numbers} * round_trip.smoothed_us() / cwnd);
  } else {
    clear(head_lost);
  }
  segment.clear(SentSegment::lost);
  segment.flags |= SentSegment::retransmitted | SentSegment::ever_retransmitted;
  segment.sent_us = last_sent_us = now;
  if (&segment == head && (has(uses_sack) || flow == nullptr || !flow->partial)) rto_start_us_ = now;
  set_timer(now);
}

// --- The path ----------------------------------------------------------------------------------------------------------------------------
void SendState::change_mss(std::uint32_t new_mss, std::uint64_t now_us) noexcept {
  const std::uint32_t old_mss = mss;
  mss = static_cast<std::uint16_t>(std::clamp(new_mss, std::uint32_t{1}, std::uint32_t{0xFFFF}));
  if (cwnd < 2U * mss) cwnd = 2U * mss;
  if (mss >= old_mss || head == nullptr || !make_flow(now_us)) return;
  // A long segment was cut by the old MSS, so its frames were too long as well.
  for (SentSegment* segment = head; segment != nullptr; segment = segment->next) {
    if (segment->bytes > mss && !segment->has(SentSegment::sacked | SentSegment::lost)) mark_lost(*segment);
  }
  if (flow->lost == 0 || flow->phase == Phase::timed_out) return;
  // As after a time-out, but the window stays: nothing says that the path is congested.
  flow->phase = Phase::timed_out;
  flow->recover = nxt;
  flow->undo_possible = flow->hold_retransmissions = flow->probing = false;
  flow->forward_probe = ForwardProbe::none;
  set_timer(static_cast<std::uint32_t>(now_us));
}

void SendState::revert_backoff(std::uint64_t now_us) noexcept {
  if (backoff == 0 || head == nullptr || timer_ != Timer::retransmission) return;
  --backoff;
  round_trip.rto_us = std::max(round_trip.rto_us / 2, rto_min_us);
  due_ = rto_start_us_ + round_trip.rto_us;
  static_cast<void>(now_us);
}

}  // namespace neap::net::tcp
