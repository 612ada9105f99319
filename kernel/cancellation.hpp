// SPDX-License-Identifier: BSL-1.0
// Asking tasks to end early.
//
// A request whose client has gone, a shutdown, a time limit: somebody wants a task that waits to stop waiting, however deep in its calls it
// does, and all that it holds to be given back on the way. So the wait ends by an exception, `Cancelled`, and destructors do the rest.
//
//   Cancellation cancellation;
//   start(cancelled_by(cancellation, serve(connection)));      // and whatever `serve` awaits
//   …
//   cancellation.request();
//
// Only a wait that nobody else holds on to can be given up: `sleep_for`, and a completion that is awaited by `or_cancelled`. Others
// (`on_core`, a plain `co_await completion`) end first; the next wait of these kinds throws.
#pragma once

#include <exception>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap {

/// What a wait throws once its task is to end.
class Cancelled : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "cancelled"; }
};

namespace detail {

/// A wait that can be given up: registered while it lasts. `give_up` has it end, in an event of its own.
struct CancellableWait {
  void (*give_up)(CancellableWait& wait) noexcept = nullptr;
  CancellableWait* next = nullptr;
  CancellableWait** link = nullptr;  // what points here; null while not registered

  CancellableWait() = default;
  CancellableWait(const CancellableWait&) = delete;
  CancellableWait& operator=(const CancellableWait&) = delete;
  ~CancellableWait() { leave(); }
  void leave() noexcept {
    if (link == nullptr) return;
    *link = next;
    if (next != nullptr) next->link = link;
    link = nullptr;
  }
};

}  // namespace detail

/// Belongs to the core that made it, as do the tasks that it ends; outlives their waits.
class Cancellation {
 public:
  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;
  ~Cancellation() { require(waits_ == nullptr, "a cancellation ends before the tasks that it may end"); }

  /// Ends the waits of its tasks, those of now and those to come. More than once is once.
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

  /// For waits. On the cancellation's core.
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

}  // namespace neap
