// SPDX-License-Identifier: BSL-1.0
// A receive queue: from a descriptor that the card wrote back to a frame in the stack.
//
// The ring holds buffers of the queue's pool. A list beside the ring has a slot for each descriptor. `receive` walks the ring by DD bits
// and records in the list what the card reports of each frame. It then passes up contiguous parts of the list, each in one call and without
// a copy. At the end of the event, `refill` posts new buffers in batches of 16 and notifies the card by one tail write. Between two refills
// the ring may run short of posted buffers. At least 16 descriptors always stay unposted, so the tail never catches up with the head. The
// tail is always a multiple of 16 (four cache lines of descriptors).
//
// A frame longer than a buffer occupies several descriptors. Without RSC these descriptors follow each other. With RSC each descriptor
// names the next one (82599 datasheet 7.1.6.2), and other frames may be in between. The pieces received so far are stored for the
// descriptor in which the frame continues (`unfinished_`). When the last piece arrives, the frame is stored in that piece's slot.
//
// All calls MUST come from the queue's core.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "drivers/intel_descriptor_ring.hpp"
#include "drivers/ixgbe/counters.hpp"
#include "drivers/ixgbe/queue_options.hpp"
#include "drivers/ixgbe/register_access.hpp"
#include "drivers/receive_pool.hpp"
#include "kernel/net_device.hpp"

namespace neap::ixgbe {

class ReceiveQueue {
 public:
  static constexpr std::uint32_t refill_batch_descriptors = 16;

  /// Frames are counted in `traffic`, which MUST outlive the queue.
  ReceiveQueue(Registers registers, unsigned index, log::Traffic& traffic) noexcept
      : registers_(registers), index_(index), traffic_(traffic) {}

  /// Allocates memory for a ring as `options` say. The next `program` uses it. Errors: `invalid`, `out_of_memory`; then nothing has
  /// changed.
  [[nodiscard]] Result<void> prepare(const QueueOptions& options);

  /// Frees the memory of the last `prepare`, if no `program` has used it.
  void discard_prepared() noexcept { spare_ = {}; }

  /// Programs the ring's address (82599 datasheet 4.6.7, per queue). The queue MUST be off, and every buffer MUST be in the pool.
  void program(const QueueOptions& options) noexcept;
  /// Turns the queue on (4.6.7) or off (4.6.7.1.2). Posts no buffers: call `refill` once the queue is on. Errors: `timeout`, `closed`.
  [[nodiscard]] task<Result<void>> enable(bool on) const;
  /// Returns all posted buffers to the pool. The queue MUST be off. The caller SHOULD first call `receive` for all completed descriptors.
  void empty() noexcept;

  /// Passes frames of up to `budget` descriptors to `receiver`; returns the number of descriptors taken.
  unsigned receive(FrameReceiver& receiver, unsigned budget) noexcept { return ready() ? receive_ready(receiver, budget) : 0; }

  /// True if the card has written back the next `count` descriptors.
  [[nodiscard]] bool ready(std::uint32_t count = 1) const noexcept {
    return posted_ >= count && is_done(ring_.at(head_ + count - 1)->load_status());
  }

  /// Returns the cache line of the descriptor that the card writes back next.
  [[nodiscard]] const volatile void* next_line() const noexcept { return ring_.line_of(head_); }

  /// Posts as many buffers as there is room for, in whole batches. If the pool has fewer buffers than a batch, the callback of
  /// `on_buffers_wanted` is called when the pool has a batch again.
  void refill() noexcept {
    if (posted_ + 2 * refill_batch_descriptors <= ring_.size()) post_batches();
  }
  void on_buffers_wanted(void (*wanted)(void*) noexcept, void* context) noexcept { pool_.on_wanted(wanted, context); }

  [[nodiscard]] const ReceiveCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const ReceivePool& pool() const noexcept { return pool_; }
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

 private:
  using Written = descriptor::ReceiveWriteBack;
  using Joined = descriptor::ReceiveWriteBackCoalesced;
  [[nodiscard]] static bool is_done(std::uint64_t status) noexcept { return (status & Written::descriptor_done_mask) != 0; }
  /// Returns the card's checksum, hash and VLAN results for the frame that ends with this descriptor.
  [[nodiscard]] static ReceiveInfo info_of(std::uint64_t first, std::uint64_t status) noexcept;

  struct Memory {
    DescriptorRing ring;
    std::unique_ptr<ReceivedFrame[]> slots;
    std::unique_ptr<ReceivePool::Buffer*[]> unfinished;
  };

  /// `receive` if a descriptor is done. Not inlined, so that an event without frames is short.
  [[gnu::noinline]] unsigned receive_ready(FrameReceiver& receiver, unsigned budget) noexcept;
  /// The rest of `receive` behind the ring's end, after `taken` descriptors.
  [[gnu::noinline]] unsigned receive_from_start(FrameReceiver& receiver, unsigned budget, unsigned taken) noexcept;
  /// Counts the frames of a joined frame, in place of the joined frame itself. Each of its descriptors has the number of frames that start
  /// in it, plus one (7.1.6.2, RSCCNT); the descriptors of other frames have 0. `last`: the joined frame ends with this descriptor.
  void count_joined(std::uint64_t first, bool last) noexcept {
    const std::uint32_t count = Joined::get_rsc_count(first, 0);
    if (count == 0) return;
    traffic_.rx_frames.add(count - 1);
    parts_ += last ? 1 : 0;
  }
  /// As `count_joined`. Not inlined, because inlining would slow the fast path of `receive_ready`.
  [[gnu::noinline, gnu::cold]] void count_joined_in_one_buffer(std::uint64_t first) noexcept;
  /// Passes the frames in `slots` to `receiver`, without the slots that have none.
  [[gnu::noinline]] void receive_without_holes(FrameReceiver& receiver, std::span<ReceivedFrame> slots) noexcept;
  struct Run {
    std::uint32_t descriptors = 0, bytes = 0;
  };
  /// Takes a frame without errors whose descriptors are all completed and follow each other from slot `place` on, none of them behind
  /// `limit` descriptors. The frame is then in the last one's slot, and the other slots are empty. Returns no descriptors, with no effect,
  /// for any other frame. There MUST be no unfinished frame and no VLAN.
  [[nodiscard, gnu::noinline]] Run take_run(std::uint32_t place, std::uint32_t limit) noexcept;
  /// Handles the completed descriptor at slot `place`, of any kind. Returns true if a frame ends with it; the frame is then in the slot.
  /// Not inlined, because inlining would slow the fast path of `receive_ready`.
  [[gnu::noinline]] bool take_piece(std::uint32_t place) noexcept;
  void keep_for_next(ReceivePool::Buffer* frame, std::uint32_t following, std::uint64_t first, std::uint64_t status) noexcept;
  void drop(ReceiveBuffer* frame, Counter& reason) noexcept;
  /// `refill` if there is room for a batch.
  void post_batches() noexcept;

  Registers registers_;
  DescriptorRing ring_;
  std::unique_ptr<ReceivedFrame[]> slots_;              // for each slot of the ring: the posted buffer; after `receive`, the frame
  std::unique_ptr<ReceivePool::Buffer*[]> unfinished_;  // for each slot of the ring: pieces of the frame that continues there
  Memory spare_;                                        // memory of the last `prepare`
  std::uint32_t head_ = 0;                              // next descriptor to check
  std::uint32_t tail_ = 0;                              // next descriptor to fill
  std::uint32_t posted_ = 0;                            // tail_ - head_: descriptors that the card may use
  std::uint32_t pieces_max_ = 1;
  std::uint32_t vlan_ = 0;  // frames without this tag are dropped
  std::uint32_t unfinished_count_ = 0;
  std::uint32_t parts_ = 0;  // descriptors of this `receive_ready` that end no frame, or one whose frames `count_joined` counts
  std::uint32_t holes_ = 0;  // slots without a frame in this `receive_ready`: it goes on in another slot, or was dropped
  unsigned index_;
  reg::Location<reg::Rdt> tail_register_ = reg::RDT(index_);
  ReceivePool::Buffer discarded_;  // marks a frame whose first pieces were dropped, so that its remaining pieces are dropped too

  ReceivePool pool_;
  log::Traffic& traffic_;
  ReceiveCounters counters_;
};

}  // namespace neap::ixgbe
