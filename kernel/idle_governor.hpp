// SPDX-License-Identifier: BSL-1.0
// The choice of a C-state for the next sleep (`idle=menu`).
//
// A deep state saves power only if the sleep lasts long enough to pay for the way in and out, and its wake-up delays the next request. So
// the choice needs the length of a sleep that has not begun. The next timer bounds the length, but frames and other cores end most sleeps
// earlier. Two observations predict such ends, as in Linux's menu governor: recent sleeps of similar length repeat, and sleeps that a timer
// bounds usually last a certain share of the time until that timer. The choice is the deepest state whose target residency is at most the
// predicted length.
//
// A prediction that is too short would keep the core in a light state until something else wakes it: after a burst of frames, that is the
// whole pause. So a sleep in a lighter state than the timer allows has an end. If it lasts as long as the deeper state's target residency,
// the core wakes and chooses again, and now the timer alone bounds the choice. So a wrong prediction costs at most about twice what the
// best state would have cost, as for any rule that does not know the length.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/power.hpp"

namespace neap {

/// Predicts the length of a core's next sleep. Lengths above `longest_ns` count as `longest_ns`.
class SleepPredictor {
 public:
  static constexpr unsigned history = 8;
  static constexpr std::uint64_t longest_ns = std::uint64_t{1} << 30;  // 1.07 s: far above every target residency

  /// The expected length of a sleep that begins now and that a timer ends after `until_timer_ns` at the latest.
  [[nodiscard]] std::uint64_t predict(std::uint64_t until_timer_ns) noexcept;
  /// The sleep that the last call of `predict` was for lasted `slept_ns`.
  void observe(std::uint64_t slept_ns) noexcept;

  /// The mean of the recent sleeps without the longest ones, if they are of similar length; `longest_ns` if they are not, or are too few.
  [[nodiscard]] std::uint64_t typical_ns() const noexcept;

 private:
  // The share of the time until the next timer that sleeps last, for each range of that time: a moving average, in units of 2^-24. Each
  // range is eight times as wide as the one before, and the first ends at 8 us.
  static constexpr unsigned share_bits = 24, ranges = 8;
  static constexpr std::uint32_t whole = 1 << share_bits;
  [[nodiscard]] static unsigned range_of(std::uint64_t until_timer_ns) noexcept;

  std::array<std::uint32_t, history> slept_ns_{};
  std::uint8_t count_ = 0, next_ = 0;
  std::array<std::uint32_t, ranges> share_{whole, whole, whole, whole, whole, whole, whole, whole};
  std::array<std::uint8_t, ranges> observed_{};  // up to `share_weight`
  static constexpr std::uint8_t share_weight = 8;
  std::uint64_t until_timer_ns_ = longest_ns;
};

/// A core's governor.
class IdleGovernor {
 public:
  /// The shortest sleep for which a state is chosen, as a multiple of its wake-up time. Vendors state no residencies. Those of Linux's
  /// intel_idle are 1 to 4.5 times the wake-up time, for most states 2 to 3.3 times.
  static constexpr std::uint32_t residency_per_wake_up = 3;

  static constexpr std::uint64_t never = ~std::uint64_t{0};

  struct Choice {
    IdleState state;              ///< `c1` to `c7`
    std::uint64_t look_again_ns;  ///< if the sleep lasts so long, the core is to wake and choose again; `never`: it need not
  };
  /// The next sleep ends after `until_timer_ns` at the latest. `abilities.idle_states` MUST have `menu`.
  [[nodiscard]] Choice choose(const PowerAbilities& abilities, std::uint64_t until_timer_ns) noexcept;
  /// The sleep in the state that `choose` returned ended. `asleep_ns` includes the wake-up. `to_look_again`: the core woke only because of
  /// `look_again_ns`, so the sleep goes on after the next choice. A sleep that did not begin, because there was work, is not reported.
  void woke(const PowerAbilities& abilities, IdleState state, std::uint64_t asleep_ns, bool to_look_again) noexcept;

 private:
  SleepPredictor predictor_;
  std::uint64_t slept_before_ns_ = 0;  // the part of the present sleep before the second choice; 0: there was none
};

}  // namespace neap
