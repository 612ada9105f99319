// SPDX-License-Identifier: BSL-1.0
// A receive queue: from a used buffer to a frame in the stack.
//
// Each descriptor stands for one buffer of the pool, and its number comes back in the used ring. A list beside the ring has the buffer of
// each descriptor. So an entry with a wrong number is found before it is used. Devices use buffers in order. As long as this one does, each
// position of the rings has the descriptor with the same number, and no list of free descriptors is needed. Each buffer begins with the
// header of 5.1.6, and the frame follows. With merged buffers (5.1.6.4), a long frame continues in the buffers of the next used entries,
// which then have no header. A device that writes an impossible entry has failed: `fault` has the reason, and the queue takes no further
// entry.
//
// The device checks at most the checksum of TCP or UDP (5.1.6.4.1). The stack's short path needs that of the IPv4 header as well, so this
// queue computes it for such frames, which takes some 15 instructions.
//
// All calls MUST come from the queue's core.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "drivers/receive_pool.hpp"
#include "drivers/virtio/counters.hpp"
#include "drivers/virtio/ring.hpp"
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
    if (posted_ + refill_batch_descriptors <= ring_.size()) post_batches();
  }
  void on_buffers_wanted(void (*wanted)(void*) noexcept, void* context) noexcept {
    wanted_ = wanted;
    wanted_context_ = context;
  }
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
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

 private:
  using Buffer = ReceivePool::Buffer;
  [[gnu::noinline]] unsigned receive_ready(FrameReceiver& receiver, unsigned budget) noexcept;
  /// Takes entries of any kind from number `taken` on, up to number `count`. Adds their frames at `out`, and their bytes to `bytes`.
  /// Returns the number of entries that were taken.
  [[nodiscard, gnu::noinline]] std::uint32_t take_any(std::uint32_t taken, std::uint32_t count, ReceivedFrame*& out,
                                                      std::uint32_t& bytes) noexcept;
  /// From now on, each descriptor that the device does not own is in `free_ids_`, and has no buffer. `position`: the next used entry.
  void leave_order(std::uint16_t position) noexcept;
  static void release_continued(ReceiveBuffer* buffer) noexcept;
  /// Handles an entry of any kind, whose buffer is `buffer`. Returns the frame that ends with it; null if none does.
  [[nodiscard, gnu::noinline]] Buffer* take_piece(UsedEntry entry, Buffer* buffer) noexcept;
  /// The result for a frame with at least an IPv4 header, whose TCP or UDP checksum the device checked.
  [[nodiscard]] static ReceiveInfo info_of_checked(const std::byte* frame) noexcept;
  void post_batches() noexcept;

  Ring ring_;
  std::unique_ptr<Buffer*[]> buffers_;         // for each descriptor: the buffer that the device may write; null: none
  std::unique_ptr<std::uint16_t[]> free_ids_;  // by position: free descriptors, from `next_` to `seen_` plus the ring's size
  bool in_order_ = true;                       // the device has used each descriptor in its turn
  std::array<ReceivedFrame, budget_max> frames_{};
  std::uint16_t seen_ = 0;  // next used entry
  std::uint16_t next_ = 0;  // next chain to make available
  std::uint32_t posted_ = 0;
  std::uint8_t checked_flags_ = 0;  // flags of a header by which the device says that the checksum is right
  bool merges_ = false;
  // A frame whose last buffers have not been used yet.
  Buffer* unfinished_ = nullptr;
  std::uint32_t missing_ = 0;
  ReceiveInfo unfinished_info_;
  const char* fault_ = nullptr;

  ReceivePool pool_{frame_header_bytes};
  void (*wanted_)(void*) noexcept = nullptr;
  void* wanted_context_ = nullptr;
  log::Traffic& traffic_;
  ReceiveCounters counters_;
};

}  // namespace neap::virtio
