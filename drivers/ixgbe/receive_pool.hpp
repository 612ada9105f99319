// SPDX-License-Identifier: BSL-1.0
// Where received frames lie.
//
// A frame is handed up without a copy, so its buffer is away until the application has read it, and nobody knows for how long. The pool of
// a queue is therefore larger than its ring, and bounded: when it is empty the ring is left short, the card drops what does not fit (and
// counts it), and the next release fills the ring again. Nothing is allocated with traffic; a larger ring may bring more buffers.
//
// Headers lie apart from data: the card's writes and the stack's notes do not share cache lines, and data stay aligned to their size, so
// that no buffer crosses a 4 KiB border.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/error.hpp"
#include "kernel/memory/dma_memory.hpp"
#include "kernel/net_device.hpp"

namespace neap::ixgbe {

class ReceivePool {
 public:
  static constexpr std::uint32_t buffer_bytes = 2048;
  static constexpr std::uint32_t buffers_max = 1u << 18;  // 512 MiB of data

  struct Buffer : ReceiveBuffer {
    ReceivePool* pool = nullptr;
    std::uint64_t bus_address = 0;
    // Of a frame's first buffer, while the frame is being put together.
    Buffer* last = nullptr;
    std::uint32_t pieces = 0;
  };

  ReceivePool() = default;
  ReceivePool(const ReceivePool&) = delete;
  ReceivePool& operator=(const ReceivePool&) = delete;

  /// Allocates more buffers, so that there are `count` (1 to `buffers_max`). Errors: `invalid`, `out_of_memory`.
  [[nodiscard]] Result<void> grow_to(std::uint32_t count);

  /// Calls `use(i, buffer)` for `count` buffers, which must be there; `i`: 0 and so on.
  template <std::uint32_t count, class Use>
  void take(Use use) noexcept {
    assert(count <= available());
    missing_ += static_cast<std::int32_t>(count);
    Buffer* buffer = free_;
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < count; ++i) {
      use(i, buffer);
      buffer = static_cast<Buffer*>(buffer->next);
    }
    free_ = buffer;
  }

  void give_back(Buffer* buffer) noexcept {
    assert(buffer->pool == this && available() < size_);
    buffer->next = free_;
    free_ = buffer;
    if (--missing_ == 0) [[unlikely]]
      call();
  }

  [[nodiscard]] std::uint32_t available() const noexcept { return threshold_ - static_cast<std::uint32_t>(missing_); }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// Calls `wanted(context)` at the first release that brings `available()` to `threshold` or more; once, until asked again.
  void call_when(std::uint32_t threshold, void (*wanted)(void*) noexcept, void* context) noexcept {
    missing_ += static_cast<std::int32_t>(threshold - threshold_);
    threshold_ = threshold;
    wanted_ = wanted;
    context_ = context;
  }

 private:
  static void release(ReceiveBuffer* buffer) noexcept;
  void call() noexcept;

  struct Slab {
    DmaMemory data;
    std::unique_ptr<Buffer[]> buffers;
  };
  std::vector<Slab> slabs_;
  Buffer* free_ = nullptr;
  std::int32_t missing_ = 0;  // up to the threshold; below zero: so many more are there
  std::uint32_t size_ = 0;
  std::uint32_t threshold_ = 0;
  void (*wanted_)(void*) noexcept = nullptr;
  void* context_ = nullptr;
};

}  // namespace neap::ixgbe
