// SPDX-License-Identifier: BSL-1.0
// Growth of the congestion window: HyStart++ (RFC 9406), CUBIC (RFC 9438), Reno (RFC 5681) and DCTCP (RFC 8257).
#include "net/tcp/send_state.hpp"

namespace neap::net::tcp {

namespace {

/// The largest number whose cube is at most `value`.
std::uint32_t cube_root(std::uint64_t value) noexcept {
  std::uint64_t root = 0;
  for (int bit = 21; bit >= 0; --bit) {
    const std::uint64_t candidate = root | std::uint64_t{1} << bit;
    if (candidate <= 2'642'245 && candidate * candidate * candidate <= value) root = candidate;
  }
  return static_cast<std::uint32_t>(root);
}

}  // namespace

// --- Slow start --------------------------------------------------------------------------------------------------------------------------
namespace hystart {
constexpr std::uint32_t least_us = 4'000, most_us = 16'000, divisor = 8;  // MIN_RTT_THRESH, MAX_RTT_THRESH, MIN_RTT_DIVISOR
constexpr unsigned samples = 8, growth_divisor = 4, rounds = 5;           // N_RTT_SAMPLE, CSS_GROWTH_DIVISOR, CSS_ROUNDS
}  // namespace hystart

void SendState::sample_slow_start(std::uint32_t round_trip_us) noexcept {
  SlowStart& s = flow->slow_start;
  s.round_least_us = std::min(s.round_least_us, round_trip_us);
  if (s.samples != 0xFF) ++s.samples;
  if (s.samples < hystart::samples || s.previous_least_us == ~0U) return;
  if (s.conservative_rounds == 0) {
    const std::uint32_t tolerance_us = std::clamp(s.previous_least_us / hystart::divisor, hystart::least_us, hystart::most_us);
    if (s.round_least_us >= s.previous_least_us + tolerance_us) {
      s.baseline_us = s.round_least_us;
      s.conservative_rounds = 1;
    }
  } else if (s.round_least_us < s.baseline_us) {
    s.baseline_us = ~0U;
    s.conservative_rounds = 0;
  }
}

void SendState::begin_slow_start_round() noexcept {
  SlowStart& s = flow->slow_start;
  s.previous_least_us = std::exchange(s.round_least_us, ~0U);
  s.samples = 0;
  if (s.conservative_rounds == 0) return;
  if (++s.conservative_rounds > hystart::rounds) {
    ssthresh = cwnd;
    s = {};
  }
}

// Returns the bytes that count for congestion avoidance. A card or a peer that joins segments acknowledges up to 64 KiB at once, so the
// limit of RFC 9406, eight segments, would make slow start slower than before.
std::uint32_t SendState::slow_start(std::uint32_t acked) noexcept {
  std::uint32_t growth = std::min(acked, burst_bytes_max);
  if (flow->slow_start.conservative_rounds != 0) growth /= hystart::growth_divisor;
  const std::uint32_t before_growth = cwnd;
  cwnd = std::min({cwnd + growth, ssthresh, window_bytes_max});
  return cwnd < ssthresh ? 0 : acked - std::min(acked, cwnd - before_growth);
}

// --- Congestion avoidance ----------------------------------------------------------------------------------------------------------------
void SendState::grow_reno(std::uint32_t acked) noexcept {
  Flow& f = *flow;
  f.growth_rest += std::uint64_t{acked} * mss;
  const std::uint64_t growth = f.growth_rest / cwnd;
  f.growth_rest -= growth * cwnd;
  cwnd = static_cast<std::uint32_t>(std::min<std::uint64_t>(cwnd + growth, window_bytes_max));
}

// RFC 9438, 4.2 to 4.5, with C = 0.4 segments/s^3, in bytes and milliseconds.
void SendState::grow_cubic(std::uint32_t acked, std::uint32_t now_ms) noexcept {
  Flow& f = *flow;
  Cubic& c = f.cubic;
  if (c.epoch_window == 0) [[unlikely]] {
    c.epoch_ms = now_ms;
    c.epoch_window = c.reno_window = cwnd;
    c.target_ms = now_ms - 1;
    c.reno_rest = f.growth_rest = 0;
    if (cwnd < c.window_max) {
      // K = cbrt((W_max - cwnd_epoch) / C), in ms: cbrt(segments * 2.5 * 10^9).
      c.inflection_ms = cube_root(std::uint64_t{c.window_max - cwnd} * 2'500'000'000 / mss);
    } else {
      c.window_max = cwnd;
      c.inflection_ms = 0;
    }
  }
  if (c.target_ms != now_ms) {
    c.target_ms = now_ms;
    constexpr std::int64_t furthest_ms = 100'000;  // bounds the cube
    const std::int64_t since_ms = std::int64_t{now_ms - c.epoch_ms} + (round_trip.smoothed_us() >> 10);
    const std::int64_t from_inflection_ms = std::clamp(since_ms - std::int64_t{c.inflection_ms}, -furthest_ms, furthest_ms);
    const std::int64_t cube = from_inflection_ms * from_inflection_ms * from_inflection_ms;
    const std::int64_t change = cube / 100'000 * mss / 25'000;  // 0.4 * (ms / 1000)^3 segments
    const std::int64_t target = std::clamp(std::int64_t{c.window_max} + change, std::int64_t{0}, std::int64_t{window_bytes_max});
    c.target = static_cast<std::uint32_t>(target);
  }
  // W_est grows by 3 (1 - 0.7) / (1 + 0.7) = 9/17 of a segment in a round trip, then by a whole one (4.3).
  const std::uint64_t rate = c.reno_window < c.prior_window ? std::uint64_t{acked} * mss * 9 / 17 : std::uint64_t{acked} * mss;
  c.reno_rest += rate;
  if (c.reno_rest >= cwnd) {
    const std::uint64_t growth = c.reno_rest / cwnd;
    c.reno_rest -= growth * cwnd;
    c.reno_window = static_cast<std::uint32_t>(std::min<std::uint64_t>(c.reno_window + growth, window_bytes_max));
  }
  const std::uint32_t target = std::min(c.target, cwnd + cwnd / 2);
  if (target > cwnd) {
    f.growth_rest += std::uint64_t{target - cwnd} * acked;
    if (f.growth_rest >= cwnd) {
      const std::uint64_t growth = f.growth_rest / cwnd;
      f.growth_rest -= growth * cwnd;
      cwnd = static_cast<std::uint32_t>(std::min<std::uint64_t>(cwnd + growth, window_bytes_max));
    }
  }
  cwnd = std::max(cwnd, c.reno_window);
}

// Only a window that the sender has used grows (RFC 7661, 9438 4.2.1). In slow start, half of it is enough, because the next round may use
// all of it.
void SendState::grow(std::uint32_t acked, std::uint32_t now_ms) noexcept {
  Flow& f = *flow;
  const bool limited = f.limited || f.limited_before;
  if (cwnd < ssthresh) {
    if (!limited && cwnd >= 2 * std::uint64_t{f.flight_max}) return;
    acked = slow_start(acked);
    if (acked == 0) return;
  } else if (!limited) {
    f.cubic.epoch_window = 0;
    return;
  }
  if (congestion_ == CongestionControl::cubic) {
    grow_cubic(acked, now_ms);
  } else {
    grow_reno(acked);
  }
}

std::uint32_t SendState::reduced_window(bool by_mark) noexcept {
  Flow& f = *flow;
  std::uint32_t reduced = cwnd / 2;
  if (congestion_ == CongestionControl::cubic) {
    Cubic& c = f.cubic;
    c.prior_window = cwnd;
    c.window_max = cwnd < c.window_max ? static_cast<std::uint32_t>(std::uint64_t{cwnd} * 17 / 20) : cwnd;  // fast convergence, 4.7
    c.epoch_window = 0;
    reduced = static_cast<std::uint32_t>(std::uint64_t{cwnd} * 7 / 10);
  } else if (congestion_ == CongestionControl::dctcp && by_mark) {
    reduced = cwnd - static_cast<std::uint32_t>(std::uint64_t{cwnd} * f.dctcp.alpha / (2 * Dctcp::one));
  }
  return std::max(reduced, 2U * mss);
}

}  // namespace neap::net::tcp
