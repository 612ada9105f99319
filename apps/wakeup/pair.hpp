// SPDX-License-Identifier: BSL-1.0
// Two cores measure one wake-up: one sleeps, the other rings.
//
// The latency is the time from the doorbell to the first clock reading after the sleep. Both ends are readings of the TSC, which is common
// to all cores. The event loop's own work before and after a sleep would be part of the latency, so the sleeper does not use it: within
// one event it calls `machine::sleep` itself. The interrupt's handler remains part of the latency.
//
// The sleeper announces its sleep as the last step before `machine::sleep`, and the other core rings `asleep` later. The sleeper's alarm
// bounds each sleep, so a doorbell that is lost costs a repetition and not the machine. Both cores sleep by wake words of the pair, not by
// the cores' own, so work that is queued for a core waits until the round is over.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "apps/wakeup/results.hpp"
#include "kernel/machine.hpp"
#include "kernel/task.hpp"
#include "kernel/wake_word.hpp"
#include "kernel/watched_line.hpp"

namespace neap::wakeup {

/// One round. `ticks` counts only if `good`: the sleep ended by the doorbell and not before it.
struct Round {
  bool good = false;
  std::uint64_t ticks = 0;
};

/// The core that calls `ring` and the sleeper. The object MUST NOT be destroyed, because a late sleeper refers to it.
class Pair {
 public:
  /// `sleeper` MUST NOT be the ringing core. `vector`: a vector of the sleeper that wakes it while it polls.
  Pair(unsigned sleeper, std::uint8_t vector) noexcept : sleeper_(sleeper), vector_(vector) {}
  Pair& operator=(Pair&&) = delete;

  /// One wake-up: the sleeper sleeps in `state` for `asleep`, then the doorbell rings. Occupies both cores for the whole round. Errors:
  /// `timeout` (the sleeper did not answer within 2 s; a later round waits for it first), `full`.
  [[nodiscard]] Result<Round> ring(IdleState state, Doorbell doorbell, std::chrono::nanoseconds asleep);
  /// A round leaves both cores' hardware timers without a deadline. The event loops set theirs again when a timer of the kernel is armed,
  /// so this task waits for such a timer on both cores. MUST be awaited after the last of several rounds, on the ringing core.
  [[nodiscard]] task<void> restore_alarms() const;

 private:
  void sleep_once() noexcept;
  void poll(std::uint64_t deadline_ns) noexcept;
  void log_sleep() const noexcept;
  void wait_and_ring() noexcept;
  void sleep_until_done(IdleState state, std::uint64_t latest_ns) noexcept;

  const unsigned sleeper_;
  const std::uint8_t vector_;
  // Of the present round. The ringing core writes the first four before the sleeper's event begins.
  IdleState state_ = IdleState::halt;
  Doorbell doorbell_ = Doorbell::ipi;
  std::uint64_t asleep_ns_ = 0;
  unsigned ringer_ = 0;
  std::atomic<std::uint64_t> asleep_tsc_{0};  // 0: not asleep yet
  std::atomic<std::uint64_t> rung_tsc_{0};    // the doorbell's time; with a timer its deadline
  std::uint64_t awake_tsc_ = 0;
  Sleep how_;
  std::atomic<bool> done_{true};
  // Lines of their own: `sleeper_line_` is the line that `monitor` and `poll` watch. No core writes to `ringer_words_`.
  alignas(64) std::atomic<std::uint64_t> sleeper_line_{0};
  alignas(64) std::uint64_t ringer_words_[8]{};
  const WatchedLine ringer_line_{ringer_words_};
  WakeWord sleeper_word_, ringer_word_;
};

}  // namespace neap::wakeup
