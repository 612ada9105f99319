// SPDX-License-Identifier: BSL-1.0
// Memory that a device reads and writes.
//
// Rings and buffers must be physically contiguous, aligned for the device, and must not move. The page allocator gives naturally aligned
// runs in the direct map, on the NUMA node of the calling core. So the core that serves a queue MUST allocate the queue's memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernel/error.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"

namespace neap {

/// Owns physically contiguous, zeroed pages. Move-only.
class DmaMemory {
 public:
  DmaMemory() = default;
  DmaMemory(DmaMemory&& other) noexcept : start_(std::exchange(other.start_, nullptr)), order_(other.order_) {}
  DmaMemory& operator=(DmaMemory&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(order_, other.order_);
    return *this;
  }
  ~DmaMemory() {
    if (start_ != nullptr) memory::free_pages(start_, order_);
  }

  /// Allocates at least `bytes` (above 0), rounded up to a power of two of pages. Errors: `out_of_memory`; `invalid` above the page
  /// allocator's maximum.
  [[nodiscard]] static Result<DmaMemory> allocate(std::size_t bytes) noexcept {
    require(bytes != 0, "DmaMemory::allocate: no bytes");
    const std::size_t pages = (bytes + memory::page_bytes - 1) / memory::page_bytes;
    const auto order = static_cast<unsigned>(std::bit_width(pages - 1));
    if (order > memory::order_max) return failure(ErrorCode::invalid, "too much contiguous memory for a device", bytes);
    DmaMemory result;
    result.start_ = static_cast<std::byte*>(memory::allocate_pages(order));
    result.order_ = order;
    if (result.start_ == nullptr) return failure(ErrorCode::out_of_memory, "no contiguous memory for a device", bytes);
    std::memset(result.start_, 0, result.bytes());
    return result;
  }

  [[nodiscard]] std::byte* start() const noexcept { return start_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return start_ == nullptr ? 0 : memory::page_bytes << order_; }
  [[nodiscard]] std::uint64_t bus_address() const noexcept {
    require(start_ != nullptr, "DmaMemory: the address of no memory");
    return machine::physical_address(start_);
  }

 private:
  std::byte* start_ = nullptr;
  unsigned order_ = 0;
};

}  // namespace neap
