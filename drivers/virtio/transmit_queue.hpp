// SPDX-License-Identifier: BSL-1.0
// A transmit queue: makes a chain of descriptors for each frame, and returns the frames' tokens to the stack when the device has used them.
//
// The ring is divided into slots, one for each frame in flight. A slot has its own descriptors and its own memory for the header that
// virtio puts before the frame (5.1.6). A frame of one piece takes two descriptors: the header and the piece. A frame of several pieces is
// one indirect descriptor (2.7.5.3). If the device does not offer these, slots have more descriptors, and the ring has fewer slots.
//
// virtio completes the checksum of TCP or UDP only. So the queue computes that of the IPv4 header, and for TSO it writes the lengths that
// `TransmitOffload` leaves out. The stack's pieces must not change, so the frame's headers are copied behind the header of virtio, in the
// same descriptor, and the second descriptor begins behind them.
//
// Tokens are returned in the order of the frames. The device may use chains in another order: then a frame waits for those before it.
//
// As in the 82599's driver, the checks of a frame are made once for all frames with the same offload: a run (`begin_run`) counts the slots
// that are free, and `transmit_alike` compares only offload and length.
//
// All calls MUST come from the queue's core.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "drivers/virtio/counters.hpp"
#include "drivers/virtio/ring.hpp"
#include "kernel/machine.hpp"
#include "kernel/net_device.hpp"

namespace neap::virtio {

class TransmitQueue {
 public:
  static constexpr std::uint32_t tso_bytes_max = 64 * 1024;  // 5.1.6.2: without the length of the headers; the stack stays below
  static constexpr std::uint32_t pieces_max_indirect = 31, pieces_max_direct = 7;

  /// Frames are counted in `traffic`, which MUST outlive the queue.
  explicit TransmitQueue(log::Traffic& traffic) noexcept : traffic_(traffic) {}

  /// Allocates a ring of `descriptors`. `features`: those that device and driver agree on. Errors: `invalid`, `out_of_memory`.
  [[nodiscard]] Result<void> prepare(std::uint32_t descriptors, std::uint64_t features, std::uint32_t frame_bytes_max);

  /// Queues a frame. Errors: `full`, `invalid`; then nothing was queued.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  /// As `transmit`, but only within a run, for a frame of one piece with the same offload as the frame before. Returns false if it did
  /// nothing; the caller MUST then use `transmit`.
  [[nodiscard]] bool transmit_alike(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
    if (run_.next == run_.end || pieces.size() != 1 || std::bit_cast<std::uint64_t>(offload) != run_.offload) return false;
    const TransmitPiece piece = pieces.front();
    if (piece.bytes - run_.bytes_min > run_.bytes_range || !machine::in_direct_map(piece.data)) return false;
    std::uint64_t address = machine::physical_address(piece.data);
    std::uint32_t bytes = piece.bytes;
    bytes_unflushed_ += bytes;
    std::byte* const header = std::exchange(run_.memory, run_.memory + slot_bytes);
    std::memcpy(header, &run_.header, sizeof run_.header);
    if (run_.copies) [[unlikely]] {
      copy_ipv4_header(header + frame_header_bytes, piece.data);
      address += ethernet_bytes + ipv4_bytes;
      bytes -= ethernet_bytes + ipv4_bytes;
    }
    Descriptor* const place = std::exchange(run_.next, run_.next + run_.stride);
    place[0].bytes = run_.head_bytes;  // the other fields never change
    store(place[1], address, bytes, 0, 0);
    *run_.offer++ = run_.id;
    run_.id = static_cast<std::uint16_t>(run_.id + run_.stride);
    *run_.token++ = token;
    return true;
  }
  /// Begins a run of frames with the offload of the frame that `transmit` handled last. It ends with the free slots, or with the ring.
  void begin_run() noexcept {
    close_run();
    const std::uint32_t slot = next_ & slot_mask_, first = slot << stride_shift_;
    run_.stride = 1U << stride_shift_;
    run_.begin = run_.next = ring_.descriptors() + first;
    run_.end = run_.next + (std::size_t{std::min(free_slots(), slots() - slot)} << stride_shift_);
    run_.memory = header_of(slot);
    run_.token = tokens_.get() + slot;
    run_.offer = ring_.offers() + ring_.slot(next_);
    run_.id = static_cast<std::uint16_t>(first);
  }
  /// Makes all frames queued since the last flush available to the device.
  void flush() noexcept;

  /// True if the device has used chains that `reclaim` has not processed.
  [[nodiscard]] bool ready() const noexcept { return ring_.used_end() != seen_ && fault_ == nullptr; }
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
  [[nodiscard]] std::uint32_t pieces_max() const noexcept { return indirect_ ? pieces_max_indirect : pieces_max_direct; }
  [[nodiscard]] const char* fault() const noexcept { return fault_; }
  [[nodiscard]] Ring& ring() noexcept { return ring_; }
  [[nodiscard]] const TransmitCounters& counters() const noexcept { return counters_; }

 private:
  static constexpr std::uint32_t slot_bytes = 256, header_at = 4;  // so the copy of a frame's headers is 16-byte aligned
  static constexpr std::uint32_t headers_bytes_max = slot_bytes - header_at - frame_header_bytes;
  static constexpr std::uint32_t table_bytes = (pieces_max_indirect + 1) * sizeof(Descriptor);
  static constexpr std::uint32_t ethernet_bytes = 14, ipv4_bytes = 20;

  /// The offload of the frame before, and what follows from it for frames of one piece.
  struct Run {
    // The next frame's place in each list, while the run is open. `next` is `end` in a closed run.
    Descriptor* begin = nullptr;
    Descriptor* next = nullptr;
    Descriptor* end = nullptr;
    std::byte* memory = nullptr;
    void** token = nullptr;
    std::uint16_t* offer = nullptr;
    std::uint32_t stride = 0;  // descriptors of a slot
    std::uint16_t id = 0;
    std::uint32_t bytes_min = ~0U, bytes_range = 0;  // of a frame for `transmit_alike`
    std::uint64_t offload = ~std::uint64_t{0};       // matches no offload
    std::uint32_t valid_min = 1, valid_max = 0;      // bytes of a frame
    FrameHeader header;
    std::uint32_t head_bytes = frame_header_bytes;  // of the slot's memory that the device reads
    bool copies = false;                            // the Ethernet and IPv4 headers are copied
  };

  /// Copies the headers of Ethernet and IPv4 (without options), and completes the checksum.
  static void copy_ipv4_header(std::byte* to, const std::byte* from) noexcept {
    std::memcpy(to, from, ethernet_bytes + ipv4_bytes);
    std::uint64_t first = 0, second = 0;
    std::uint32_t third = 0;
    std::memcpy(&first, from + ethernet_bytes, sizeof first);
    std::memcpy(&second, from + ethernet_bytes + 8, sizeof second);
    std::memcpy(&third, from + ethernet_bytes + 16, sizeof third);
    unsigned long long two = 0, all = 0;
    const unsigned char carry = __builtin_ia32_addcarryx_u64(0, first, second, &two);
    const unsigned char last = __builtin_ia32_addcarryx_u64(carry, two, third, &all);
    all += last;
    std::uint64_t sum = (all & 0xFFFF'FFFF) + (all >> 32);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum += sum >> 16;
    const auto checksum = static_cast<std::uint16_t>(~sum);
    std::memcpy(to + ethernet_bytes + 10, &checksum, sizeof checksum);
  }
  [[nodiscard]] std::byte* header_of(std::uint32_t slot) const noexcept {
    return headers_.start() + std::size_t{slot} * slot_bytes + header_at;
  }
  static void store(Descriptor& place, std::uint64_t address, std::uint32_t bytes, std::uint16_t flags, std::uint32_t next) noexcept {
    place.address = address;
    const std::uint64_t word = bytes | std::uint64_t{flags} << 32 | std::uint64_t{next} << 48;
    std::memcpy(&place.bytes, &word, sizeof word);
  }
  [[nodiscard]] Run run_of(TransmitOffload offload) const noexcept;
  /// Ends the run, and adds its frames to `next_`.
  void close_run() noexcept {
    next_ += static_cast<std::uint32_t>(run_.next - run_.begin) >> stride_shift_;
    run_.begin = run_.end = run_.next;
  }
  static void copy_headers(std::byte* to, std::uint32_t copied, TransmitPieces pieces, TransmitOffload offload,
                           std::uint32_t bytes) noexcept;
  /// Takes the frame in `slot`. Returns false if the device does not hold it.
  [[nodiscard]] bool take_early(std::uint32_t slot) noexcept;
  [[nodiscard]] std::uint32_t slots() const noexcept { return slot_mask_ + 1; }
  [[nodiscard]] std::uint32_t free_slots() const noexcept { return fault_ == nullptr ? slots() - (next_ - tokens_head_) : 0; }

  Ring ring_;
  DmaMemory headers_, tables_;
  std::unique_ptr<void*[]> tokens_;  // by slot
  std::unique_ptr<bool[]> early_;    // by slot: used before an older frame
  std::uint32_t slot_mask_ = 0, stride_shift_ = 1;
  bool indirect_ = false, checksums_ = false, room_wanted_ = false, crowded_ = false;
  std::uint8_t segments_ = 0;  // 1: TSO over IPv4, 2: over IPv6
  std::uint32_t frame_bytes_max_ = 0;

  // Frames are numbered; a number's low bits are its slot.
  std::uint32_t next_ = 0;         // next frame to queue; an open run has queued further ones
  std::uint32_t notified_ = 0;     // the device may use all frames before this one
  std::uint32_t clean_ = 0;        // oldest frame that the device may still read
  std::uint32_t tokens_head_ = 0;  // oldest frame whose token was not returned
  std::uint32_t early_count_ = 0;
  std::uint16_t seen_ = 0;  // next used entry
  Run run_;
  std::uint32_t bytes_unflushed_ = 0, segments_unflushed_ = 0;
  const char* fault_ = nullptr;

  log::Traffic& traffic_;
  TransmitCounters counters_;
};

}  // namespace neap::virtio
