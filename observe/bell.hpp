// SPDX-License-Identifier: BSL-1.0
// "Something happened": what a connection's task waits for.
//
// Bytes came, room appeared, the peer went away, a run ended, time is over: whatever it was, the task looks again at what it needs. So all
// of them ring one bell. A ring before the wait is not lost; several rings are one. All on one core.
#pragma once

#include <chrono>
#include <utility>

#include "kernel/task.hpp"
#include "kernel/timer.hpp"

namespace neap::observe {

class Bell {
 public:
  void ring() noexcept {
    rung_ = true;
    if (waiter_ != nullptr) std::exchange(waiter_, nullptr)->fulfil();
  }

  [[nodiscard]] task<void> wait() {
    if (!rung_) {
      Completion<> rung;
      waiter_ = &rung;
      co_await rung;
    }
    rung_ = false;
  }
  /// At most so long.
  [[nodiscard]] task<void> wait_for(std::chrono::nanoseconds limit) {
    limit_.arm(limit, [this] { ring(); });
    co_await wait();
    limit_.cancel();
  }

 private:
  Completion<>* waiter_ = nullptr;
  bool rung_ = false;
  Timer limit_;
};

/// Lets this core's other events have their turn: a task that has much to do awaits it after each bounded piece.
[[nodiscard]] inline task<void> next_event() {
  co_await on_core(this_core(), [] {});
}

}  // namespace neap::observe
