// SPDX-License-Identifier: BSL-1.0
// How long a core polls before it sleeps (`adaptive_poll`).
//
// Under high load the next frame arrives soon after the last one, so an interrupt and a wake-up for each frame cost more than polling until
// it comes. Under low load polling is waste. Like Linux's NAPI, a core switches between the two by demand. NAPI goes back to interrupts
// when one poll finds nothing; here the core polls for a time that follows the measured gaps. A gap lasts from the moment at which the core
// has no work to the moment at which it finds some, whether the core polls or sleeps in between.
//
// Bounds: the core polls for at most the setting's time in a row. It polls only while at least `short_gaps_min` of the last `history` gaps
// were no longer than that time, so at most the others were polled in vain.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace neap {

class PollAdaptation {
 public:
  static constexpr unsigned history = 8, short_gaps_min = 6;
  /// Shorter times are not worth the two register writes that turn the interrupt off and on.
  static constexpr std::uint64_t shortest_ns = 2000;

  /// Sets the longest time of polling in a row; 0: the core does not poll. Forgets the gaps.
  void limit(std::uint64_t longest_ns) noexcept {
    *this = PollAdaptation();
    longest_ns_ = longest_ns;
  }
  [[nodiscard]] bool on() const noexcept { return longest_ns_ != 0; }

  /// The core found work, `gap_ns` after it had none.
  void note_gap(std::uint64_t gap_ns) noexcept {
    gaps_ns_[next_] = gap_ns;
    next_ = static_cast<std::uint8_t>((next_ + 1) % history);
    count_ = std::min<std::uint8_t>(count_ + 1, history);
    budget_ns_ = count_ < history ? 0 : budget_of_gaps();
  }
  /// How long the core polls from the moment at which it has no work; 0: it sleeps at once.
  [[nodiscard]] std::uint64_t budget_ns() const noexcept { return budget_ns_; }

 private:
  // Half as long again as the longest of the short gaps, so that gaps of the present load end within the budget.
  [[nodiscard]] std::uint64_t budget_of_gaps() const noexcept {
    auto gaps = gaps_ns_;
    std::ranges::sort(gaps);
    const std::uint64_t usual_ns = gaps[short_gaps_min - 1];
    if (usual_ns > longest_ns_) return 0;
    return std::min(std::max(usual_ns + usual_ns / 2, shortest_ns), longest_ns_);
  }

  std::uint64_t longest_ns_ = 0, budget_ns_ = 0;
  std::array<std::uint64_t, history> gaps_ns_{};
  std::uint8_t next_ = 0, count_ = 0;
};

}  // namespace neap
