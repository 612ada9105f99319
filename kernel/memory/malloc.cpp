// SPDX-License-Identifier: BSL-1.0
// The allocation functions of C and C++, implemented by the heap. Only images have them: host programs keep the host's allocator.
#include <malloc.h>
#include <reent.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernel/memory/heap.hpp"

namespace memory = neap::memory;

namespace {

void* or_errno(void* pointer) noexcept {
  if (pointer == nullptr) errno = ENOMEM;
  return pointer;
}

void* allocate_zeroed(std::size_t count, std::size_t bytes) noexcept {
  std::size_t total = 0;
  if (__builtin_mul_overflow(count, bytes, &total)) return or_errno(nullptr);
  void* const pointer = or_errno(memory::allocate(total));
  if (pointer != nullptr) std::memset(pointer, 0, total);
  return pointer;
}

void* allocate_aligned(std::size_t alignment, std::size_t bytes) noexcept {
  if (!std::has_single_bit(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return or_errno(memory::allocate(bytes, alignment));
}

/// Calls the new-handler, as the standard requires, until there is memory or no handler is left.
void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  for (;;) {
    if (void* const pointer = memory::allocate(bytes, alignment); pointer != nullptr) [[likely]]
      return pointer;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* allocate_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  try {
    return allocate_or_throw(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

constexpr std::size_t plain = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) { return or_errno(memory::allocate(bytes)); }
void free(void* pointer) { memory::deallocate(pointer); }
void* calloc(std::size_t count, std::size_t bytes) { return allocate_zeroed(count, bytes); }
void* realloc(void* pointer, std::size_t bytes) { return or_errno(memory::reallocate(pointer, bytes)); }
void* memalign(std::size_t alignment, std::size_t bytes) { return allocate_aligned(alignment, bytes); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return allocate_aligned(alignment, bytes); }
std::size_t malloc_usable_size(void* pointer) { return memory::usable_bytes(pointer); }

int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  if (!std::has_single_bit(alignment) || alignment < sizeof(void*)) return EINVAL;
  void* const pointer = memory::allocate(bytes, alignment);
  if (pointer == nullptr) return ENOMEM;
  *result = pointer;
  return 0;
}

// newlib calls these internally. There is one heap for all reentrancy structures.
void* _malloc_r(_reent*, std::size_t bytes) { return or_errno(memory::allocate(bytes)); }
void _free_r(_reent*, void* pointer) { memory::deallocate(pointer); }
void* _calloc_r(_reent*, std::size_t count, std::size_t bytes) { return allocate_zeroed(count, bytes); }
void* _realloc_r(_reent*, void* pointer, std::size_t bytes) { return or_errno(memory::reallocate(pointer, bytes)); }
void* _memalign_r(_reent*, std::size_t alignment, std::size_t bytes) { return allocate_aligned(alignment, bytes); }
std::size_t _malloc_usable_size_r(_reent*, void* pointer) { return memory::usable_bytes(pointer); }

}  // extern "C"

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, plain); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes, plain); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return allocate_or_throw(bytes, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes, plain); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate_or_null(bytes, plain); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* pointer) noexcept { memory::deallocate(pointer); }
void operator delete[](void* pointer) noexcept { memory::deallocate(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { memory::deallocate(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { memory::deallocate(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { memory::deallocate(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { memory::deallocate(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { memory::deallocate(pointer); }
void operator delete[](void* pointer, std::size_t, std::align_val_t) noexcept { memory::deallocate(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { memory::deallocate(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { memory::deallocate(pointer); }
void operator delete(void* pointer, std::align_val_t, const std::nothrow_t&) noexcept { memory::deallocate(pointer); }
void operator delete[](void* pointer, std::align_val_t, const std::nothrow_t&) noexcept { memory::deallocate(pointer); }
