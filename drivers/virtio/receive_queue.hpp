// SPDX-License-Identifier: BSL-1.0
// A receive queue: from a used buffer to a frame in the stack.
//
// Each descriptor stands for one buffer of the pool, and its number comes back in the used ring. Lists beside the ring have the descriptor
// and the buffer that belong to each position. So an entry with a wrong number is found before it is used. Devices use buffers in the order
// of the positions. If one does not, the lists are changed so that it did. Each buffer begins with the header of 5.1.6, and the frame
// follows. With merged buffers (5.1.6.4), a long frame continues in the buffers of the next used entries, which then have no header. A
// device that writes an impossible entry has failed: `fault` has the reason, and the queue takes no further entry.
//
// The device checks at most the checksum of TCP or UDP (5.1.6.4.1). The stack checks that of the IPv4 header.
//
// All calls MUST come from the queue's core.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "drivers/receive_pool.hpp"
#include "drivers/virtio/counters.hpp"
#include "drivers/virtio/specification.hpp"
#include "drivers/virtio_bus/ring.hpp"
#include "kernel/net_device.hpp"

namespace neap::virtio {

class ReceiveQueue {
 public:
  static constexpr std::uint32_t refill_batch_descriptors = 16;
  static constexpr std::uint32_t budget_max = 128;
  /// The stack holds at most 512 buffers (net::Stack::held_buffers_hard_max). Those of one event come in addition.
  static constexpr std::uint32_t buffers_beyond_ring = 512 + 256;

  /// Frames are counted in `traffic`, which MUST outlive the queue.
  explicit ReceiveQueue(log::Traffic& traffic) noexcept : traffic_(traffic) {}

  /// Allocates a ring of `descriptors`, and its buffers. `features`: those that device and driver agree on. Errors: `invalid`,
  /// `out_of_memory`.
  [[nodiscard]] Result<void> prepare(std::uint32_t descriptors, std::uint64_t features);

  /// Passes the frames of up to `budget` used buffers to `receiver`; returns the number of buffers taken.
  unsigned receive(FrameReceiver& receiver, unsigned budget) noexcept { return ready() ? receive_ready(receiver, budget) : 0; }
  [[nodiscard]] bool ready(std::uint32_t count = 1) const noexcept {
    return static_cast<std::uint16_t>(ring_.used_end() - seen_) >= count && fault_ == nullptr;
  }
  /// Posts as many buffers as there is room for, in whole batches, and tells the device.
  void refill() noexcept {
    if (has_room()) post_batches();
  }
  void on_buffers_wanted(void (*wanted)(void*) noexcept, void* context) noexcept { pool_.on_wanted(wanted, context); }
  /// Returns all posted buffers to the pool. The device MUST have been reset. The queue cannot be used again.
  void empty() noexcept;

  /// The reason of the failure of the device; null: there is none.
  [[nodiscard]] const char* fault() const noexcept { return fault_; }
  [[nodiscard]] Ring& ring() noexcept { return ring_; }
  [[nodiscard]] const Ring& ring() const noexcept { return ring_; }
  void want_interrupts(bool on) noexcept {
    ring_.want_interrupts(on);
    ring_.seen(seen_);
  }
  [[nodiscard]] const ReceiveCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const ReceivePool& pool() const noexcept { return pool_; }
  /// The number of buffers that the device may write.
  [[nodiscard]] std::uint32_t posted() const noexcept { return static_cast<std::uint16_t>(next_ - seen_); }

 private:
  using Buffer = ReceivePool::Buffer;
  [[gnu::noinline]] unsigned receive_ready(FrameReceiver& receiver, unsigned budget) noexcept;
  /// Takes whole frames, one in each buffer, from `position` on, up to `end`. Adds them at `out`, and their bytes to `bytes`. Returns the
  /// position of the first entry of another kind.
  [[nodiscard]] std::uint32_t take_whole(std::uint32_t position, std::uint32_t end, ReceivedFrame*& out, std::uint32_t& bytes) noexcept;
  /// Takes an entry of any kind. Adds the frame that ends with it, if any. Returns false if the entry names no buffer.
  [[nodiscard, gnu::noinline]] bool take_any(std::uint32_t position, ReceivedFrame*& out, std::uint32_t& bytes) noexcept;
  /// Changes the lists so that descriptor `id` belongs to `position`. Returns false if the device does not own this descriptor.
  [[nodiscard]] bool reorder(std::uint32_t position, std::uint32_t id) noexcept;
  static void release_continued(ReceiveBuffer* buffer) noexcept;
  [[nodiscard]] bool has_room() const noexcept { return posted() + refill_batch_descriptors <= ring_.size() && fault_ == nullptr; }
  void post_batches() noexcept;

  Ring ring_;
  std::unique_ptr<Buffer*[]> buffers_;    // by position: the buffer, if the device owns it
  std::unique_ptr<std::uint32_t[]> ids_;  // by position: the descriptor
  std::array<ReceivedFrame, budget_max> frames_{};
  std::uint16_t seen_ = 0;          // next used entry
  std::uint16_t next_ = 0;          // next chain to make available
  std::uint8_t checked_flags_ = 0;  // flags of a header by which the device says that the checksum is right
  bool merges_ = false;
  // A frame whose last `missing_` buffers have not been used yet.
  Buffer* unfinished_ = nullptr;
  std::uint32_t missing_ = 0;
  ReceiveInfo unfinished_info_;
  const char* fault_ = nullptr;

  ReceivePool pool_{frame_header_bytes};
  log::Traffic& traffic_;
  ReceiveCounters counters_;
};

}  // namespace neap::virtio
