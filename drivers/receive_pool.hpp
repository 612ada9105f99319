// SPDX-License-Identifier: BSL-1.0
// The buffers of received frames.
//
// A frame is passed up without a copy, so its buffer is in use until the application has read the frame. An application may read a frame
// late, so a queue's pool is larger than its ring. Traffic never allocates memory; only a change to a larger ring may add buffers to the
// pool. When the pool is empty, the ring is not refilled and the card drops (and counts) frames for which it has no descriptor. Once enough
// buffers are released, the ring is filled again.
//
// A buffer's header (`Buffer`) is separate from its data, so that the card's writes and the stack's writes do not share cache lines. Each
// buffer's data are aligned to their size, so that no buffer crosses a 4 KiB boundary.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/error.hpp"
#include "kernel/memory/dma_memory.hpp"
#include "kernel/net_device.hpp"
#include "kernel/panic.hpp"

namespace neap {

class ReceivePool {
 public:
  static constexpr std::uint32_t buffer_bytes = 2048;
  static constexpr std::uint32_t buffers_max = 1u << 18;  // 512 MiB of data

  struct Buffer : ReceiveBuffer {
    ReceivePool* pool = nullptr;
    std::uint64_t bus_address = 0;
    // `last` and `pieces` are valid in a frame's first buffer, while the frame is being assembled.
    Buffer* last = nullptr;
    std::uint32_t pieces = 0;
  };

  /// The `data` of a buffer in the pool begin `room_bytes` behind the place to which the device writes (`bus_address`).
  explicit ReceivePool(std::uint32_t room_bytes = 0) noexcept : room_bytes_(room_bytes) {}
  ReceivePool& operator=(ReceivePool&&) = delete;

  /// Allocates buffers until there are `count` (1 to `buffers_max`). Errors: `invalid`, `out_of_memory`; the pool may then have grown.
  [[nodiscard]] Result<void> grow_to(std::uint32_t count);

  /// Takes `count` buffers and calls `use(i, buffer)` for each, with i from 0 on. The caller MUST have checked `available()`.
  template <std::uint32_t count, class Use>
  void take(Use use) noexcept {
    require(count <= available(), "receive pool: more buffers taken than the pool has", count);
    missing_ += static_cast<std::int32_t>(count);
    Buffer* buffer = free_;
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < count; ++i) {
      use(i, buffer);
      buffer = static_cast<Buffer*>(buffer->next);
    }
    free_ = buffer;
  }

  void put_back(Buffer* buffer) noexcept {
    // This runs for each frame. A `require` would cost about 4 instructions a frame (`neap bench driver`, receive, batch 32).
    assert(buffer->pool == this && available() < size_);
    buffer->next = free_;
    free_ = buffer;
    if (--missing_ == 0) [[unlikely]]
      call();
  }

  [[nodiscard]] std::uint32_t available() const noexcept { return threshold_ - static_cast<std::uint32_t>(missing_); }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// True if the pool has `count` buffers. After false, the callback of `on_wanted` is called once, as soon as it has them.
  [[nodiscard]] bool has(std::uint32_t count) noexcept {
    if (available() >= count) [[likely]]
      return true;
    set_threshold(count);
    return false;
  }
  /// `wanted` MAY be null: then nothing is called.
  void on_wanted(void (*wanted)(void*) noexcept, void* context) noexcept {
    wanted_ = wanted;
    context_ = context;
  }

  /// `ReceiveBuffer::return_to` of each buffer.
  static void release(ReceiveBuffer* buffer) noexcept;

 private:
  [[nodiscard]] Result<void> grow_by(std::uint32_t more);
  void call() noexcept;
  void set_threshold(std::uint32_t threshold) noexcept {
    missing_ += static_cast<std::int32_t>(threshold - threshold_);
    threshold_ = threshold;
  }

  struct Slab {
    DmaMemory data;
    std::unique_ptr<Buffer[]> buffers;
  };
  std::uint32_t room_bytes_;
  std::vector<Slab> slabs_;
  Buffer* free_ = nullptr;
  // `threshold_` minus the number of available buffers. A count of available buffers would cost 2.9 instructions more a frame (`neap bench
  // driver`, receive, batch 32).
  std::int32_t missing_ = 0;
  std::uint32_t size_ = 0, threshold_ = 0;
  void (*wanted_)(void*) noexcept = nullptr;
  void* context_ = nullptr;
};

}  // namespace neap
