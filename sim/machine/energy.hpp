// SPDX-License-Identifier: BSL-1.0
// Energy: the integral of power over virtual time.
//
// Cores' clocks differ by up to a quantum, so changes of power do not arrive in the order of their times. Each part books for itself, up to
// the moment of its change. A part that was booked further, because a counter was read, is refunded: the time difference is signed. So the
// sums do not depend on when counters are read.
#pragma once

#include <array>

#include "sim/machine/cpu_model.hpp"

namespace neap::model {

/// One part with a power of its own.
class EnergyMeter {
 public:
  void set_watts(Ticks now, double watts) noexcept {
    book(now);
    watts_ = watts;
  }
  void book(Ticks now) noexcept {
    joules_ += watts_ * static_cast<double>(static_cast<std::int64_t>(now - booked_)) / static_cast<double>(ticks_per_second);
    booked_ = now;
  }
  void add(double joules) noexcept { joules_ += joules; }
  [[nodiscard]] double watts() const noexcept { return watts_; }
  /// As of the last booking.
  [[nodiscard]] double joules() const noexcept { return joules_; }

 private:
  double watts_ = 0, joules_ = 0;
  Ticks booked_ = 0;
};

/// An energy counter as software reads it: 32 bits that never run backwards.
class EnergyCounter {
 public:
  std::uint32_t read(double joules, unsigned unit_exponent) noexcept {
    const auto units = static_cast<std::uint64_t>(joules * static_cast<double>(std::uint64_t{1} << unit_exponent));
    if (units > largest_) largest_ = units;
    return static_cast<std::uint32_t>(largest_);
  }

 private:
  std::uint64_t largest_ = 0;
};

/// The cores' power at another frequency, estimated from a period's shares (see CorePower).
struct PowerShares {
  double dynamic_w_per_v2_ghz = 0, leakage_w_per_v = 0;  ///< of cores in C0 and C1, mean of the period
  double other_w = 0;
};

/// The package's sustained limit (PL1, SDM 3B 15.10.3). A lower frequency keeps the mean power over a window below it.
///
/// Every period it takes the mean so far, as an exponential average over the window. If the mean is below the limit, the next period may
/// exceed the limit by the difference. The control loop allows the highest ratio whose estimated power is below that. Intel does not
/// publish its control loop: this one is assumed.
class PowerLimit {
 public:
  static constexpr Ticks period = ticks_per_ms;

  explicit PowerLimit(const CpuModel& cpu) noexcept : cpu_(&cpu), cap_(cpu.highest_ratio()) {}
  /// Limit and window as MSR_PKG_POWER_LIMIT states them. Not `on`: no cap.
  void set(bool on, double watts, double window_seconds) noexcept;
  /// The end of a period of `seconds` with a mean power of `watts`. Returns true if the cap has changed.
  bool end_period(double watts, double seconds, const PowerShares& shares) noexcept;
  [[nodiscard]] unsigned cap() const noexcept { return cap_; }
  [[nodiscard]] bool is_on() const noexcept { return on_; }
  [[nodiscard]] bool binds() const noexcept { return on_ && cap_ < cpu_->highest_ratio(); }

 private:
  const CpuModel* cpu_;
  bool on_ = false;
  double limit_w_ = 0, window_s_ = 1, mean_w_ = 0;
  unsigned cap_;
};

}  // namespace neap::model
