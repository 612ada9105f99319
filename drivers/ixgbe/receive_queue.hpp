// SPDX-License-Identifier: BSL-1.0
// One receive queue: from a descriptor that the card wrote back to a frame in the stack's hands.
//
// The ring holds buffers of the queue's pool; beside it lies a list of them, a place for each descriptor. `receive` walks the ring by DD
// bits and notes in the list what the card says of each frame; then a stretch of the list, as it is, goes up in one call. `refill`, at the
// end of the event, gives the card new buffers in batches of 16 and tells it by one tail write. Between the two the ring may run short,
// never over: 16 descriptors always stay unposted, so the tail never meets the head and is always a multiple of 16 (four cache lines of
// descriptors).
//
// A frame longer than a buffer lies over several descriptors: those that follow each other, or, where the card coalesces, those that each
// name the next (82599 datasheet 7.1.6.2), with other frames between them. So what there is of a frame waits at the descriptor with which
// it goes on; with its last piece it takes that piece's place in the list.
//
// Belongs to one core.
#pragma once

#include <cstdint>
#include <memory>

#include "drivers/intel_descriptor_ring.hpp"
#include "drivers/ixgbe/counters.hpp"
#include "drivers/ixgbe/queue_options.hpp"
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

  /// Takes memory for a ring as `options` want it, which the queue uses from the next `program` on. On the queue's core. Errors: `invalid`,
  /// `out_of_memory`; then nothing has changed.
  [[nodiscard]] Result<void> prepare(const QueueOptions& options);

  /// Gives the memory of the last `prepare` back, if no `program` has used it.
  void forget_prepared() noexcept { spare_ = {}; }

  /// Tells the card where the ring is (82599 datasheet 4.6.7, per queue); the queue is off, and every buffer in the pool.
  void program(const QueueOptions& options) noexcept;
  /// Turns the queue on (4.6.7) or off (4.6.7.1.2). Buffers are posted by `refill`, after it is on. Errors: `timeout`, `closed`.
  [[nodiscard]] task<Result<void>> enable(bool on) const;
  /// Takes back what the card had been given, for a queue that is off. What it wrote before should have been received.
  void empty() noexcept;

  /// Hands up to `budget` descriptors' worth of frames to `receiver`; returns how many descriptors it took.
  unsigned receive(FrameReceiver& receiver, unsigned budget) noexcept;

  /// True if the card has written back the next descriptor, or the next `count`.
  [[nodiscard]] bool ready(std::uint32_t count = 1) const noexcept {
    return posted_ >= count && is_done(ring_.at(head_ + count - 1)->load_status());
  }

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
  /// What the card found out about the frame that ends with this descriptor.
  [[nodiscard]] static ReceiveInfo info_of(std::uint64_t first, std::uint64_t status) noexcept;

  struct Memory {
    DescriptorRing ring;
    std::unique_ptr<ReceivedFrame[]> slots;
    std::unique_ptr<ReceivePool::Buffer*[]> unfinished;
  };

  /// The same for descriptors that lie side by side.
  unsigned receive_run(FrameReceiver& receiver, std::uint32_t limit) noexcept;
  /// Any descriptor that is done, at this place in the ring. True: a frame ends with it, and stands there now. Not for the compiler to mix
  /// with the straight way.
  [[gnu::noinline]] bool take_piece(std::uint32_t place) noexcept;
  void keep_for_next(ReceivePool::Buffer* frame, std::uint32_t following, std::uint64_t first, std::uint64_t status) noexcept;
  /// Its buffers go back to the pool.
  void drop(ReceiveBuffer* frame, Counter& reason) noexcept;

  Registers registers_;
  DescriptorRing ring_;
  std::unique_ptr<ReceivedFrame[]> slots_;              // by place in the ring: the descriptor's buffer; then the frame, until `refill`
  std::unique_ptr<ReceivePool::Buffer*[]> unfinished_;  // by place in the ring: what there is of the frame that goes on in it
  Memory spare_;                                        // what `prepare` took
  std::uint32_t head_ = 0;                              // next descriptor to look at
  std::uint32_t tail_ = 0;                              // next descriptor to fill
  std::uint32_t posted_ = 0;                            // tail_ - head_: descriptors that the card may use
  std::uint32_t pieces_max_ = 1;
  std::uint32_t vlan_ = 0;  // frames without its tag are dropped
  std::uint32_t unfinished_count_ = 0;
  std::uint32_t parts_ = 0;  // of what a run took: descriptors that do not end a frame
  unsigned index_;
  ReceivePool::Buffer thrown_away_;  // stands for a frame whose remaining pieces go the way of the first ones

  ReceivePool pool_;
  void (*wanted_)(void*) noexcept = nullptr;
  void* wanted_context_ = nullptr;
  log::Traffic& traffic_;
  ReceiveCounters counters_;
};

}  // namespace neap::ixgbe
