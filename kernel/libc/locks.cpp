// SPDX-License-Identifier: BSL-1.0
// Newlib's own locks. They protect its table of streams, each stream, the environment and the time zones.
#include <sys/lock.h>

#include <new>

#include "kernel/libc/setup_lock.hpp"
#include "kernel/panic.hpp"

struct __lock {
  neap::libc::SetupLock lock;
};

extern "C" {

__lock __lock___sfp_recursive_mutex;
__lock __lock___atexit_recursive_mutex;
__lock __lock___at_quick_exit_mutex;
__lock __lock___malloc_recursive_mutex;
__lock __lock___env_recursive_mutex;
__lock __lock___tz_mutex;
__lock __lock___dd_hash_mutex;
__lock __lock___arc4random_mutex;

void __retarget_lock_init(_LOCK_T* lock) {
  *lock = new (std::nothrow) __lock;
  neap::require(*lock != nullptr, "no memory for a stream's lock");
}
void __retarget_lock_init_recursive(_LOCK_T* lock) { __retarget_lock_init(lock); }
void __retarget_lock_close(_LOCK_T lock) { delete lock; }
void __retarget_lock_close_recursive(_LOCK_T lock) { delete lock; }
void __retarget_lock_acquire(_LOCK_T lock) { lock->lock.lock(); }
void __retarget_lock_acquire_recursive(_LOCK_T lock) { lock->lock.lock_recursive(); }
int __retarget_lock_try_acquire(_LOCK_T lock) { return lock->lock.try_lock() ? 1 : 0; }
int __retarget_lock_try_acquire_recursive(_LOCK_T lock) { return lock->lock.try_lock_recursive() ? 1 : 0; }
void __retarget_lock_release(_LOCK_T lock) { lock->lock.unlock(); }
void __retarget_lock_release_recursive(_LOCK_T lock) { lock->lock.unlock(); }

}  // extern "C"
