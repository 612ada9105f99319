// SPDX-License-Identifier: BSL-1.0
// The heap: memory in units of bytes.
//
// An object is often allocated on one core and freed on another. For example, one core stores a cached value and another core evicts it. A
// single shared heap needs a lock for each call. With separate heaps, memory collects on the cores that free it. So each core owns slabs.
// Allocating and freeing on the owner of a slab touch no shared data. Objects freed on other cores are returned to the owner in batches
// (Bonwick, 1994: slabs; Bonwick and Adams, 2001: caches).
//
// The heap works from the first instructions of a core: before the event loop, and before the other cores are started. `malloc`, `new` and
// all their forms use it (malloc.cpp, in images). If there is no memory, the result is null. The other cores are then asked to release
// their spare memory, so a later attempt may succeed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace neap::memory {

constexpr std::size_t alignment_min = 16;

/// At least `bytes` bytes, aligned to `alignment_min`; null if there is no memory. A request for zero bytes returns an object, too.
[[nodiscard]] void* allocate(std::size_t bytes) noexcept;
/// As `allocate`, but aligned to `alignment`, which MUST be a power of two.
[[nodiscard]] void* allocate_aligned(std::size_t bytes, std::size_t alignment) noexcept;
[[nodiscard]] inline void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  return alignment <= alignment_min ? allocate(bytes) : allocate_aligned(bytes, alignment);
}

/// Frees an object from `allocate` or `reallocate`, on any core. Null is ignored. Any other pointer causes a panic if the heap detects it.
void deallocate(void* pointer) noexcept;

/// As realloc: keeps the content that fits the new size. If the result is null, the object is unchanged. A moved object is aligned to 16.
[[nodiscard]] void* reallocate(void* pointer, std::size_t bytes) noexcept;

/// Returns the pages beyond the first `bytes` bytes of an object to the page allocator. The object stays in place. Returns false and
/// changes nothing if the object is too small or `heap=checked` is set.
[[nodiscard]] bool shrink(void* pointer, std::size_t bytes) noexcept;

/// Bytes of the object that the caller may use: at least the requested size.
[[nodiscard]] std::size_t usable_bytes(const void* pointer) noexcept;

/// Called at the end of a round of the event loop, if `core_work` has `work_bits::heap` or `boundary_flag` is set. Returns freed objects of
/// other cores to their owners, and puts some of this core's returned objects into slabs. Releases spare memory if another core was refused
/// memory. True if returned objects are left.
bool pass_boundary() noexcept;
/// Set by other cores when they have returned objects of this core, or need its spare memory. The reference stays valid.
[[nodiscard]] const std::atomic<bool>& boundary_flag() noexcept;

/// Sums over all cores. While cores run, the values are from slightly different moments.
struct HeapCounters {
  std::uint64_t allocations;
  std::uint64_t frees;         ///< number of objects returned to their owner's slabs
  std::uint64_t remote_frees;  ///< objects freed on a core that does not own them
  std::uint64_t refused;       ///< allocations that returned null
  std::uint64_t used_bytes;    ///< bytes in objects, slack included
  std::uint64_t slab_bytes;    ///< bytes in slabs, for objects of up to 8 KiB
};
[[nodiscard]] HeapCounters heap_counters() noexcept;
/// Bytes of all slabs that no object uses. Costs a few hundred instructions for each core that has slabs.
[[nodiscard]] std::uint64_t unused_slab_bytes() noexcept;

}  // namespace neap::memory
