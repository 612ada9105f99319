// SPDX-License-Identifier: BSL-1.0
// Pages: where all other memory comes from.
//
// Device rings need contiguous physical memory, slabs need aligned runs, a cache wants gigabytes, and all of them want it from the node of
// the core that asks. A buddy allocator per NUMA node gives runs of 2^order pages, naturally aligned, in the direct map (so contiguous
// physically as well).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/machine.hpp"

namespace neap::memory {

constexpr std::size_t page_bytes = 4096;
constexpr unsigned order_max = 25;  // 128 GiB

/// Takes over the machine's usable memory. Called once, by core 0, before anything allocates. At most `ranges_max` ranges, the longest
/// first; the bytes of further ones stay unused and are counted as `ignored_bytes`.
constexpr unsigned ranges_max = 64;
void initialise_pages(std::span<const machine::MemoryRange> ranges) noexcept;

/// 2^order pages, not cleared; null when there is no such run on any node. The node that the asking core prefers is tried first, then the
/// others, near ones before far ones. Any core.
[[nodiscard]] void* allocate_pages(unsigned order) noexcept;
void free_pages(void* pages, unsigned order) noexcept;

/// A run of any number of pages, aligned to 2^`alignment_order` pages; null as above. `free_run` gives it back and knows its length.
[[nodiscard]] void* allocate_run(std::size_t pages, unsigned alignment_order) noexcept;
void free_run(void* run) noexcept;
/// Gives back all but the first `pages` pages of a run; `pages` is at least 1 and not more than it has.
void shorten_run(void* run, std::size_t pages) noexcept;
/// Length of the run that begins at `pointer`; 0 if none does. Page aligned pointers only.
[[nodiscard]] std::size_t run_pages(const void* pointer) noexcept;

/// The NUMA node whose memory this core's allocations try first (0 unless said): its own, once it has started.
void prefer_node(unsigned node) noexcept;

/// Single pages that `core` keeps for its next allocations; the second gives this core's back.
[[nodiscard]] std::uint64_t cached_pages(unsigned core) noexcept;
void release_cached_pages() noexcept;

struct PageCounters {
  std::uint64_t total_bytes;
  std::uint64_t free_bytes;
  std::uint64_t refused;        ///< allocations that got null
  std::uint64_t foreign;        ///< runs from another node than the preferred one, single pages counted as a core takes them: 16 at once
  std::uint64_t ignored_bytes;  ///< of ranges too small or too many to be used
};
[[nodiscard]] PageCounters page_counters() noexcept;

/// `free_bytes` without what cores keep for themselves: a few instructions, for callers that ask often.
[[nodiscard]] std::uint64_t free_page_bytes() noexcept;

struct NodeCounters {
  std::uint64_t total_bytes;
  std::uint64_t free_bytes;  ///< without what cores keep for themselves
};
[[nodiscard]] NodeCounters node_counters(unsigned node) noexcept;

/// The node on which `pointer`, from one of the functions above, lies.
[[nodiscard]] unsigned node_of(const void* pointer) noexcept;

}  // namespace neap::memory
