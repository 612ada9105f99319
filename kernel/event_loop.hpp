// SPDX-License-Identifier: BSL-1.0
// The implementation of the event loop of events.hpp. Kernel-internal: interrupts, timers, RCU and tasks queue their events here.
//
// One iteration runs a bounded number of events of each kind. So a flood of one kind delays the others by a few events and never starves
// them.
//
// The iteration that matters most is one that an interrupt caused, with nothing else to do, and with a sleep of a fixed state behind it. It
// tests two words, `core_work` and the core's wake word, and takes few branches. All else is in functions that are not inlined.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernel/core.hpp"
#include "kernel/events.hpp"
#include "kernel/idle_governor.hpp"
#include "kernel/poll_adaptation.hpp"
#include "kernel/power.hpp"
#include "kernel/timer_wheel.hpp"
#include "kernel/watchdog.hpp"
#include "kernel/watched_line.hpp"

namespace neap {

class EventLoop {
 public:
  /// Limits of one iteration.
  static constexpr unsigned interrupt_windows = 4;
  static constexpr unsigned handed_over_budget = 32;
  static constexpr unsigned remote_budget = 16;
  static constexpr unsigned local_budget = 16;
  static constexpr unsigned timer_budget = 16;
  static constexpr unsigned reclaim_budget = 64;

  constexpr EventLoop() = default;

  /// Queues an event of this core: `node.run(&node)` is called after the events already queued. Cannot fail. `node` MUST NOT be in a queue.
  void enqueue(RemoteNode& node) noexcept {
    local_.push_back(node);
    core_work |= work_bits::local;
  }

  /// MUST be called before each callback of any kind. The watchdog finds the event's name by `code`, the callback's address.
  static void begin_event(std::uintptr_t code) noexcept {
    if (watchdog::on) [[unlikely]]
      watchdog::begin(code);
  }
  static void begin_event(const RemoteNode& node) noexcept { begin_event(reinterpret_cast<std::uintptr_t>(node.run)); }
  /// MUST be called after each callback of any kind. Runs the event-end hooks that the callback requested.
  void finish_event() noexcept {
    self_->counters.events.add();
    end_event();
  }
  /// As `finish_event`, for a callback that is counted otherwise.
  static void end_event() noexcept;
  /// This core's state; null before its loop runs.
  [[nodiscard]] Core* core() const noexcept { return self_; }

  [[nodiscard]] void* take_event_memory();
  void give_back_event_memory(void* memory) noexcept;

  void run() noexcept;
  void stop() noexcept {
    stop_ = true;
    core_work |= work_bits::policy;  // an iteration tests `stop_` only behind `core_work`
  }

  /// What a core does when it has no work.
  struct Idling {
    IdleState state = IdleState::halt;
    IdleState monitor_state = IdleState::c1;  ///< the C-state of `monitor`
    std::uint64_t poll_budget_ns = 0;         ///< it polls for so long, then sleeps
    std::uint64_t adaptive_poll_ns = 0;       ///< the bound of PollAdaptation
  };
  /// Called on this core by policy.cpp. Afterwards the interrupt of the core's queue is as `policy::Device::set_interrupt` last had it from
  /// another caller than this loop.
  void idle_by(const Idling& idling) noexcept;

  void add(EventEndHook& hook, EventEndHook::Place place) noexcept;
  void remove(EventEndHook& hook) noexcept;
  void add(IdleHook& hook) noexcept;
  void remove(IdleHook& hook) noexcept;

 private:
  bool run_iteration() noexcept;
  [[nodiscard]] bool has_more_work() const noexcept;
  void end_iteration(bool again) noexcept;
  bool run_queued() noexcept;
  bool run_handed_over() noexcept;
  bool run_remote() noexcept;
  bool run_local() noexcept;
  bool run_idle_hooks() noexcept;
  void found_work() noexcept;
  void be_idle() noexcept;
  void be_idle_by_policy() noexcept;
  void note_policy() noexcept;
  void poll(std::uint64_t now) noexcept;
  [[nodiscard]] bool keeps_polling() noexcept;
  void end_gap() noexcept;
  void begin_polling_phase() noexcept;
  void end_polling_phase() noexcept;
  [[nodiscard]] bool watch_card() noexcept;
  void sleep() noexcept;
  Sleep sleep_in(IdleState state, std::uint64_t from_tsc, const WatchedLine* watched, std::uint64_t& until_tsc) noexcept;
  [[nodiscard]] IdleState choose_state(std::uint64_t latest_ns) noexcept;
  void discard_queued() noexcept;
  void free_spare_events(unsigned keep) noexcept;
  void run_hooks() noexcept;
  void check_hardware_errors(std::uint64_t now_tsc) noexcept;

  Core* self_ = nullptr;
  const std::atomic<bool>* heap_flag_ = nullptr;  // memory::boundary_flag
  IntrusiveQueue<RemoteNode> local_;              // events of this core
  IntrusiveQueue<RemoteNode> received_;           // events from other cores, moved here from `Core::handed_over`
  std::uint32_t requests_ = 0;                    // requests of the wake word whose queues may have work left
  struct SpareEvent {
    SpareEvent* next;
  };
  static constexpr unsigned spare_events_kept = 64;
  SpareEvent* spare_events_ = nullptr;  // memory of finished events
  unsigned events_in_memory_ = 0;       // queued, running and spare; an idle core frees all but `spare_events_kept` spare ones
  static constexpr unsigned last_hooks_max = 8;
  EventEndHook* hooks_[work_bits::end_hooks_max] = {};  // by the number of the hook's bit
  IdleHook* idle_hooks_ = nullptr;
  IdleHook* idle_next_ = nullptr;  // the next hook, while the loop runs the hooks
  bool stop_ = false;

  IdleState idle_state_ = IdleState::halt;
  IdleState monitor_state_ = IdleState::c1;
  std::uint64_t poll_budget_ns_ = 0;
  PollAdaptation adaptation_;
  bool may_poll_ = false;                   // `poll_budget` or `adaptive_poll` is set
  bool polling_phase_ = false;              // the queue's interrupt is off, because of `adaptive_poll`
  bool interrupt_off_ = false;              // the queue's interrupt is off: a polling phase, or idle state `poll` or `monitor`
  std::uint64_t idle_since_ns_ = 0;         // when the core first found no work; 0: the last check found work
  std::uint64_t next_error_check_tsc_ = 0;  // when to read the hardware's error banks next
  std::uint64_t found_none_at_tsc_ = 0;     // TSC of the last check by `poll`, if it found nothing; else 0
  // For idle state `menu`: the governor, when the next timer is due or earlier, and the purpose of the alarm that the last choice has set.
  IdleGovernor governor_;
  std::uint64_t menu_timer_ns_ = machine::alarm_none;
  bool alarm_is_to_look_again_ = false;
  WatchedLine watched_;  // for idle state `monitor`: the line that the card writes next, as it was before the last check
};

/// Converts ticks of `machine::timestamp`. No product overflows: 10^9 has 30 bits, and a rate in Hz has at most 34.
inline std::uint64_t nanoseconds(std::uint64_t ticks) noexcept {
  constexpr std::uint64_t second_ns = 1'000'000'000;
  const std::uint64_t hz = machine::timestamp_hz();
  return ticks / hz * second_ns + ticks % hz * second_ns / hz;
}

extern constinit thread_local EventLoop event_loop;

inline void EventLoop::end_event() noexcept {
  if ((core_work & work_bits::end_hooks) != 0) event_loop.run_hooks();
}

// Parts of an iteration that other files implement. The `run_…` functions return true if they ran something.
/// The vectors whose interrupts have arrived and whose callbacks have not run, in the order of their arrival. The interrupt handler runs
/// only in this core's interrupt windows, so handler and loop never write these at the same time.
class MarkedInterrupts {
 public:
  void mark(std::uint8_t vector) noexcept {
    if (marked_[vector]) return;
    marked_[vector] = true;
    order_[static_cast<std::uint8_t>(begin_ + count_)] = vector;
    ++count_;
  }
  [[nodiscard]] std::uint8_t count() const noexcept { return count_; }
  /// Removes the oldest vector. There MUST be one.
  std::uint8_t take() noexcept {
    const std::uint8_t vector = order_[begin_++];
    --count_;
    marked_[vector] = false;
    return vector;
  }

 private:
  // Positions wrap at 256. Each vector has at most one, and the CPU's exceptions have none, so the count never reaches 256.
  std::uint8_t begin_ = 0, count_ = 0;
  bool marked_[256] = {};
  std::uint8_t order_[256] = {};
};
extern constinit thread_local MarkedInterrupts marked_interrupts;
[[nodiscard]] inline bool interrupts_marked() noexcept { return marked_interrupts.count() != 0; }
inline void run_vector(Core& self, std::uint8_t vector) noexcept {
  const unsigned index = vector - machine::vector_first;  // wraps to a large value for a vector below the first
  if (index < self.vectors.size() && self.vectors[index].state.load(std::memory_order_acquire) == VectorSlot::State::owned) [[likely]] {
    EventLoop::begin_event(self.vectors[index].callback.code());
    self.vectors[index].callback();
    EventLoop::end_event();
  } else {
    self.counters.spurious.add();
  }
  self.counters.interrupts.add();
}
/// Runs the callbacks of the vectors that are marked now.
inline void run_marked_interrupts(Core& self) noexcept {
  for (std::uint8_t left = marked_interrupts.count(); left != 0; --left) run_vector(self, marked_interrupts.take());
}
extern constinit thread_local TimerWheel timer_wheel;
extern constinit thread_local std::uint64_t armed_alarm_ns;  // the time of the alarm that is set and has not fired
void arm_earlier_alarm(std::uint64_t latest_ns) noexcept;
/// Arms the alarm for the earliest timer or `latest_ns`, whichever is earlier, unless the alarm is armed for an earlier time already.
///
/// Most time-outs are cancelled or postponed before they are due, many of them by each request. So an alarm that is too early stays: at
/// worst it wakes the core once, and the next sleep sets the right one.
inline void arm_alarm_for_sleep(std::uint64_t latest_ns) noexcept {
  if (armed_alarm_ns > std::min(timer_wheel.not_before_ns(), latest_ns)) [[unlikely]]
    arm_earlier_alarm(latest_ns);
}
/// The same without `latest_ns`, for a core that has just found that no timer is due.
inline void arm_alarm_for_sleep() noexcept {
  if (armed_alarm_ns > timer_wheel.next_look_ns()) [[unlikely]]
    arm_earlier_alarm(machine::alarm_none);
}
/// The alarm has fired, so none is armed.
inline void forget_alarm() noexcept { armed_alarm_ns = machine::alarm_none; }

namespace rcu {
/// This core's nodes that wait for a grace period or for their reclamation, and the epoch that the core stored last.
struct Progress {
  std::uint64_t pending = 0, seen = 0;
};
extern constinit thread_local Progress progress;
extern constinit std::atomic<std::uint64_t> epoch;
/// Stores the present epoch for the other cores. `self` is the calling core, which MUST NOT hold an RCU pointer.
void publish(Core& self) noexcept;
bool reclaim_at_boundary(unsigned budget) noexcept;
[[nodiscard]] bool prepare_sleep_with_pending() noexcept;

/// True if `pass_boundary` has work. Without pending nodes, which `core_work` shows, this only loads a cache line that seldom changes.
[[nodiscard]] inline bool epoch_changed() noexcept { return epoch.load(std::memory_order_seq_cst) != progress.seen; }
/// Called at an event boundary, where the core holds no RCU pointer. Reclaims up to `budget` nodes whose grace period is over. Returns true
/// if it reclaimed one.
inline bool pass_boundary(unsigned budget) noexcept {
  if ((core_work & work_bits::rcu) == 0 && !epoch_changed()) [[likely]]
    return false;
  return reclaim_at_boundary(budget);
}
/// Returns false if a node can be reclaimed now. Otherwise it ensures that this core is woken when its nodes' grace period ends.
[[nodiscard]] inline bool prepare_sleep() noexcept { return progress.pending == 0 || prepare_sleep_with_pending(); }
/// The core has slept, and its wake word no longer shows it. MUST be called before the core reads an RCU pointer.
inline void end_sleep(Core& self) noexcept {
  if (epoch_changed()) [[unlikely]]
    publish(self);
}
/// The core's loop ends: from now on no grace period waits for this core, until the core calls `come_online`.
inline void go_offline(Core& self) noexcept { self.quiescent_epoch.store(Core::offline, std::memory_order_seq_cst); }
inline void come_online(Core& self) noexcept {
  require(self.quiescent_epoch.load(std::memory_order_relaxed) == Core::offline, "a core comes online twice");
  self.quiescent_epoch.store(0, std::memory_order_seq_cst);
  progress.seen = epoch.load(std::memory_order_seq_cst);
  self.quiescent_epoch.store(progress.seen, std::memory_order_release);
}
}  // namespace rcu

}  // namespace neap
