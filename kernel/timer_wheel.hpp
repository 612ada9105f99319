// SPDX-License-Identifier: BSL-1.0
// The hierarchical wheel that implements the timers of timer.hpp. Kernel-internal.
//
// Time is counted in ticks of 2^16 ns. A timer's level is the number of the highest group of six bits in which its tick differs from the
// wheel's present tick. Its slot is the value of those six bits. So all timers of level 0 are due before all timers of level 1, and the
// slots of a level are due in order. The earliest timer is in the first used slot of the lowest used level. When the time of a slot above
// level 0 comes, its timers move to lower levels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/machine.hpp"
#include "kernel/timer.hpp"

namespace neap {

class TimerWheel {
 public:
  static constexpr unsigned slot_bits = 6;

  constexpr TimerWheel() = default;

  void insert(Timer& timer, std::uint64_t deadline_ns) noexcept;
  void remove(Timer& timer) noexcept;
  /// Runs up to `budget` timers whose time has come, each as an event. Returns true if it ran one.
  bool run_due(unsigned budget, std::uint64_t now_timestamp) noexcept {
    // A comparison of timestamps saves the conversion to nanoseconds in each round of the loop.
    if (now_timestamp < look_timestamp_) [[likely]]
      return false;
    return run_due_timers(budget);
  }
  /// The time when the next timer is due; 0 if one is due already, `machine::alarm_none` if there is none. The time is exact, with one
  /// exception: for a slot above level 0 with more than `alarm_scan_max` timers it is the slot's beginning, which may be too early.
  [[nodiscard]] std::uint64_t earliest_ns() noexcept;
  /// As `earliest_ns`, but without a search. The time may be too early, because a cancelled timer still counts until the next search.
  [[nodiscard]] std::uint64_t not_before_ns() const noexcept { return due_ != nullptr ? 0 : next_look_ns_; }
  /// The same for timers that are not due yet.
  [[nodiscard]] std::uint64_t next_look_ns() const noexcept { return next_look_ns_; }
  [[nodiscard]] std::size_t count() const noexcept;
  /// True if the callback of `timer` runs now and the timer still exists.
  [[nodiscard]] bool is_running(const Timer& timer) const noexcept { return running_ == &timer; }
  void forget_running(const Timer& timer) noexcept {
    if (running_ == &timer) running_ = nullptr;
  }

 private:
  static constexpr unsigned tick_bits = 16;
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  static constexpr unsigned slots = 1 << slot_bits;
  static constexpr unsigned levels = 8;  // 8 * 6 bits of ticks and 16 bits of nanoseconds: all 64 bits
  static constexpr unsigned alarm_scan_max = 16;

  bool run_due_timers(unsigned budget) noexcept;

  /// Rounds up. The sum does not overflow, because no deadline is within a tick of the clock's end.
  static std::uint64_t tick_of(std::uint64_t deadline_ns) noexcept { return (deadline_ns + (1 << tick_bits) - 1) >> tick_bits; }
  [[nodiscard]] std::uint64_t slot_start(unsigned level, unsigned slot) const noexcept;
  [[nodiscard]] bool earliest_slot(unsigned& level, unsigned& slot) noexcept;
  void append_due(Timer& timer) noexcept;
  void place(Timer& timer) noexcept;
  void empty_slot(unsigned level, unsigned slot) noexcept;
  void advance(std::uint64_t now_tick) noexcept;
  [[nodiscard]] std::uint64_t earliest_waiting_ns() noexcept;
  void update_next_look() noexcept;
  void look_next_at(std::uint64_t tick) noexcept;
  void update_look_timestamp() noexcept { look_timestamp_ = due_ != nullptr ? 0 : next_look_timestamp_; }

  Timer* heads_[levels * slots] = {};  // newest first
  std::uint64_t used_[levels] = {};    // one bit for each slot with timers; it may stay set after their cancellation, until the next check
  std::uint64_t elapsed_ = 0;          // the present tick; all slots before it are empty
  std::uint64_t next_look_ = never;    // no timer is due before this tick; a cancellation may leave it too early
  // That tick in nanoseconds, and a timestamp at or shortly before it.
  std::uint64_t next_look_ns_ = machine::alarm_none;
  std::uint64_t next_look_timestamp_ = never;
  std::uint64_t look_timestamp_ = never;  // the same, or 0 while timers are due; may be 0 after the cancellation of the last due timer
  Timer* due_ = nullptr;                  // oldest first
  Timer** due_end_ = nullptr;             // `next_` of the last due timer; valid unless `due_` is null
  const Timer* running_ = nullptr;
};

}  // namespace neap
