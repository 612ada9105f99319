// SPDX-License-Identifier: BSL-1.0
#include "kernel/libc/setup_lock.hpp"

#include <utility>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::libc {
namespace {

std::uint32_t own_mark() noexcept { return machine::this_core() + 1; }

/// Calls `done` until it returns true. Returns false if `deadline_ns` passes first, and panics after `wait_ns_max`. The first call is made
/// before the clock is read, because the clock may not run yet.
template <typename Done>
bool spin_until(Done done, std::uint64_t deadline_ns, std::string_view complaint) noexcept {
  if (done()) return true;
  const std::uint64_t begin_ns = machine::now_ns();
  for (;;) {
    for (unsigned i = 0; i < 256; ++i) {
      if (done()) return true;
      relax_cpu();
    }
    const std::uint64_t now_ns = machine::now_ns();
    if (now_ns >= deadline_ns) return false;
    if (now_ns - begin_ns >= wait_ns_max) panic(complaint);
  }
}

}  // namespace

bool SetupLock::try_lock() noexcept {
  std::uint32_t free = 0;
  if (!owner_.compare_exchange_strong(free, own_mark(), std::memory_order_acquire, std::memory_order_relaxed)) return false;
  depth_ = 1;
  return true;
}

bool SetupLock::try_lock_recursive() noexcept {
  if (owner_.load(std::memory_order_relaxed) != own_mark()) return try_lock();
  ++depth_;
  return true;
}

bool SetupLock::lock_until(std::uint64_t deadline_ns, bool recursive) noexcept {
  if (recursive ? try_lock_recursive() : try_lock()) [[likely]]
    return true;
  if (deadline_ns == no_deadline && owner_.load(std::memory_order_relaxed) == own_mark()) {
    panic("a mutex is locked again by the core that holds it: this wait cannot end");
  }
  return spin_until([this] { return owner_.load(std::memory_order_relaxed) == 0 && try_lock(); }, deadline_ns,
                    "a mutex was not free for 10 s: mutexes are for set-up, not for waiting");
}

void SetupLock::lock() noexcept { static_cast<void>(lock_until(no_deadline, false)); }
void SetupLock::lock_recursive() noexcept { static_cast<void>(lock_until(no_deadline, true)); }

void SetupLock::unlock() noexcept {
  require(owner_.load(std::memory_order_relaxed) == own_mark(), "a mutex is unlocked by a core that does not hold it");
  if (--depth_ == 0) owner_.store(0, std::memory_order_release);
}

std::uint32_t SetupLock::release_wholly() noexcept {
  require(owner_.load(std::memory_order_relaxed) == own_mark(), "a condition variable is awaited without its mutex");
  const std::uint32_t depth = std::exchange(depth_, 0);
  owner_.store(0, std::memory_order_release);
  return depth;
}

bool SetupCondition::wait(SetupLock& lock, std::uint64_t deadline_ns) noexcept {
  if (deadline_ns == no_deadline && machine::core_count() == 1)
    panic("a blocking wait on the only core cannot end: await a Completion instead");
  const std::uint32_t before = signals_.load(std::memory_order_acquire);
  const std::uint32_t depth = lock.release_wholly();
  const bool signalled = spin_until([&] { return signals_.load(std::memory_order_acquire) != before; }, deadline_ns,
                                    "a blocking wait was not signalled for 10 s: events must not block, await a Completion instead");
  lock.lock();
  lock.depth_ = depth;
  return signalled;
}

void SetupOnce::run(void (*function)()) {
  constexpr std::uint32_t done = 1;
  const std::uint32_t running = 1 + own_mark();
  for (;;) {
    std::uint32_t state = state_.load(std::memory_order_acquire);
    if (state == done) return;
    if (state == running) panic("a once-function calls itself: this wait cannot end");
    if (state == 0 && state_.compare_exchange_strong(state, running, std::memory_order_acquire)) break;
    static_cast<void>(
        spin_until([&] { return state_.load(std::memory_order_acquire) <= done; }, no_deadline, "a once-function ran for 10 s"));
  }
  try {
    function();
  } catch (...) {
    state_.store(0, std::memory_order_release);
    throw;
  }
  state_.store(done, std::memory_order_release);
}

}  // namespace neap::libc
