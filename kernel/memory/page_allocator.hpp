// SPDX-License-Identifier: BSL-1.0
// The page allocator, from which all other memory comes.
//
// Device rings need contiguous physical memory, slabs need aligned runs, a cache needs gigabytes. All of them need memory on the NUMA node
// of the calling core. A buddy allocator for each range of memory gives naturally aligned runs of 2^order pages. The runs are in the direct
// map, so they are physically contiguous, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/machine.hpp"

namespace neap::memory {

constexpr std::size_t page_bytes = 4096;
constexpr unsigned order_max = 25;  // 128 GiB

/// Takes over the machine's usable memory. Core 0 MUST call it once, before any allocation. At most `ranges_max` ranges are used, the
/// longest first; the others stay unused.
constexpr unsigned ranges_max = 64;
void initialise_pages(std::span<const machine::MemoryRange> ranges) noexcept;

/// 2^order pages, not cleared; null if no node has such a run. The core's preferred node is tried first, then the other nodes by distance.
/// May be called on any core.
[[nodiscard]] void* allocate_pages(unsigned order) noexcept;
void free_pages(void* pages, unsigned order) noexcept;

/// A run of any number of pages, aligned to 2^`alignment_order` pages; null if no node has one. `free_run` finds the length itself.
[[nodiscard]] void* allocate_run(std::size_t pages, unsigned alignment_order) noexcept;
void free_run(void* run) noexcept;
/// Frees all but the first `pages` pages of a run. `pages` MUST be between 1 and the run's length.
void shorten_run(void* run, std::size_t pages) noexcept;
/// Number of pages in the run that begins at `pointer`; 0 if no run begins there. `pointer` MUST be page aligned.
[[nodiscard]] std::size_t run_pages(const void* pointer) noexcept;

/// Sets the NUMA node that this core's allocations try first. It is 0 until the core has started; then it is the core's own node.
void prefer_node(unsigned node) noexcept;

/// `cached_pages`: single pages that `core` keeps for its next allocations. `release_cached_pages`: frees the pages that this core keeps.
[[nodiscard]] std::uint64_t cached_pages(unsigned core) noexcept;
void release_cached_pages() noexcept;

struct PageCounters {
  std::uint64_t total_bytes, free_bytes;
  std::uint64_t refused;  ///< allocations that returned null
  std::uint64_t foreign;  ///< runs allocated from another node than the preferred one; a single page counts when a core's cache fetches it
};
[[nodiscard]] PageCounters page_counters() noexcept;

/// `PageCounters::free_bytes` without the single pages that cores keep. Costs a few instructions, so it may be called often.
[[nodiscard]] std::uint64_t free_page_bytes() noexcept;

struct NodeCounters {
  std::uint64_t total_bytes;
  std::uint64_t free_bytes;  ///< without the single pages that cores keep
};
[[nodiscard]] NodeCounters node_counters(unsigned node) noexcept;

/// The node of `pointer`, which MUST come from a function above.
[[nodiscard]] unsigned node_of(const void* pointer) noexcept;

}  // namespace neap::memory
