// SPDX-License-Identifier: BSL-1.0
// One receive queue: from a descriptor that the card wrote back to a frame in the stack's hands.
//
// The ring holds buffers of the queue's pool. `receive` walks it by DD bits and hands frames up; `refill`, at the end of the event, gives
// the card new buffers in batches of 16 and tells it by one tail write. Between the two the ring may run short, never over: 16 descriptors
// always stay unposted, so the tail never meets the head and is always a multiple of 16 (four cache lines of descriptors).
//
// Belongs to one core.
#pragma once

#include <cstdint>
#include <memory>

#include "drivers/ixgbe/counters.hpp"
#include "drivers/ixgbe/descriptor_ring.hpp"
#include "drivers/ixgbe/receive_pool.hpp"
#include "drivers/ixgbe/register_access.hpp"
#include "kernel/net_device.hpp"

namespace neap::ixgbe {

class ReceiveQueue {
 public:
  static constexpr std::uint32_t refill_batch_descriptors = 16;

  /// Adds to `traffic`, which outlives it.
  ReceiveQueue(Registers registers, unsigned index, log::Traffic& traffic) noexcept
      : registers_(registers), index_(index), traffic_(traffic) {}

  /// Call on the queue's core. `buffers` must cover the ring. Errors: `invalid`, `out_of_memory`.
  [[nodiscard]] Result<void> allocate(std::uint32_t ring_descriptors, std::uint32_t buffers, std::uint32_t frame_bytes_max);

  /// Tells the card where the ring is (82599 datasheet 4.6.7, per queue); the queue stays off.
  void program() const noexcept;
  /// Turns the queue on and posts the first buffers (4.6.7). Errors: `timeout`, `closed`.
  [[nodiscard]] task<Result<void>> enable();

  /// Hands up to `budget` descriptors' worth of frames to `receiver`; returns how many descriptors it took.
  unsigned receive(FrameReceiver& receiver, unsigned budget) noexcept;

  /// True if the card has written back another descriptor.
  [[nodiscard]] bool ready() const noexcept { return posted_ != 0 && is_done(ring_.load_status(head_)); }

  /// The cache line with the descriptor that the card writes back next.
  [[nodiscard]] const volatile void* next_line() const noexcept { return ring_.line_of(head_); }

  /// Gives the card as many buffers as there is room for, in whole batches. If the pool lacks them, the next releases call
  /// `wanted(context)`.
  void refill() noexcept;
  void on_buffers_wanted(void (*wanted)(void*) noexcept, void* context) noexcept {
    wanted_ = wanted;
    wanted_context_ = context;
  }

  [[nodiscard]] const ReceiveCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const ReceivePool& pool() const noexcept { return pool_; }
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

 private:
  using Written = descriptor::ReceiveWriteBack;
  [[nodiscard]] static bool is_done(std::uint64_t status) noexcept { return (status & Written::descriptor_done_mask) != 0; }
  [[nodiscard]] static ReceiveInfo info_of(std::uint64_t first, std::uint64_t status) noexcept;

  void take_piece(FrameReceiver& receiver, ReceivePool::Buffer* buffer, std::uint64_t first, std::uint64_t status) noexcept;
  void drop_chain() noexcept;

  Registers registers_;
  DescriptorRing ring_;
  std::unique_ptr<ReceivePool::Buffer*[]> buffers_;  // of each posted descriptor
  std::uint32_t head_ = 0;                           // next descriptor to look at
  std::uint32_t tail_ = 0;                           // next descriptor to fill
  std::uint32_t posted_ = 0;                         // tail_ - head_: descriptors that the card may use
  unsigned index_;

  ReceiveBuffer* chain_first_ = nullptr;  // a frame over several descriptors, so far
  ReceiveBuffer* chain_last_ = nullptr;
  std::uint32_t chain_pieces_ = 0;
  std::uint32_t chain_pieces_max_ = 1;
  bool skip_to_end_ = false;  // the rest of an overlong frame is thrown away

  ReceivePool pool_;
  void (*wanted_)(void*) noexcept = nullptr;
  void* wanted_context_ = nullptr;
  log::Traffic& traffic_;
  ReceiveCounters counters_;
};

}  // namespace neap::ixgbe
