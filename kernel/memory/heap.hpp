// SPDX-License-Identifier: BSL-1.0
// Memory by the byte.
//
// A request allocates on one core and often frees on another (a value stored here, evicted there). A shared heap would be a lock on every
// request; a private one would bleed memory to where it is freed. So each core has slabs of its own, allocating and freeing at home touch
// nothing that is shared, and what is freed elsewhere travels home in batches (Bonwick, 1994, and Bonwick and Adams, 2001, for slabs and
// per-CPU caches).
//
// It works from a core's first instructions on: before the event loop, before the cores are started. `malloc`, `new` and all their forms
// end here (malloc.cpp, in images). When there is no memory the answer is null; what other cores keep in reserve is then asked of them, so
// that one who tries again later may get it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neap::memory {

constexpr std::size_t alignment_least = 16;

/// At least `bytes` bytes, aligned to `alignment_least`; null if there is no memory. Zero bytes are an object, too.
[[nodiscard]] void* allocate(std::size_t bytes) noexcept;
/// The same, aligned to `alignment`, a power of two.
[[nodiscard]] void* allocate_aligned(std::size_t bytes, std::size_t alignment) noexcept;
[[nodiscard]] inline void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  return alignment <= alignment_least ? allocate(bytes) : allocate_aligned(bytes, alignment);
}

/// Gives back what `allocate` or `reallocate` returned, on any core. Null is nothing. What was never allocated is a panic where that is
/// noticed.
void deallocate(void* pointer) noexcept;

/// As realloc: the content moves, up to the smaller size; null leaves the old object as it was. The new one is aligned to 16.
[[nodiscard]] void* reallocate(void* pointer, std::size_t bytes) noexcept;

/// Gives back what an object of more than `bytes` bytes does not need. In place, so that no other core can take it first: true. False: the
/// object is as it was, because it is too small for that, or `heap=checked` holds.
[[nodiscard]] bool shrink(void* pointer, std::size_t bytes) noexcept;

/// Bytes that the object may use: what was asked for or some more.
[[nodiscard]] std::size_t usable_bytes(const void* pointer) noexcept;

/// Called by the event loop once a turn: sends home what was freed here, takes in a part of what came home, gives back what is kept in
/// reserve if another core was refused memory. True if more of what came home waits.
bool pass_boundary() noexcept;

/// Sums over all cores; while they run, of slightly different moments.
struct HeapCounters {
  std::uint64_t allocations;
  std::uint64_t frees;         ///< objects that are back at home
  std::uint64_t remote_frees;  ///< objects freed on another core than their own
  std::uint64_t refused;       ///< allocations that got null
  std::uint64_t used_bytes;    ///< by objects, slack included
  std::uint64_t slab_bytes;    ///< taken from the page allocator for objects of up to 8 KiB
};
[[nodiscard]] HeapCounters heap_counters() noexcept;

}  // namespace neap::memory
