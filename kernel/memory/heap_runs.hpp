// SPDX-License-Identifier: BSL-1.0
// The heap's large objects: runs of whole pages from the page allocator, which records the length of each run. A run has no owner, so any
// core frees it directly. Each core counts what it allocates and frees itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/counter.hpp"
#include "kernel/memory/page_allocator.hpp"

namespace neap::memory {

/// One core's counts. `bytes` is allocated minus freed. A single core's value may be below zero (modulo 2^64): only the sum has a meaning.
struct RunCounters {
  Counter allocated, freed, bytes;
};

/// False if the pointer is an object in a slab.
[[nodiscard]] inline bool is_run(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % page_bytes == 0 && run_pages(pointer) != 0;
}
/// Bytes of the run that begins at `pointer`; 0 if the pointer is an object in a slab.
[[nodiscard]] inline std::size_t run_bytes(const void* pointer) noexcept { return is_run(pointer) ? run_pages(pointer) * page_bytes : 0; }

/// A run of at least `bytes` bytes, aligned to `alignment` (a power of two) and to a page; null if there is no such run.
[[nodiscard]] void* allocate_run_bytes(RunCounters& counters, std::size_t bytes, std::size_t alignment) noexcept;
/// `run` MUST be a run (`is_run`).
void free_run_bytes(RunCounters& counters, void* run) noexcept;
/// Frees the pages after the first `bytes` bytes of a run. Returns false and changes nothing if `run` is no run, or is shorter than that.
[[nodiscard]] bool shorten_run_bytes(RunCounters& counters, void* run, std::size_t bytes) noexcept;

}  // namespace neap::memory
