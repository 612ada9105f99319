// SPDX-License-Identifier: BSL-1.0
// Timers.
//
// A core has thousands of pending time-outs (one or more for each connection), and almost none of them ever fires. So adding and cancelling
// must cost a handful of instructions and no allocation, while firing may cost more. A hierarchical wheel achieves that (Varghese and
// Lauck, 1987). The machine's alarm is armed for the earliest pending timer only, so a core without timers takes no timer interrupt.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernel/callback.hpp"
#include "kernel/panic.hpp"

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

class TimerWheel;

/// A callback at a later time. Belongs to the core that armed it and fires there, in an event of its own. It never fires early, and is late
/// by at most one tick (`timer_tick`) plus the event in progress. Timers of one tick fire in the order in which they were armed. Destroying
/// a timer cancels it; its own callback may destroy it.
class Timer {
 public:
  Timer& operator=(Timer&&) = delete;
  ~Timer();

  /// Calls `fire` once, `delay` from now; re-arming replaces the earlier deadline and callback. Delays below zero count as zero.
  template <typename F>
    requires std::constructible_from<Callback, F>
  void arm(std::chrono::nanoseconds delay, F&& fire) {
    if constexpr (std::is_same_v<std::decay_t<F>, Callback>) require(!(fire == nullptr), "a timer without a callback");
    if (wheel_ != nullptr) [[unlikely]]
      cancel();
    period_ns_ = 0;
    fire_ = std::forward<F>(fire);
    insert(delay);
  }
  /// Calls `fire` each `period` (at least one tick), first after one period. The calls are due at multiples of `period` from now, so delays
  /// do not add up. Missed calls are skipped. The calls end when the timer is cancelled, armed or destroyed; `fire` may do that.
  void repeat(std::chrono::nanoseconds period, Callback fire);
  /// As `arm`, with the present callback, for time-outs that are often postponed. The timer MUST have been armed before.
  void rearm(std::chrono::nanoseconds delay);
  /// True if the timer was pending; its callback will then not run.
  bool cancel() noexcept;
  [[nodiscard]] bool pending() const noexcept { return wheel_ != nullptr; }

 private:
  friend class TimerWheel;
  void insert(std::chrono::nanoseconds delay) noexcept;

  Timer* next_ = nullptr;  // first member, so that its address is the timer's address
  Callback fire_;
  Timer** link_ = nullptr;       // the pointer in the list that points to this timer, while it is pending
  std::uint64_t period_ns_ = 0;  // 0: fires once
  TimerWheel* wheel_ = nullptr;  // null when not pending
  std::uint64_t deadline_ns_ = 0;
};

constexpr std::chrono::nanoseconds timer_tick{1 << 16};  // 65.5 us

/// The pending timers of this core. Counting visits all of them.
struct PendingTimers {
  std::size_t count = 0;
  std::chrono::nanoseconds until_next{0};  ///< time until the earliest deadline; 0 without timers
};
[[nodiscard]] PendingTimers pending_timers() noexcept;

}  // namespace neap
