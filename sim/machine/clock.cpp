// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/clock.hpp"

#include <algorithm>

namespace neap::model {

void CoreClock::run(std::int64_t instructions) noexcept {
  const auto count = static_cast<std::uint64_t>(instructions);  // wraps for negative numbers, and so do the sums: they are taken back
  const Ticks time = count * per_instruction_;
  local_ += time;
  all_.instructions += count;
  all_.add(time, ratio_);
  if (!user_level_) return;
  user_.instructions += count;
  user_.add(time, ratio_);
}

bool is_ahead(std::span<const Runner> cores, unsigned self) noexcept {
  for (unsigned i = 0; i < cores.size(); ++i) {
    if (i != self && cores[i].awake && cores[i].local < cores[self].local) return true;
  }
  return false;
}

bool Rounds::may_run(std::span<const Runner> cores, unsigned core, Ticks end) noexcept {
  const Runner& one = cores[core];
  return one.awake && one.local < end && !(one.waits_for_others && is_ahead(cores, core));
}

bool Rounds::turn_is_over(std::span<const Runner> cores, Ticks timer) const noexcept {
  return turn_ < 0 || !may_run(cores, static_cast<unsigned>(turn_), std::min(round_end_, timer));
}

Ticks Rounds::end_of_run(unsigned self, std::span<const Runner> cores, Ticks timer, bool watched) noexcept {
  const auto awake = std::ranges::count_if(cores, &Runner::awake);
  if (awake == 1 && cores[self].awake && !watched) {
    turn_ = static_cast<int>(self);
    round_end_ = 0;
    return timer;
  }
  if (turn_is_over(cores, timer)) {
    Ticks least = ~Ticks{0};
    for (const Runner& one : cores) {
      if (one.awake) least = std::min(least, one.local);
    }
    if (awake != 0 && least >= round_end_) round_end_ = least + quantum_;
    const Ticks end = std::min(round_end_, timer);
    turn_ = -1;
    for (unsigned i = 0; i < cores.size() && turn_ < 0; ++i) {
      if (may_run(cores, i, end)) turn_ = static_cast<int>(i);
    }
  }
  return turn_ == static_cast<int>(self) ? std::min(round_end_, timer) : cores[self].local;
}

}  // namespace neap::model
