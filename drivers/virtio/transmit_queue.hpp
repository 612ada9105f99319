// SPDX-License-Identifier: BSL-1.0
// A transmit queue: makes a chain of descriptors for each frame, and returns the frames' tokens to the stack when the device has used them.
//
// The ring is divided into slots of two descriptors, one slot for each frame in flight. The first descriptor always has the slot's header,
// which virtio puts before the frame (5.1.6), and continues in the second one, which has the frame. So a frame of one piece writes the
// header and the second descriptor only. The number of the first descriptor is in the available ring from the start. A frame of several
// pieces is an indirect descriptor (2.7.5.3), which must begin a chain: it is the slot's second descriptor, and its number replaces the
// first one's until the device has used the chain. A device without indirect descriptors gets frames of one piece.
//
// Tokens are returned in the order of the frames. The device may use chains in another order: then a frame waits for those before it.
//
// As in the 82599's driver, the checks of a frame are made once for all frames with the same offload: `transmit_alike` compares only
// offload and length, between `begin_run` and `flush`.
//
// All calls MUST come from the queue's core.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

#include "drivers/virtio/counters.hpp"
#include "drivers/virtio/specification.hpp"
#include "drivers/virtio_bus/ring.hpp"
#include "kernel/machine.hpp"
#include "kernel/net_device.hpp"

namespace neap::virtio {

class TransmitQueue {
 public:
  static constexpr std::uint32_t tso_bytes_max = 64 * 1024;  // 5.1.6.2: without the length of the headers; the stack stays below
  static constexpr std::uint32_t pieces_max_indirect = 31;

  /// Frames are counted in `traffic`, which MUST outlive the queue.
  explicit TransmitQueue(log::Traffic& traffic) noexcept : traffic_(traffic) {}

  /// Allocates a ring of `descriptors`. `features`: those that device and driver agree on. Errors: `invalid`, `out_of_memory`.
  [[nodiscard]] Result<void> prepare(std::uint32_t descriptors, std::uint64_t features, std::uint32_t frame_bytes_max);

  /// Queues a frame. Errors: `full`, `invalid`; then nothing was queued.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  /// As `transmit`, but only within a run, for a frame of one piece with the same offload as the frame before. Returns false if it did
  /// nothing; the caller MUST then use `transmit`.
  [[nodiscard]] bool transmit_alike(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
    const std::uint32_t number = next_;
    if (number == run_end_ || pieces.size() != 1 || std::bit_cast<std::uint64_t>(offload) != alike_.offload) return false;
    const TransmitPiece piece = pieces.front();
    if (!alike_.lengths.contain(piece.bytes) || !machine::in_direct_map(piece.data)) return false;
    next_ = number + 1;
    bytes_unflushed_ += piece.bytes;
    const std::size_t slot = number & slot_mask_;
    std::memcpy(headers_.start() + slot * header_stride, &alike_.header, sizeof alike_.header);
    place_of(slot)->store(machine::physical_address(piece.data), piece.bytes);
    tokens_[slot] = token;
    return true;
  }
  /// Begins a run of frames with the offload of the frame that `transmit` handled last. It ends with the free slots, or at `flush`.
  void begin_run() noexcept { run_end_ = next_ + (alike_.header.segmentation == 0 ? free_slots() : 0); }
  /// Makes all frames queued since the last flush available to the device.
  void flush() noexcept;

  /// True if the device has used chains that `reclaim` has not processed.
  [[nodiscard]] bool ready() const noexcept { return ring_.used_end() != seen() && fault_ == nullptr; }
  /// Takes the chains that the device has used.
  void reclaim() noexcept;
  /// Passes the tokens of sent frames to the stack in order, each once. Then reports room if a frame was refused and there is room again.
  void deliver(FrameReceiver& receiver) noexcept;
  void reap(FrameReceiver& receiver) noexcept {
    if (next_ != tokens_head_ || room_wanted_) {
      reclaim();
      if (tokens_head_ != clean_ || room_wanted_) deliver(receiver);
    }
  }
  /// Gives up all frames that the device holds. It MUST have been reset. The next `deliver` returns their tokens. The queue cannot be used
  /// again.
  void empty() noexcept;

  [[nodiscard]] std::uint32_t pending() const noexcept { return next_ - clean_; }
  /// True if a frame was refused and there is no room yet, or if half of the ring was in use at the last flush.
  [[nodiscard]] bool crowded() const noexcept { return crowded_; }
  /// Returns a number that changes whenever the device makes progress.
  [[nodiscard]] std::uint32_t progress() const noexcept { return clean_; }
  void count_hang() noexcept { counters_.hangs.add(); }
  [[nodiscard]] std::uint32_t pieces_max() const noexcept { return tables_.bytes() != 0 ? pieces_max_indirect : 1; }
  [[nodiscard]] const char* fault() const noexcept { return fault_; }
  [[nodiscard]] Ring& ring() noexcept { return ring_; }
  [[nodiscard]] const TransmitCounters& counters() const noexcept { return counters_; }

 private:
  static constexpr std::uint32_t slot_descriptors = 2, header_stride = 16;
  static constexpr std::uint32_t table_bytes = (pieces_max_indirect + 1) * sizeof(Descriptor);

  /// The offload of the frame before, and what follows from it.
  struct Alike {
    FrameLengths lengths;
    std::uint64_t offload = ~std::uint64_t{0};  // matches no offload
    FrameHeader header;
  };

  [[nodiscard]] Alike alike_of(TransmitOffload offload) const noexcept;
  /// The second descriptor of a slot.
  [[nodiscard]] Descriptor* place_of(std::size_t slot) const noexcept { return ring_.descriptors() + slot_descriptors * slot + 1; }
  /// Takes the chain that begins at descriptor `id`. Returns false if the device does not hold it.
  [[nodiscard]] bool take(std::uint32_t id) noexcept;
  /// The position of the next used entry.
  [[nodiscard]] std::uint16_t seen() const noexcept { return static_cast<std::uint16_t>(clean_ + early_count_); }
  [[nodiscard]] std::uint32_t slots() const noexcept { return slot_mask_ + 1; }
  [[nodiscard]] std::uint32_t free_slots() const noexcept { return fault_ == nullptr ? slots() - (next_ - tokens_head_) : 0; }

  Ring ring_;
  DmaMemory headers_, tables_;       // by slot; `tables_` is empty without indirect descriptors
  std::unique_ptr<void*[]> tokens_;  // by slot
  std::unique_ptr<bool[]> early_;    // by slot: used before an older frame
  std::uint32_t slot_mask_ = 0, frame_bytes_max_ = 0;
  std::uint64_t features_ = 0;
  bool room_wanted_ = false, crowded_ = false;

  // Frames are numbered. A number's low bits are its slot, and its position in the available ring.
  std::uint32_t next_ = 0;         // next frame to queue
  std::uint32_t run_end_ = 0;      // `transmit_alike` queues the frames before this one
  std::uint32_t notified_ = 0;     // the device may use all frames before this one
  std::uint32_t clean_ = 0;        // oldest frame that the device may still read
  std::uint32_t tokens_head_ = 0;  // oldest frame whose token was not returned
  std::uint32_t early_count_ = 0;
  Alike alike_;
  std::uint32_t bytes_unflushed_ = 0, segments_unflushed_ = 0;
  const char* fault_ = nullptr;

  log::Traffic& traffic_;
  TransmitCounters counters_;
};

}  // namespace neap::virtio
