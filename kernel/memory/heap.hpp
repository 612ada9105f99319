// SPDX-License-Identifier: BSL-1.0
// The heap: memory in units of bytes.
//
// A request often allocates on one core and frees on another (a value stored here, evicted there). A shared heap would take a lock in every
// request; private heaps would lose memory to the cores that free it. So each core has its own slabs. On the owner of a slab, allocating
// and freeing touch no shared data. Objects freed on other cores are returned in batches (Bonwick, 1994: slabs; Bonwick and Adams, 2001:
// caches).
//
// The heap works from the first instructions of a core: before the event loop, and before the other cores are started. `malloc`, `new` and
// all their forms use it (malloc.cpp, in images). Without memory the result is null. The other cores are then asked to release their spare
// memory, so a later attempt may succeed.
#pragma once

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

/// Frees an object from `allocate` or `reallocate`, on any core. Null is ignored. Any other pointer panics if the heap detects it.
void deallocate(void* pointer) noexcept;

/// As realloc: keeps the content up to the smaller size. If the result is null, the old object is unchanged. A new object is aligned to 16.
[[nodiscard]] void* reallocate(void* pointer, std::size_t bytes) noexcept;

/// Returns the pages beyond the first `bytes` bytes of an object to the page allocator. The object stays in place, so no allocation can
/// fail. False: nothing changed, because the object is too small or `heap=checked` is set.
[[nodiscard]] bool shrink(void* pointer, std::size_t bytes) noexcept;

/// Bytes of the object that the caller may use: at least the requested size.
[[nodiscard]] std::size_t usable_bytes(const void* pointer) noexcept;

/// Called by the event loop once in each iteration. Returns objects of other cores to their owners, and puts some of this core's returned
/// objects into slabs. Releases spare memory if another core was refused memory. True if some returned objects are not in their slabs yet.
bool pass_boundary() noexcept;

/// Sums over all cores. While cores run, the values are from slightly different moments.
struct HeapCounters {
  std::uint64_t allocations;
  std::uint64_t frees;         ///< objects that are back in their owner's slabs
  std::uint64_t remote_frees;  ///< objects freed on a core that does not own them
  std::uint64_t refused;       ///< allocations that returned null
  std::uint64_t used_bytes;    ///< bytes in objects, slack included
  std::uint64_t slab_bytes;    ///< taken from the page allocator for objects of up to 8 KiB
};
[[nodiscard]] HeapCounters heap_counters() noexcept;

}  // namespace neap::memory
