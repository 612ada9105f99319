// SPDX-License-Identifier: BSL-1.0
// Waiting by spinning, with an end.
//
// The C and C++ libraries expect mutexes, once-flags and condition variables. Here an event may not block, so these are for set-up and for
// the few library internals that cores share (a function-local static, the table of open streams). A waiter spins; it panics when nobody
// can end its wait (it holds the lock itself, or it is the only core) or when nobody did for `longest_wait_ns`. That panic, with its
// backtrace, is the hint to use `Completion` or `spawn_on` instead.
//
// All zero bits are the valid, free state of each type: the libraries initialise theirs statically.
#pragma once

#include <atomic>
#include <cstdint>

namespace neap::libc {

constexpr std::uint64_t longest_wait_ns = 10'000'000'000;
constexpr std::uint64_t no_deadline = ~std::uint64_t{0};

/// Owned by a core. `lock` by the owner is a panic; `lock_recursive` counts.
class SetupLock {
 public:
  void lock() noexcept;
  void lock_recursive() noexcept;
  [[nodiscard]] bool try_lock() noexcept;
  [[nodiscard]] bool try_lock_recursive() noexcept;
  /// False if it was not free by `deadline_ns` (machine::now_ns).
  [[nodiscard]] bool lock_until(std::uint64_t deadline_ns, bool recursive) noexcept;
  /// Panics if this core does not hold it.
  void unlock() noexcept;

 private:
  friend class SetupCondition;
  std::uint32_t release_wholly() noexcept;
  std::atomic<std::uint32_t> owner_{0};  // core + 1
  std::uint32_t depth_ = 0;              // written by the owner
};

/// A condition variable: a count of signals.
class SetupCondition {
 public:
  /// Releases `lock` (wholly, however often it is held), waits for a signal after that, takes it again. False if `deadline_ns` passed
  /// first.
  bool wait(SetupLock& lock, std::uint64_t deadline_ns) noexcept;
  void signal() noexcept { signals_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t> signals_{0};
};

/// Runs a function once; waits while another core runs it. If it throws, the next caller tries again.
class SetupOnce {
 public:
  explicit SetupOnce(std::uint32_t& state) noexcept : state_(state) {}
  void run(void (*function)());

 private:
  std::atomic_ref<std::uint32_t> state_;  // 0, 1 when done, 2 + core while it runs
};

}  // namespace neap::libc
