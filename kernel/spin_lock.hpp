// SPDX-License-Identifier: BSL-1.0
// A lock for state that cores share: page runs, the console.
//
// Events are not preempted and interrupt handlers access nothing that a lock protects. So the core that holds a lock always runs, and a
// waiting core waits for a bounded number of instructions. A lock MUST NOT be held at the end of an event or across a callback.
#pragma once

#include <atomic>

namespace neap {

/// A hint to the CPU that this is a spin loop.
inline void relax_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Works with `std::lock_guard`. All zero means unlocked, so it may be used before constructors run.
class SpinLock {
 public:
  void lock() noexcept {
    while (held_.exchange(true, std::memory_order_acquire)) {
      while (held_.load(std::memory_order_relaxed)) relax_cpu();
    }
  }
  bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace neap
