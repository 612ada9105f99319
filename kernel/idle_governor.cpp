// SPDX-License-Identifier: BSL-1.0
#include "kernel/idle_governor.hpp"

#include <algorithm>
#include <bit>

#include "kernel/panic.hpp"

namespace neap {

namespace {

constexpr std::uint64_t ns_per_us = 1000;
constexpr unsigned states_first = static_cast<unsigned>(IdleState::c1), states_last = static_cast<unsigned>(IdleState::c7);

/// The shortest sleep for which `state` is chosen; 0 if the CPU lacks the state.
std::uint64_t residency_ns(const PowerAbilities& abilities, IdleState state) noexcept {
  return abilities.wake_us[static_cast<unsigned>(state)] * ns_per_us * IdleGovernor::residency_per_wake_up;
}

IdleState deepest_that_fits(const PowerAbilities& abilities, std::uint64_t length_ns) noexcept {
  auto chosen = static_cast<IdleState>(states_first);
  for (unsigned index = states_first; index <= states_last; ++index) {
    const auto state = static_cast<IdleState>(index);
    const std::uint64_t shortest_ns = residency_ns(abilities, state);
    if (shortest_ns != 0 && shortest_ns <= length_ns) chosen = state;
  }
  return chosen;
}

}  // namespace

unsigned SleepPredictor::range_of(std::uint64_t until_timer_ns) noexcept {
  // 8 us have 13 bits. Three bits more are eight times as much.
  constexpr unsigned first_bits = 13, bits_per_range = 3;
  const auto bits = static_cast<unsigned>(std::bit_width(until_timer_ns));
  return bits <= first_bits ? 0 : std::min((bits - first_bits + bits_per_range - 1) / bits_per_range, ranges - 1);
}

std::uint64_t SleepPredictor::typical_ns() const noexcept {
  // Sleeps are of similar length if their standard deviation is at most a sixth of their mean, or is shorter than the wake-up times that
  // the choice distinguishes. Otherwise the longest are left out, one length at a time: a single long pause between many short ones must
  // not make the next sleep deep. At least three quarters must remain.
  constexpr std::uint64_t deviation_ns = 4 * ns_per_us, means_per_deviation = 6;
  constexpr unsigned needed = history - history / 4;
  std::uint64_t limit_ns = longest_ns;
  for (;;) {
    std::uint64_t sum = 0, longest = 0;
    unsigned count = 0;
    for (unsigned i = 0; i < count_; ++i) {
      if (slept_ns_[i] > limit_ns) continue;
      sum += slept_ns_[i];
      longest = std::max<std::uint64_t>(longest, slept_ns_[i]);
      ++count;
    }
    if (count < needed) return longest_ns;
    const std::uint64_t mean = sum / count;
    std::uint64_t squares = 0;  // at most 8 * 2^60
    for (unsigned i = 0; i < count_; ++i) {
      if (slept_ns_[i] > limit_ns) continue;
      const std::uint64_t away = slept_ns_[i] > mean ? slept_ns_[i] - mean : mean - slept_ns_[i];
      squares += away * away;
    }
    const std::uint64_t variance = squares / count;
    if (variance <= deviation_ns * deviation_ns || variance <= mean * mean / (means_per_deviation * means_per_deviation)) return mean;
    if (longest == 0) return longest_ns;  // not reached: equal lengths have no variance
    limit_ns = longest - 1;
  }
}

std::uint64_t SleepPredictor::predict(std::uint64_t until_timer_ns) noexcept {
  until_timer_ns_ = std::min(until_timer_ns, longest_ns);
  const std::uint64_t usual_ns = until_timer_ns_ * share_[range_of(until_timer_ns_)] >> share_bits;
  return std::min(usual_ns, typical_ns());
}

void SleepPredictor::observe(std::uint64_t slept_ns) noexcept {
  const std::uint64_t slept = std::min(slept_ns, longest_ns);
  slept_ns_[next_] = static_cast<std::uint32_t>(slept);
  next_ = static_cast<std::uint8_t>((next_ + 1) % history);
  count_ = std::min<std::uint8_t>(count_ + 1, history);

  // A timer may be late, so a sleep may last longer than the time until the timer.
  const std::uint64_t until = std::max<std::uint64_t>(until_timer_ns_, 1);
  const auto share = static_cast<std::int64_t>(std::min<std::uint64_t>((slept << share_bits) / until, whole));
  const unsigned range = range_of(until_timer_ns_);
  // The first observations count in full, so that a new range is not believed for long.
  observed_[range] = std::min<std::uint8_t>(observed_[range] + 1, share_weight);
  const auto before = static_cast<std::int64_t>(share_[range]);
  share_[range] = static_cast<std::uint32_t>(before + (share - before) / observed_[range]);
}

IdleGovernor::Choice IdleGovernor::choose(const PowerAbilities& abilities, std::uint64_t until_timer_ns) noexcept {
  require(abilities.wake_us[states_first] != 0, "idle=menu on a CPU whose wake-up times are not known");
  if (slept_before_ns_ != 0) return {deepest_that_fits(abilities, until_timer_ns), never};
  const IdleState chosen = deepest_that_fits(abilities, predictor_.predict(until_timer_ns));
  const IdleState allowed = deepest_that_fits(abilities, until_timer_ns);
  return {chosen, chosen == allowed ? never : residency_ns(abilities, allowed)};
}

void IdleGovernor::woke(const PowerAbilities& abilities, IdleState state, std::uint64_t asleep_ns, bool to_look_again) noexcept {
  // The wake-up is not part of the sleep that the state had to fit. Its table value is a maximum, so the result may be too small. Then the
  // next choice is a lighter state, whose own sleep is measured better.
  const std::uint64_t wake_ns = abilities.wake_us[static_cast<unsigned>(state)] * ns_per_us;
  const std::uint64_t slept_ns = slept_before_ns_ + (asleep_ns - std::min(wake_ns, asleep_ns));
  if (to_look_again) {
    slept_before_ns_ = std::max<std::uint64_t>(slept_ns, 1);
  } else {
    predictor_.observe(slept_ns);
    slept_before_ns_ = 0;
  }
}

}  // namespace neap
