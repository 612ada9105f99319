// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/energy.hpp"

#include <algorithm>
#include <cmath>

namespace neap::model {

void PowerLimit::set(bool on, double watts, double window_seconds) noexcept {
  on_ = on;
  limit_w_ = watts;
  window_s_ = std::max(window_seconds, to_seconds(period));
  if (!on) cap_ = cpu_->highest_ratio();
}

bool PowerLimit::end_period(double watts, double seconds, const PowerShares& shares) noexcept {
  mean_w_ = watts + (mean_w_ - watts) * std::exp(-seconds / window_s_);
  if (!on_) return false;
  const double allowed_w = limit_w_ + (limit_w_ - mean_w_);
  unsigned cap = cpu_->min_ratio;
  for (unsigned ratio = cpu_->highest_ratio(); ratio > cpu_->min_ratio; --ratio) {
    const double v = cpu_->volts(ratio);
    const double estimated_w = shares.other_w + shares.dynamic_w_per_v2_ghz * v * v * gigahertz_of(ratio) + shares.leakage_w_per_v * v;
    if (estimated_w <= allowed_w) {
      cap = ratio;
      break;
    }
  }
  const bool changed = cap != cap_;
  cap_ = cap;
  return changed;
}

}  // namespace neap::model
