// SPDX-License-Identifier: BSL-1.0
// Waiting for a moment.
//
// A core holds thousands of pending time-outs (one or more for each connection) and almost none of them ever fires. So adding and
// cancelling must cost a handful of instructions and no allocation, while firing may cost more: a hierarchical wheel gives that (Varghese
// and Lauck, 1987). The machine's alarm is armed only for the earliest pending timer: a core without timers takes no timer interrupt.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernel/interrupts.hpp"

namespace neap {

/// A clock in nanoseconds since boot; satisfies the standard's Clock requirements.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
};

/// One pending moment. Belongs to the core that armed it and fires there, in an event of its own: never early, late by at most one tick
/// (`timer_tick`) plus the event in progress; those of one tick in the order in which they were armed. Destroying it cancels it, and its
/// own callback may do so.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

  /// Calls `fire` once, `delay` from now; re-arming replaces the earlier deadline and callback. Delays below zero count as zero, those
  /// beyond 2^63 ns after boot end there.
  void arm(std::chrono::nanoseconds delay, Callback fire);
  /// As `arm`, with the callback that is already there (for time-outs that are pushed back often). There must be one.
  void rearm(std::chrono::nanoseconds delay);
  /// True if the timer was pending; its callback will then not run.
  bool cancel() noexcept;
  [[nodiscard]] bool pending() const noexcept { return slot_ != nullptr; }

 private:
  friend class TimerWheel;
  Callback fire_;
  std::uint64_t deadline_ns_ = 0;
  Timer** slot_ = nullptr;  // head of the list that holds this timer; null when not pending
  Timer* next_ = nullptr;
  Timer* previous_ = nullptr;
};

constexpr std::chrono::nanoseconds timer_tick{1 << 16};  // 65.5 us

}  // namespace neap
