// SPDX-License-Identifier: BSL-1.0
// Locks whose waiters spin, for a bounded time.
//
// The C and C++ libraries expect mutexes, once-flags and condition variables. An event may not block. So these locks are only for set-up
// and for library internals that cores share (a function-local static, the table of open streams). A waiting core spins. It panics if its
// wait cannot end (it holds the lock itself, or it is the only core), or if the wait lasts `wait_ns_max`. The panic's backtrace shows the
// code that must use `Completion` or `spawn_on` instead.
//
// Zeroed storage is the valid, free state of each type, because the libraries initialise their objects statically.
#pragma once

#include <atomic>
#include <cstdint>

namespace neap::libc {

constexpr std::uint64_t wait_ns_max = 10'000'000'000;
constexpr std::uint64_t no_deadline = ~std::uint64_t{0};

/// A mutex that one core owns at a time. If the owner calls `lock` again, it panics; `lock_recursive` counts the owner's calls instead.
class SetupLock {
 public:
  void lock() noexcept;
  void lock_recursive() noexcept;
  [[nodiscard]] bool try_lock() noexcept;
  [[nodiscard]] bool try_lock_recursive() noexcept;
  /// False if the lock was not free by `deadline_ns` (machine::now_ns).
  [[nodiscard]] bool lock_until(std::uint64_t deadline_ns, bool recursive) noexcept;
  /// Panics if this core does not hold the lock.
  void unlock() noexcept;

 private:
  friend class SetupCondition;
  std::uint32_t release_wholly() noexcept;
  std::atomic<std::uint32_t> owner_{0};  // the owning core + 1; 0: free
  std::uint32_t depth_ = 0;              // written by the owner
};

/// A condition variable, implemented as a count of signals.
class SetupCondition {
 public:
  /// Releases `lock` (all levels of recursion), waits for a later signal, and takes the lock again. False if `deadline_ns` passed first.
  bool wait(SetupLock& lock, std::uint64_t deadline_ns) noexcept;
  void signal() noexcept { signals_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t> signals_{0};
};

/// Runs a function once; waits while another core runs it. If the function throws, the next caller runs it again.
class SetupOnce {
 public:
  explicit SetupOnce(std::uint32_t& state) noexcept : state_(state) {}
  void run(void (*function)());

 private:
  std::atomic_ref<std::uint32_t> state_;  // 0: not run; 1: done; 2 + core: runs on that core
};

}  // namespace neap::libc
