// SPDX-License-Identifier: BSL-1.0
// The event loop: one on each core. Every event runs to completion.
//
// Events are not preempted, so the state of a core needs no lock: no other event of the core runs between two statements of an event. The
// price is that an event must be short and must not wait; code that waits is a coroutine (task.hpp). An iteration of the loop first takes
// interrupts. Then it runs the callbacks of their vectors, a bounded number of queued events (taking interrupts between them) and due
// timers. If it found no work, it runs the idle hooks and sleeps according to the core's policy.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <type_traits>
#include <utility>

#include "kernel/core_work.hpp"
#include "kernel/error.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/intrusive_queue.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap {

using machine::core_count;
using machine::this_core;

/// Work for a core. Handing it over cannot fail, because the queue links the node itself and allocates nothing. The node is removed from
/// the queue before `run` is called, so `run` may free the node or hand it over again.
struct RemoteNode {
  void (*run)(RemoteNode*) noexcept = nullptr;
  RemoteNode* next = nullptr;                       ///< null while the node is in no queue
  void (*discard)(RemoteNode*) noexcept = nullptr;  ///< called instead of `run` if a test ends first; null: an owner frees the node
};
/// Runs `node` as an event on `core`, which may be the calling core. A node that waits in a queue MUST NOT be handed over again.
void hand_over(unsigned core, RemoteNode& node) noexcept;

/// Runs `function()` as an event of its own on this core, after those already queued. Allocates (`bad_alloc`) only if more events are
/// queued than ever before, or for a callable of more than 56 bytes.
template <typename F>
  requires std::invocable<std::decay_t<F>&>
void spawn(F&& function);

/// Runs `callback` as an event on `core`, which may be the calling core. The queue of remote events is bounded (`remote_queue_capacity`).
/// If it is full, the function counts a refusal, destroys `callback` and returns `full`. `on_core` (task.hpp) also waits for the result.
[[nodiscard]] Result<void> spawn_on(unsigned core, Callback callback);
constexpr std::uint32_t remote_queue_capacity = 4096;

/// A call on another core that is requested again and again. While a request is pending, further calls of `ask` are merged into it. The
/// object MUST outlive its last call.
class CoalescedCall : RemoteNode {
 public:
  CoalescedCall(void (*call)(void*) noexcept, void* context) noexcept : RemoteNode{.run = &go}, call_(call), context_(context) {
    require(call != nullptr, "a coalesced call without a function");
  }
  CoalescedCall& operator=(CoalescedCall&&) = delete;

  /// Runs `call(context)` on `core` in an event of its own. `core` MUST be the same each time. May be called on any core.
  void ask(unsigned core) noexcept {
    if (!asked_.exchange(true)) hand_over(core, *this);
  }
  [[nodiscard]] bool asked() const noexcept { return asked_.load(); }

 private:
  static void go(RemoteNode* node) noexcept {
    auto* const self = static_cast<CoalescedCall*>(node);
    self->asked_.store(false);  // before the call: a request during the call causes another call
    self->call_(self->context_);
  }

  void (*call_)(void*) noexcept;
  void* context_;
  std::atomic<bool> asked_ = false;
};

/// Work that is done once at the end of the present event, however often it is requested. For example, a driver writes the tail register
/// once for all frames of an event. A hook MUST be made, used and destroyed on one core, which has at most 16 hooks of place `first` and 8
/// of place `last`. Requested hooks run in the order in which they were made, hooks of place `last` when no other hook is left. A hook may
/// request others, which run in the same pass. A hook MUST NOT be destroyed by its own `run`.
class EventEndHook {
 public:
  /// `last` is for a hook that handles the results of all others: a driver's hook sends the frames that other hooks queued.
  enum class Place : std::uint8_t { first, last };

  explicit EventEndHook(Callback run, Place place = Place::first);
  EventEndHook& operator=(EventEndHook&&) = delete;
  ~EventEndHook();
  void request() noexcept { core_work |= bit_; }

 private:
  friend class EventLoop;

  Callback run_;
  std::uint32_t bit_ = 0;  // its bit in `core_work`
};

/// A callback for the time when the loop has nothing to do, before the core sleeps. A driver's hook checks its ring a last time. `look`
/// returns true if it found work. `look` MUST NOT destroy its own hook; it MAY destroy others.
class IdleHook {
 public:
  explicit IdleHook(std::move_only_function<bool()> look);
  IdleHook& operator=(IdleHook&&) = delete;
  ~IdleHook();

 private:
  friend class EventLoop;
  std::move_only_function<bool()> look_;
  IdleHook* next_ = nullptr;
};

/// Runs this core's loop. Never returns on bare metal. An exception that leaves an event causes a panic. On the host (tests) the function
/// returns after `stop_event_loop()` was called on that core.
void run_event_loop();
void stop_event_loop() noexcept;

/// Counters of a core's loop since boot, read without synchronisation.
struct EventCounters {
  std::uint64_t events;           ///< callbacks of every kind that were run
  std::uint64_t interrupts;       ///< interrupt vectors handled; a vector that is raised twice before it is handled counts once
  std::uint64_t spurious;         ///< interrupts on a vector without an owner
  std::uint64_t alarms;           ///< timer interrupts
  std::uint64_t remote_received;  ///< events and nodes from other cores
  std::uint64_t remote_refused;   ///< `spawn_on` calls of this core that found the target's queue full
  std::uint64_t polling_phases;   ///< times `adaptive_poll` turned the queue's interrupt off
  std::uint64_t sleeps;           ///< times the core went to sleep; polling does not count
  std::uint64_t asleep_ns;        ///< total time asleep, with the sleep in progress
  // The parts of `sleeps` and `asleep_ns` for each C-state that was requested. With `menu` and `monitor` these are those chosen.
  std::uint64_t halts, sleeps_c1, sleeps_c1e, sleeps_c3, sleeps_c6, sleeps_c7;
  std::uint64_t halted_ns, asleep_c1_ns, asleep_c1e_ns, asleep_c3_ns, asleep_c6_ns, asleep_c7_ns;
};
[[nodiscard]] EventCounters event_counters(unsigned core) noexcept;

namespace detail {

/// Memory for an event of this core, reused from finished events.
constexpr std::size_t event_bytes = 80;
[[nodiscard]] void* take_event_memory();
void give_back_event_memory(void* memory) noexcept;
void enqueue(RemoteNode& node) noexcept;

/// A callable in the local queue.
template <typename Function>
struct SpawnedEvent : RemoteNode {
  static constexpr bool fits();

  template <typename F>
  explicit SpawnedEvent(F&& from) : RemoteNode{.run = &execute, .discard = &dispose}, function(std::forward<F>(from)) {}
  static void execute(RemoteNode* node) noexcept {
    static_cast<SpawnedEvent*>(node)->function();
    dispose(node);
  }
  static void dispose(RemoteNode* node) noexcept {
    auto* const event = static_cast<SpawnedEvent*>(node);
    if constexpr (fits()) {
      event->~SpawnedEvent();
      give_back_event_memory(event);
    } else {
      delete event;
    }
  }
  Function function;
};
template <typename Function>
constexpr bool SpawnedEvent<Function>::fits() {
  return sizeof(SpawnedEvent) <= event_bytes && alignof(SpawnedEvent) <= alignof(std::max_align_t);
}

/// Frees an event's memory if the construction of its callable throws.
struct EventMemory {
  void* memory = take_event_memory();
  EventMemory& operator=(EventMemory&&) = delete;
  ~EventMemory() {
    if (memory != nullptr) give_back_event_memory(memory);
  }
};

}  // namespace detail

template <typename F>
  requires std::invocable<std::decay_t<F>&>
void spawn(F&& function) {
  using Event = detail::SpawnedEvent<std::decay_t<F>>;
  if constexpr (std::is_same_v<std::decay_t<F>, Callback>) require(!(function == nullptr), "spawn of an empty callback");
  if constexpr (!Event::fits()) {
    detail::enqueue(*new Event(std::forward<F>(function)));
  } else if constexpr (std::is_nothrow_constructible_v<std::decay_t<F>, F>) {
    detail::enqueue(*::new (detail::take_event_memory()) Event(std::forward<F>(function)));
  } else {
    detail::EventMemory place;
    Event* const event = ::new (place.memory) Event(std::forward<F>(function));
    place.memory = nullptr;
    detail::enqueue(*event);
  }
}

}  // namespace neap
