// SPDX-License-Identifier: BSL-1.0
// The thread functions that libstdc++ and libgcc call: the hooks that the toolchain's gthr-neap.h declares. A core is the only kind of
// thread.
#include <bits/gthr.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <new>

#include "kernel/libc/setup_lock.hpp"
#include "kernel/machine.hpp"
#include "kernel/spin_lock.hpp"

namespace {

using neap::libc::no_deadline;
using neap::libc::SetupCondition;
using neap::libc::SetupLock;
using neap::libc::SetupOnce;
namespace machine = neap::machine;

// Treats `object`, which the library has zeroed, as the storage of an object of type `Ours`.
template <typename Ours, typename Theirs>
Ours& as(Theirs* object) noexcept {
  static_assert(sizeof(Ours) <= sizeof(Theirs) && alignof(Ours) <= alignof(Theirs));
  return *std::launder(reinterpret_cast<Ours*>(object));
}
SetupLock& lock_in(__gthread_mutex_t* mutex) noexcept { return as<SetupLock>(mutex); }
SetupLock& lock_in(__gthread_recursive_mutex_t* mutex) noexcept { return as<SetupLock>(mutex); }
SetupCondition& condition_in(__gthread_cond_t* condition) noexcept { return as<SetupCondition>(condition); }

/// Converts a deadline of the libraries, which is a wall clock time, to nanoseconds since boot.
std::uint64_t deadline_ns(const __gthread_time_t* time) noexcept {
  const std::uint64_t wall_ns = static_cast<std::uint64_t>(time->tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time->tv_nsec);
  const std::uint64_t boot_ns = machine::wall_clock_at_boot_ns();
  return wall_ns > boot_ns ? wall_ns - boot_ns : 0;
}

constexpr unsigned keys_max = 64;
constinit std::array<std::atomic<bool>, keys_max> keys_taken;
constinit thread_local std::array<const void*, keys_max> key_values{};

}  // namespace

extern "C" {

int __neap_once(__gthread_once_t* once, void (*function)()) {
  SetupOnce(once->__state).run(function);
  return 0;
}

// A core never ends, so the destructor of a key is never called.
int __neap_key_create(__gthread_key_t* key, void (*)(void*)) noexcept {
  for (unsigned i = 0; i < keys_max; ++i) {
    if (!keys_taken[i].exchange(true, std::memory_order_relaxed)) {
      *key = i;
      return 0;
    }
  }
  return EAGAIN;
}
int __neap_key_delete(__gthread_key_t key) noexcept {
  if (key >= keys_max) return EINVAL;
  keys_taken[key].store(false, std::memory_order_relaxed);
  return 0;
}
void* __neap_getspecific(__gthread_key_t key) noexcept { return key < keys_max ? const_cast<void*>(key_values[key]) : nullptr; }
int __neap_setspecific(__gthread_key_t key, const void* value) noexcept {
  if (key >= keys_max) return EINVAL;
  key_values[key] = value;
  return 0;
}

int __neap_mutex_destroy(__gthread_mutex_t*) noexcept { return 0; }
int __neap_mutex_lock(__gthread_mutex_t* mutex) noexcept {
  lock_in(mutex).lock();
  return 0;
}
int __neap_mutex_trylock(__gthread_mutex_t* mutex) noexcept { return lock_in(mutex).try_lock() ? 0 : EBUSY; }
int __neap_mutex_timedlock(__gthread_mutex_t* mutex, const __gthread_time_t* time) noexcept {
  return lock_in(mutex).lock_until(deadline_ns(time), false) ? 0 : ETIMEDOUT;
}
int __neap_mutex_unlock(__gthread_mutex_t* mutex) noexcept {
  lock_in(mutex).unlock();
  return 0;
}

int __neap_rmutex_destroy(__gthread_recursive_mutex_t*) noexcept { return 0; }
int __neap_rmutex_lock(__gthread_recursive_mutex_t* mutex) noexcept {
  lock_in(mutex).lock_recursive();
  return 0;
}
int __neap_rmutex_trylock(__gthread_recursive_mutex_t* mutex) noexcept { return lock_in(mutex).try_lock_recursive() ? 0 : EBUSY; }
int __neap_rmutex_timedlock(__gthread_recursive_mutex_t* mutex, const __gthread_time_t* time) noexcept {
  return lock_in(mutex).lock_until(deadline_ns(time), true) ? 0 : ETIMEDOUT;
}
int __neap_rmutex_unlock(__gthread_recursive_mutex_t* mutex) noexcept {
  lock_in(mutex).unlock();
  return 0;
}

int __neap_cond_destroy(__gthread_cond_t*) noexcept { return 0; }
int __neap_cond_wait(__gthread_cond_t* condition, __gthread_mutex_t* mutex) noexcept {
  condition_in(condition).wait(lock_in(mutex), no_deadline);
  return 0;
}
int __neap_cond_wait_recursive(__gthread_cond_t* condition, __gthread_recursive_mutex_t* mutex) noexcept {
  condition_in(condition).wait(lock_in(mutex), no_deadline);
  return 0;
}
int __neap_cond_timedwait(__gthread_cond_t* condition, __gthread_mutex_t* mutex, const __gthread_time_t* time) noexcept {
  return condition_in(condition).wait(lock_in(mutex), deadline_ns(time)) ? 0 : ETIMEDOUT;
}
int __neap_cond_signal(__gthread_cond_t* condition) noexcept {
  condition_in(condition).signal();
  return 0;
}
int __neap_cond_broadcast(__gthread_cond_t* condition) noexcept {
  condition_in(condition).signal();
  return 0;
}

// No thread can be created: std::thread throws system_error. Applications hand work to other cores by `spawn_on`.
int __neap_thread_create(__gthread_t*, void* (*)(void*), void*) { return EAGAIN; }
int __neap_thread_join(__gthread_t, void**) { return EINVAL; }
int __neap_thread_detach(__gthread_t) noexcept { return EINVAL; }
__gthread_t __neap_thread_self() noexcept { return reinterpret_cast<__gthread_t>(std::uintptr_t{machine::this_core()} + 1); }
int __neap_thread_yield() noexcept {
  neap::relax_cpu();
  return 0;
}

}  // extern "C"
