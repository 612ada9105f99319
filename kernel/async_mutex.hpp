// SPDX-License-Identifier: BSL-1.0
// A mutex for tasks.
//
// Two changes of settings on all cores must not overlap. The task that makes a change suspends many times. With a spin lock, waiting cores
// would spin for milliseconds. With this mutex a waiting task is suspended, and its core runs other work.
//
//   AsyncMutex::Lock lock = co_await mutex.lock();   // held until `lock` is destroyed
#pragma once

#include <coroutine>
#include <mutex>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/intrusive_queue.hpp"
#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/task.hpp"

namespace neap {

/// Tasks of all cores may use the mutex, and get it in the order of their calls of `lock`. A task that holds it MUST NOT lock it again.
class AsyncMutex {
 public:
  /// Holds the mutex. May be destroyed on any core.
  class [[nodiscard]] Lock {
   public:
    Lock(Lock&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock() {
      if (mutex_ != nullptr) mutex_->unlock();
    }

   private:
    friend class AsyncMutex;
    explicit Lock(AsyncMutex& mutex) noexcept : mutex_(&mutex) {}
    AsyncMutex* mutex_;
  };

  /// The awaitable that `lock` returns; part of the waiting task's frame.
  class [[nodiscard]] Wait : RemoteNode {
   public:
    Wait& operator=(Wait&&) = delete;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> waiter) noexcept {
      require(this_core() == core_, "a mutex is awaited on the core that called lock", core_);
      waiter_ = waiter;
      return !mutex_.take_or_queue(*this);
    }
    Lock await_resume() noexcept { return Lock(mutex_); }

   private:
    friend class AsyncMutex;
    friend class IntrusiveQueue<Wait, RemoteNode>;
    explicit Wait(AsyncMutex& mutex) noexcept : RemoteNode{.run = &Wait::resume}, mutex_(mutex), core_(this_core()) {}
    static void resume(RemoteNode* node) noexcept { detail::run_coroutine(static_cast<Wait*>(node)->waiter_); }

    AsyncMutex& mutex_;
    unsigned core_;
    std::coroutine_handle<> waiter_;
  };

  AsyncMutex& operator=(AsyncMutex&&) = delete;
  ~AsyncMutex() { require(!held_, "a mutex is destroyed while a task holds it"); }

  /// The caller MUST await the result at once. It resumes on its own core. Cannot fail. A cancellation does not end the wait.
  Wait lock() noexcept { return Wait(*this); }
  /// True if a task holds the mutex at this moment. It does as long as tasks wait for it.
  [[nodiscard]] bool held() noexcept {
    const std::lock_guard guard(spin_lock_);
    return held_;
  }

 private:
  /// Returns true if `wait` holds the mutex now, false if it is queued.
  bool take_or_queue(Wait& wait) noexcept {
    const std::lock_guard guard(spin_lock_);
    if (!std::exchange(held_, true)) return true;
    waiting_.push_back(wait);
    return false;
  }

  void unlock() noexcept {
    Wait* next = nullptr;
    {
      const std::lock_guard guard(spin_lock_);
      require(held_, "a mutex is unlocked that no task holds");
      next = waiting_.pop_front();
      if (next == nullptr) held_ = false;  // otherwise `next` holds the mutex from here on
    }
    if (next != nullptr) hand_over(next->core_, *next);
  }

  SpinLock spin_lock_;
  bool held_ = false;
  IntrusiveQueue<Wait, RemoteNode> waiting_;
};

}  // namespace neap
