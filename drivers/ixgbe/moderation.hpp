// SPDX-License-Identifier: BSL-1.0
// Interrupt moderation: the longest time that an interrupt may be delayed.
//
// Each interrupt costs a wake-up, and each microsecond of delay adds latency. Users study that trade-off, so moderation is a plain number
// for each queue. The card counts in steps of 2 us at 10 Gb/s (82599 datasheet 7.3.2.1.1, EITR.ITR_INTERVAL: 9 bits). A requested time is
// rounded up to a step, and the caller gets the rounded time.
#pragma once

#include <cstdint>

#include "kernel/error.hpp"

namespace neap::ixgbe {

struct Moderation {
  static constexpr std::uint32_t step_us = 2, interval_steps_max = 511;
  static constexpr std::uint32_t itr_us_max = 1024;  ///< accepted because published studies use it; becomes 1022
  static constexpr std::uint32_t itr_us_default = 16;

  std::uint32_t interval_steps = itr_us_default / step_us;

  /// Returns the interval that the card uses, in microseconds; 0: interrupts are not delayed.
  [[nodiscard]] constexpr std::uint32_t itr_us() const noexcept { return interval_steps * step_us; }

  /// Rounds up to the next step, so that 1 does not become 0 ("off"). Errors: `invalid` above `itr_us_max`.
  [[nodiscard]] static constexpr Result<Moderation> from_us(std::uint32_t wanted_us) noexcept {
    if (wanted_us > itr_us_max) return failure(ErrorCode::invalid, "the card takes 0us to 1024us, in steps of 2us", wanted_us);
    const std::uint32_t steps = (wanted_us + step_us - 1) / step_us;
    return Moderation{.interval_steps = steps < interval_steps_max ? steps : interval_steps_max};
  }
};

}  // namespace neap::ixgbe
