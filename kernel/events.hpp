// SPDX-License-Identifier: BSL-1.0
// The event loop: one a core, everything runs to completion.
//
// With no preemption there is nothing to lock: whatever an event touches of its own core stays as it was between two of its statements. The
// price is that an event must be short and must not wait; what waits is a coroutine (task.hpp). A loop turn is: take interrupts, run what
// they marked, run a share of the queued events (taking interrupts between them), due timers; when nothing is left, run the idle hooks once
// more and sleep by the core's policy.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <type_traits>
#include <utility>

#include "kernel/error.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap {

using machine::core_count;
using machine::this_core;

/// Work that the system itself must hand to another core and that cannot fail: an intrusive node, at most once in a queue at a time.
struct RemoteNode {
  void (*run)(RemoteNode*) noexcept = nullptr;
  RemoteNode* next = nullptr;
  void (*discard)(RemoteNode*) noexcept = nullptr;  ///< when a test's loop ends first; null: it is somebody's, and stays
};
void hand_over(unsigned core, RemoteNode& node) noexcept;

/// Runs `function()` as an event of its own on this core, after those already queued. Allocates (`bad_alloc`) only where more events wait
/// than ever before, or for a callable of more than 56 bytes.
template <typename F>
  requires std::invocable<std::decay_t<F>&>
void spawn(F&& function);

/// The same on `core` (this one too). The queue of remote work is bounded (`remote_queue_capacity`): `full` is returned, counted, and the
/// caller keeps nothing but the error; see `on_core` (task.hpp) for the form that waits. Never spins.
[[nodiscard]] Result<void> spawn_on(unsigned core, Callback callback);
constexpr std::uint32_t remote_queue_capacity = 4096;

/// `hand_over` for what is asked for again and again: until it runs, a further `ask` adds nothing. It outlives its last run.
class Errand : RemoteNode {
 public:
  Errand(void (*call)(void*) noexcept, void* context) noexcept : RemoteNode{.run = &go}, call_(call), context_(context) {}
  Errand(const Errand&) = delete;
  Errand& operator=(const Errand&) = delete;

  /// `call(context)` runs on `core`, which is the same each time, in an event of its own. Any core.
  void ask(unsigned core) noexcept {
    if (!asked_.exchange(true)) hand_over(core, *this);
  }
  [[nodiscard]] bool asked() const noexcept { return asked_.load(); }

 private:
  static void go(RemoteNode* node) noexcept {
    auto* const self = static_cast<Errand*>(node);
    self->asked_.store(false);  // first: what is asked for from here on may come too late for this run
    self->call_(self->context_);
  }

  void (*call_)(void*) noexcept;
  void* context_;
  std::atomic<bool> asked_ = false;
};

/// Work to be done once at the end of the present event, however often it is asked for: where a driver writes its tail and a server gathers
/// its replies. Belongs to the core that uses it. Hooks run in the order asked, those of place `last` when no other is left; a hook may ask
/// for others, which run in the same pass. It may not be destroyed by its own `run`.
class EventEndHook {
 public:
  /// `last` is for what gathers the work of all other hooks, as a driver does with frames.
  enum class Place : std::uint8_t { as_asked, last };

  explicit EventEndHook(Callback run, Place place = Place::as_asked) : run_(std::move(run)), place_(place) {}
  EventEndHook(const EventEndHook&) = delete;
  EventEndHook& operator=(const EventEndHook&) = delete;
  ~EventEndHook();
  void request() noexcept;

 private:
  friend class EventLoop;
  Callback run_;
  EventEndHook* next_ = nullptr;
  Place place_;
  bool requested_ = false;
};

/// Called when the loop has nothing to do, before the core sleeps; true means "I found work, look again". A driver's last look at its ring.
/// It may not be destroyed by its own `look`; other hooks may.
class IdleHook {
 public:
  explicit IdleHook(std::move_only_function<bool()> look);
  IdleHook(const IdleHook&) = delete;
  IdleHook& operator=(const IdleHook&) = delete;
  ~IdleHook();

 private:
  friend class EventLoop;
  std::move_only_function<bool()> look_;
  IdleHook* next_ = nullptr;
};

/// Never returns on bare metal. An exception that leaves an event is a panic. On the host it returns after `stop_event_loop()` on that core
/// (tests).
void run_event_loop();
void stop_event_loop() noexcept;

/// What a core's loop has done since boot; plain counters of that core, read from elsewhere without synchronisation.
struct EventCounters {
  std::uint64_t events;           ///< callbacks run, of every kind
  std::uint64_t interrupts;       ///< vectors marked
  std::uint64_t spurious;         ///< interrupts on a vector that nobody owns
  std::uint64_t alarms;           ///< timer interrupts
  std::uint64_t remote_received;  ///< events and nodes that came from other cores
  std::uint64_t remote_refused;   ///< `spawn_on` calls of this core that found the target's queue full
  std::uint64_t sleeps;           ///< times the core went to sleep; polling is none
  std::uint64_t asleep_ns;        ///< and for how long in all
};
[[nodiscard]] EventCounters event_counters(unsigned core) noexcept;

namespace detail {

/// Memory of events of this core that fit into it, from a list of those that ran before.
constexpr std::size_t event_bytes = 80;
[[nodiscard]] void* take_event_memory();
void give_back_event_memory(void* memory) noexcept;
void enqueue(RemoteNode& node) noexcept;

/// A callable on its way through the local queue.
template <typename Function>
struct SpawnedEvent : RemoteNode {
  static constexpr bool fits();

  template <typename F>
  explicit SpawnedEvent(F&& from) : RemoteNode{.run = &execute, .next = nullptr, .discard = &dispose}, function(std::forward<F>(from)) {}
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

/// Gives an event's memory back if its callable throws on its way in.
struct EventMemory {
  void* memory = take_event_memory();
  EventMemory() = default;
  EventMemory(const EventMemory&) = delete;
  EventMemory& operator=(const EventMemory&) = delete;
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
