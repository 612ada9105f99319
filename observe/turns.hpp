// SPDX-License-Identifier: BSL-1.0
// One after the other, from any core.
//
// Two clients on two cores may ask for changes at the same moment. Each change is a task that visits all cores, so a lock that spins is out
// of the question: whoever comes second waits in line, as a task, and its core goes on with other work.
//
//   const Turns::Turn turn = co_await turns.take();   // until the end of the scope
#pragma once

#include <mutex>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/task.hpp"

namespace neap::observe {

class Turns {
 public:
  class Turn {
   public:
    explicit Turn(Turns& turns) noexcept : turns_(&turns) {}
    Turn(Turn&& other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->give_on();
    }

   private:
    Turns* turns_;
  };

  /// Waits for as long as those before take. In the order of asking.
  [[nodiscard]] task<Turn> take() {
    Waiter waiter;
    if (!join(waiter)) co_await waiter.go;
    co_return Turn(*this);
  }

 private:
  struct Waiter : RemoteNode {
    Waiter() noexcept : RemoteNode{.run = &Waiter::call} {}
    static void call(RemoteNode* node) noexcept { static_cast<Waiter*>(node)->go.fulfil(); }
    Completion<> go;
    unsigned core = this_core();
    Waiter* behind = nullptr;
  };

  /// True: the turn is ours at once.
  bool join(Waiter& waiter) noexcept {
    const std::lock_guard lock(lock_);
    if (!std::exchange(taken_, true)) return true;
    (last_ == nullptr ? first_ : last_->behind) = &waiter;
    last_ = &waiter;
    return false;
  }

  void give_on() noexcept {
    Waiter* next = nullptr;
    {
      const std::lock_guard lock(lock_);
      next = first_;
      if (next == nullptr) {
        taken_ = false;
      } else {
        first_ = next->behind;
        if (first_ == nullptr) last_ = nullptr;
      }
    }
    if (next != nullptr) hand_over(next->core, *next);
  }

  SpinLock lock_;
  bool taken_ = false;
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
};

}  // namespace neap::observe
