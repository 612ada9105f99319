// SPDX-License-Identifier: BSL-1.0
// The signal that wakes a connection's task.
//
// Received bytes, room in the send queue, the peer's close, the end of a run and a time-out all use one signal. The task then checks its
// own condition again. A notification before the wait is kept, and several notifications count as one. All calls MUST be on one core.
#pragma once

#include <chrono>
#include <utility>

#include "kernel/panic.hpp"
#include "kernel/task.hpp"
#include "kernel/timer.hpp"

namespace neap::observe {

class WakeSignal {
 public:
  void notify() noexcept {
    notified_ = true;
    if (waiter_ != nullptr) std::exchange(waiter_, nullptr)->fulfil();
  }

  [[nodiscard]] task<void> wait() {
    require(waiter_ == nullptr, "one task waits for a signal at a time");
    if (!notified_) {
      Completion<> notified;
      waiter_ = &notified;
      co_await notified;
    }
    notified_ = false;
  }
  /// Waits for a notification, at most for `limit`.
  [[nodiscard]] task<void> wait_for(std::chrono::nanoseconds limit) {
    limit_.arm(limit, [this] { notify(); });
    co_await wait();
    limit_.cancel();
  }

 private:
  Completion<>* waiter_ = nullptr;
  bool notified_ = false;
  Timer limit_;
};

/// Lets other events of this core run. A long task MUST await this function after each limited amount of work.
[[nodiscard]] inline task<void> next_event() {
  co_await on_core(this_core(), [] {});
}

}  // namespace neap::observe
