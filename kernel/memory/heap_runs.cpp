// SPDX-License-Identifier: BSL-1.0
#include "kernel/memory/heap_runs.hpp"

#include <algorithm>
#include <bit>

namespace neap::memory {
namespace {

std::size_t pages_for(std::size_t bytes) noexcept { return std::max<std::size_t>((bytes + page_bytes - 1) / page_bytes, 1); }

}  // namespace

void* allocate_run_bytes(RunCounters& counters, std::size_t bytes, std::size_t alignment) noexcept {
  if (bytes > page_bytes << order_max || alignment > page_bytes << order_max) return nullptr;
  const std::size_t pages = pages_for(bytes);
  const auto alignment_order = static_cast<unsigned>(std::bit_width((std::max(alignment, page_bytes) / page_bytes) - 1));
  void* const run = allocate_run(pages, alignment_order);
  if (run != nullptr) {
    counters.allocated.add();
    counters.bytes.add(pages * page_bytes);
  }
  return run;
}

void free_run_bytes(RunCounters& counters, void* run) noexcept {
  counters.freed.add();
  counters.bytes.subtract(run_bytes(run));
  free_run(run);
}

bool shorten_run_bytes(RunCounters& counters, void* run, std::size_t bytes) noexcept {
  const std::size_t had = run_bytes(run);
  if (bytes > had) return false;
  const std::size_t kept = pages_for(bytes) * page_bytes;
  shorten_run(run, kept / page_bytes);
  counters.bytes.subtract(had - kept);
  return true;
}

}  // namespace neap::memory
