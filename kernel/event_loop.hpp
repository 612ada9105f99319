// SPDX-License-Identifier: BSL-1.0
// The loop behind events.hpp. Kernel-internal: interrupts, timers, RCU and tasks put their events in here.
//
// A turn takes a bounded piece of every kind of work, so that a flood of one kind delays the others by a few events and never starves them.
#pragma once

#include <cstdint>

#include "kernel/core.hpp"
#include "kernel/events.hpp"
#include "kernel/power.hpp"
#include "kernel/watchdog.hpp"
#include "kernel/watched_line.hpp"

namespace neap {

class EventLoop {
 public:
  /// Work of one turn, at most.
  static constexpr unsigned handed_over_budget = 32;
  static constexpr unsigned remote_budget = 16;
  static constexpr unsigned local_budget = 16;
  static constexpr unsigned timer_budget = 16;
  static constexpr unsigned reclaim_budget = 64;

  constexpr EventLoop() = default;

  /// Queues an event of this core that brings its own memory: runs `node.run(&node)` after those already queued. `node` may be queued once
  /// at a time. Cannot fail. Once `run` is called the node is the callee's again.
  void enqueue(RemoteNode& node) noexcept {
    node.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &node;
    last_ = &node;
  }

  /// To be called before each callback of any kind: whose code it is, for the watchdog.
  static void begin_event(std::uintptr_t code) noexcept {
    if (watchdog::on) [[unlikely]]
      watchdog::begin(code);
  }
  static void begin_event(const RemoteNode& node) noexcept { begin_event(reinterpret_cast<std::uintptr_t>(node.run)); }
  /// To be called after each callback of any kind: runs the hooks that it asked for.
  void finish_event() noexcept {
    self_->counters.events.add();
    end_event();
  }
  /// This core's state, null before its loop runs.
  [[nodiscard]] Core* core() const noexcept { return self_; }

  [[nodiscard]] void* take_event_memory();
  void give_back_event_memory(void* memory) noexcept;

  void run() noexcept;
  void stop() noexcept { stop_ = true; }

  /// What this core does when it finds nothing (policy.cpp): `state`, after it has looked for `poll_budget_ns` in vain.
  void idle_by(IdleState state, std::uint64_t poll_budget_ns) noexcept {
    idle_state_ = state;
    poll_budget_ns_ = poll_budget_ns;
  }

  void request(EventEndHook& hook) noexcept;
  void withdraw(EventEndHook& hook) noexcept;
  void add(IdleHook& hook) noexcept;
  void remove(IdleHook& hook) noexcept;

 private:
  struct HookList {
    EventEndHook* first = nullptr;
    EventEndHook* last = nullptr;
  };

  void end_event() noexcept {
    if (hooks_wait_) [[unlikely]]
      run_hooks();
  }
  [[nodiscard]] HookList& list_of(const EventEndHook& hook) noexcept {
    return hook.place_ == EventEndHook::Place::last ? last_hooks_ : hooks_;
  }
  bool turn() noexcept;
  void run_handed_over() noexcept;
  void run_remote() noexcept;
  void run_local() noexcept;
  bool look_idle() noexcept;
  void found_work() noexcept;
  void be_idle() noexcept;
  void poll() noexcept;
  [[nodiscard]] bool poll_budget_lasts() noexcept;
  [[nodiscard]] bool watch_card() noexcept;
  void sleep() noexcept;
  void discard_queued() noexcept;
  void free_spare_events(unsigned keep) noexcept;
  void run_hooks() noexcept;
  void look_for_hardware_errors(std::uint64_t now_tsc) noexcept;
  static bool still_idle() noexcept;

  Core* self_ = nullptr;
  RemoteNode* first_ = nullptr;  // local events, oldest first
  RemoteNode* last_ = nullptr;
  struct SpareEvent {
    SpareEvent* next;
  };
  static constexpr unsigned spare_events_kept = 64;
  SpareEvent* spare_events_ = nullptr;  // memory of events that ran
  unsigned events_in_memory_ = 0;       // queued, running and spare; an idle core keeps `spare_events_kept` of them
  RemoteNode* received_ = nullptr;      // handed over, taken from the shared list, oldest first
  HookList hooks_;                      // asked for in this event
  HookList last_hooks_;                 // and those that let all others go first
  bool hooks_wait_ = false;
  IdleHook* idle_hooks_ = nullptr;
  IdleHook* idle_next_ = nullptr;  // where a walk over them goes on
  bool stop_ = false;

  IdleState idle_state_ = IdleState::halt;
  std::uint64_t poll_budget_ns_ = 0;
  std::uint64_t idle_since_ns_ = 0;        // the first look in vain since there was work; 0: there was some
  std::uint64_t next_error_look_tsc_ = 0;  // when the hardware's error banks are read next
  std::uint64_t looked_at_tsc_ = 0;        // `poll`: the last look, if it was in vain
  WatchedLine watched_;                    // `monitor`: where the card writes next, as it stood before the last look
};

/// This core's loop.
extern constinit thread_local EventLoop event_loop;

// The parts of a turn that other files supply; each returns whether it ran anything.
/// Which vectors were marked, a bit each, and which of the words have one. Written by the handler, which runs on this core in the loop's
/// window and nowhere else, and by the loop: no concurrency.
struct MarkedInterrupts {
  std::uint32_t words = 0;
  std::uint64_t bits[4] = {};
};
extern constinit thread_local MarkedInterrupts marked_interrupts;
[[nodiscard]] inline bool interrupts_marked() noexcept { return marked_interrupts.words != 0; }
bool run_marked_interrupts() noexcept;
bool run_due_timers(unsigned budget) noexcept;
/// Arms the alarm for the earliest timer or `at_latest_ns`, if that is not what it is armed for.
void arm_alarm_for_sleep(std::uint64_t at_latest_ns) noexcept;
/// After a sleep: the alarm may have gone off.
void alarm_may_have_fired() noexcept;

namespace rcu {
/// An event boundary: the core holds no pointer now. Reclaims what may be.
bool pass_boundary(unsigned budget) noexcept;
/// False if there is something to reclaim now. Otherwise makes sure that somebody will tell this core when there is.
[[nodiscard]] bool prepare_sleep() noexcept;
/// Counts this core as passed until it is online again.
void go_offline() noexcept;
void come_online() noexcept;
}  // namespace rcu

}  // namespace neap
