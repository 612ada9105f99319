// SPDX-License-Identifier: BSL-1.0
// Ending tasks early.
//
// A client disconnects, a time limit passes or the system shuts down. A waiting task must then stop, even deep in nested calls, and release
// its resources. So its wait throws the exception `Cancelled`, and destructors release the resources.
//
//   Cancellation cancellation;
//   start(cancelled_by(cancellation, serve(connection)));      // covers every task that `serve` awaits, too
//   …
//   cancellation.request();
//
// Two kinds of wait can be cancelled: `sleep_for`, and a completion that is awaited by `or_cancelled`. Other waits (`on_core`, a plain
// `co_await completion`) are not cut short, because another core or callback points to them. A later cancellable wait throws.
#pragma once

#include <exception>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap {

/// Thrown by a wait whose task is cancelled.
class Cancelled : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "cancelled"; }
};

class Cancellation;

namespace detail {

/// A wait that can be cancelled. During the wait it is in the list of its `Cancellation`. `give_up` resumes the task, in a new event.
struct CancellableWait {
  void (*give_up)(CancellableWait& wait) noexcept = nullptr;
  CancellableWait* next = nullptr;
  CancellableWait** link = nullptr;  // the pointer in the list that points to this wait; null while not registered
  bool cancelled = false;

  CancellableWait() = default;
  CancellableWait& operator=(CancellableWait&&) = delete;
  ~CancellableWait() { leave(); }
  /// Registers this wait with `cancellation`, if that is not null. False: `cancellation` was requested already, and the task MUST NOT wait.
  [[nodiscard]] bool begin(Cancellation* cancellation) noexcept;
  void end() {
    leave();
    if (cancelled) throw Cancelled();
  }
  void leave() noexcept {
    if (link == nullptr) return;
    *link = next;
    if (next != nullptr) next->link = link;
    link = nullptr;
  }
};

}  // namespace detail

/// A cancellation belongs to the core that made it. The tasks that it cancels MUST run on that core, and it MUST outlive their waits.
class Cancellation {
 public:
  Cancellation& operator=(Cancellation&&) = delete;
  ~Cancellation() { require(waits_ == nullptr, "a cancellation is destroyed while a task waits under it"); }

  /// Ends the present and all later cancellable waits of its tasks. A second call does nothing.
  void request() noexcept {
    require(machine::this_core() == core_, "a cancellation is requested on its own core", core_);
    requested_ = true;
    while (waits_ != nullptr) {
      detail::CancellableWait& wait = *waits_;
      wait.leave();
      wait.give_up(wait);
    }
  }
  [[nodiscard]] bool requested() const noexcept { return requested_; }

  /// Registers a wait. MUST be called on the cancellation's core.
  void add(detail::CancellableWait& wait) noexcept {
    require(machine::this_core() == core_, "a task is cancelled on its own core", core_);
    wait.next = waits_;
    wait.link = &waits_;
    if (waits_ != nullptr) waits_->link = &wait.next;
    waits_ = &wait;
  }

 private:
  detail::CancellableWait* waits_ = nullptr;
  unsigned core_ = machine::this_core();
  bool requested_ = false;
};

inline bool detail::CancellableWait::begin(Cancellation* cancellation) noexcept {
  if (cancellation == nullptr) return true;
  cancelled = cancellation->requested();
  if (!cancelled) cancellation->add(*this);
  return !cancelled;
}

}  // namespace neap
