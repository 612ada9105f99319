// SPDX-License-Identifier: BSL-1.0
// A transmit queue: writes descriptors for the pieces of frames, and returns the frames' tokens to the stack on TX completion.
//
// Frames of one event are queued one by one, and one tail write notifies the card of all frames (`flush`). The card reports completions
// only for descriptors with the RS bit. RS is set in the last descriptor of a flush and, in a long flush, in one of every
// `report_interval_descriptors`, so that a long burst frees the ring early. `reclaim` processes these reports by DD bit and never waits.
// `deliver` then passes completions to the stack as the tokens that came with the frames, in the order in which the frames were queued.
// `reclaim` and `deliver` are separate because `transmit` may reclaim when the ring is full, but must not call the stack back.
//
// With head write-back (7.2.3.5.2) the card writes the ring's head instead of DD bits, and `reclaim` processes reports up to this head. A
// head is valid only between the oldest descriptor that the card may still read and the last tail. Any other head is counted and ignored,
// because it would free buffers in use.
//
// Offloads that differ from frame to frame use context descriptors. The card keeps two for each queue (82599 datasheet 7.2.3.2.3). One is
// for frames with checksums, the other for TSO. A context is written only when it changes.
//
// Most frames of an event have one piece and the same offload as the frame before. So `transmit`, which makes all checks, stores their
// result for that offload. `begin_run` computes a run: the number of descriptors for which no other condition (room, reports, the ring's
// end) needs a check. Within a run `transmit_alike` only compares offload and length. That takes 57 instructions a frame instead of 419
// (`neap bench driver`, transmit, batch 32). `flush` closes a run. The next event continues it (`reopen_run`), because descriptors that
// were free stay free, so most events need no `begin_run`.
//
// All calls MUST come from the queue's core.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "drivers/intel_descriptor_ring.hpp"
#include "drivers/ixgbe/counters.hpp"
#include "drivers/ixgbe/queue_options.hpp"
#include "drivers/ixgbe/register_access.hpp"
#include "kernel/net_device.hpp"

namespace neap::ixgbe {

class TransmitQueue {
 public:
  /// For a frame, the card accepts 40 descriptors minus two and minus WTHRESH (7.2.1.1), including a context.
  static constexpr std::uint32_t frame_descriptors_max = 40 - 2;
  /// 16 KiB for each descriptor: the length field allows more, but no known driver uses more.
  static constexpr std::uint32_t descriptor_bytes_max = 16 * 1024;
  static constexpr std::uint32_t tso_bytes_max = 64 * 1024;
  /// A new descriptor begins with each piece of a frame, and after each 16 KiB of a piece. This number of pieces fits for every WTHRESH.
  static constexpr std::uint32_t pieces_max =
      frame_descriptors_max - QueueOptions::write_back_threshold_max - 1 - tso_bytes_max / descriptor_bytes_max;
  static constexpr std::uint32_t report_interval_descriptors = 32;

  /// Frames are counted in `traffic`, which MUST outlive the queue.
  TransmitQueue(Registers registers, unsigned index, log::Traffic& traffic) noexcept
      : registers_(registers), index_(index), traffic_(traffic) {}

  /// Allocates memory for a ring as `options` say. The next `program` uses it. Errors: `invalid`, `out_of_memory`; then nothing has
  /// changed.
  [[nodiscard]] Result<void> prepare(const QueueOptions& options);

  /// Frees the memory of the last `prepare`, if no `program` has used it.
  void discard_prepared() noexcept { spare_ = {}; }

  /// Programs the ring's address (4.6.8, per queue). The queue MUST be off and empty.
  void program(const QueueOptions& options) noexcept;
  /// Turns the queue on or off (4.6.8). Errors: `timeout`, `closed`.
  [[nodiscard]] task<Result<void>> enable(bool on) const;
  /// While held, `transmit` returns `full`.
  void hold(bool on) noexcept {
    end_run();
    held_ = on;
  }
  /// Drops all frames not reported as sent, and returns their number. The queue MUST be off. The next `deliver` returns their tokens.
  std::uint32_t empty() noexcept;

  /// Queues a frame. Errors: `full`, `invalid`; then nothing was queued.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  /// Like `transmit`, but only within a run, for a frame of one piece with the same offload (without TSO) as the frame before. Returns
  /// false if it did nothing; the caller MUST then use `transmit`.
  [[nodiscard]] bool transmit_alike(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
    if (run_.next == run_.end || pieces.size() != 1 || std::bit_cast<std::uint64_t>(offload) != run_.offload) return false;
    const TransmitPiece piece = pieces.front();
    if (!run_.lengths.contain(piece.bytes) || !machine::in_direct_map(piece.data)) return false;
    const std::uint64_t lengths = descriptor::TransmitData::put_payload_length(piece.bytes) | piece.bytes;
    (run_.next++)->store(machine::physical_address(piece.data), run_.common | lengths);
    *run_.token++ = token;
    bytes_unflushed_ += piece.bytes;
    return true;
  }
  /// Ends the present run and begins another one.
  void begin_run() noexcept;
  /// Continues the run that the last flush closed, if it has not ended since.
  void reopen_run() noexcept { run_.end = run_.limit; }
  /// Notifies the card of all frames queued since the last flush.
  void flush() noexcept;

  /// True if the card has reported completions that `reclaim` has not processed.
  [[nodiscard]] bool ready() const noexcept { return reports_head_ != reports_tail_ && oldest_report_is_done(); }
  /// Frees the descriptors that the card has reported.
  void reclaim() noexcept;
  /// True if `deliver` must return tokens or report room.
  [[nodiscard]] bool deliverable() const noexcept { return tokens_head_ != tokens_sent_ || (room_wanted_ && has_room()); }
  /// Passes the tokens of sent frames to the stack in order, each once. Then reports room if a frame was refused and there is room again.
  void deliver(FrameReceiver& receiver) noexcept;
  /// Calls `reclaim`, and `deliver` if necessary.
  void reap(FrameReceiver& receiver) noexcept {
    if (reports_head_ != reports_tail_) reclaim();
    if (deliverable()) deliver(receiver);
  }

  /// Returns the number of descriptors queued or in flight.
  [[nodiscard]] std::uint32_t pending() const noexcept { return next_ - clean_; }
  /// True if a frame was refused and there is no room yet, or if half of the ring was in use when a run began.
  [[nodiscard]] bool crowded() const noexcept { return crowded_; }
  /// Returns a number that changes whenever the card makes progress.
  [[nodiscard]] std::uint32_t progress() const noexcept { return clean_; }
  void count_hang() noexcept { counters_.hangs.add(); }
  [[nodiscard]] const TransmitCounters& counters() const noexcept { return counters_; }

 private:
  /// The contiguous descriptors and tokens of a run. `next_` and `tokens_tail_` are updated when the run is closed or ends. `end` is
  /// `limit` in an open run, and `next` in a closed one.
  struct Run {
    Descriptor* begin = nullptr;
    Descriptor* next = nullptr;
    Descriptor* end = nullptr;
    Descriptor* limit = nullptr;
    void** token = nullptr;
    std::uint64_t offload = ~std::uint64_t{0};  // matches no offload
    std::uint64_t common = 0;                   // second word of the descriptor, without lengths
    FrameLengths lengths;
  };
  /// A descriptor with RS. Once it is done, all descriptors before `end` and all tokens before `tokens_end` are done.
  struct Report {
    std::uint32_t end, tokens_end;
  };
  using Context = std::array<std::uint64_t, 2>;
  struct Memory {
    DescriptorRing ring;
    std::unique_ptr<Report[]> reports;
    std::unique_ptr<void*[]> tokens;
    DmaMemory head;  // the card writes the ring's head here
  };

  [[nodiscard]] Context context_of(TransmitOffload offload) const noexcept;
  [[nodiscard]] std::uint32_t free_descriptors() const noexcept { return ring_.size() - 1 - pending(); }
  [[nodiscard]] bool has_room() const noexcept { return !held_ && free_descriptors() >= frame_descriptors_max_; }
  [[nodiscard]] std::uint32_t free_tokens() const noexcept { return ring_.size() - (tokens_tail_ - tokens_head_); }
  [[nodiscard]] bool has_room_for(std::uint32_t descriptors) const noexcept {
    return !held_ && descriptors <= free_descriptors() && free_tokens() != 0;
  }
  [[nodiscard]] bool half_in_use() const noexcept { return pending() >= ring_.size() / 2; }
  [[nodiscard]] bool is_done(std::uint32_t position) const noexcept {
    return (ring_.at(position)->load_status() & descriptor::TransmitWriteBack::descriptor_done_mask) != 0;
  }
  [[nodiscard]] bool oldest_report_is_done() const noexcept;
  void reclaim_up_to_head() noexcept;
  /// Returns the number of descriptors from `clean_` to the head that the card wrote; no value if the head is beyond `notified_`.
  [[nodiscard]] std::optional<std::uint32_t> done_by_head() const noexcept;
  void write_data(TransmitPieces pieces, std::uint64_t common) noexcept;
  void request_report() noexcept;
  void close_run() noexcept {
    const auto frames = static_cast<std::uint32_t>(run_.next - run_.begin);
    next_ += frames;
    tokens_tail_ += frames;
    run_.begin = run_.end = run_.next;
  }
  void end_run() noexcept {
    close_run();
    run_.limit = run_.next;
  }

  Registers registers_;
  DescriptorRing ring_;
  Memory spare_;  // memory of the last `prepare`
  unsigned index_;
  reg::Location<reg::Tdt> tail_register_ = reg::TDT(index_);
  std::uint32_t frame_bytes_max_ = 0;
  std::uint32_t vlan_ = 0;  // the tag of all frames; 0: none (7.2.3.2.4, VLE)
  std::uint32_t frame_descriptors_max_ = frame_descriptors_max;
  bool held_ = false;
  const std::uint32_t* written_head_ = nullptr;  // null: DD bits report completions

  std::uint32_t next_ = 0;      // next descriptor to write
  std::uint32_t clean_ = 0;     // oldest descriptor that the card may still read
  std::uint32_t notified_ = 0;  // the card was notified of all descriptors before this one
  std::uint32_t reported_ = 0;  // all descriptors before this one are covered by a report
  std::array<Context, 2> contexts_{};
  Run run_;
  // Bytes queued since the last flush, and segments that TSO adds to these frames. `tokens_flushed_` is `tokens_tail_` at that flush.
  std::uint32_t bytes_unflushed_ = 0, segments_unflushed_ = 0, tokens_flushed_ = 0;

  std::unique_ptr<Report[]> reports_;  // a ring; the oldest report is at reports_head_
  std::uint32_t reports_head_ = 0, reports_tail_ = 0;
  std::unique_ptr<void*[]> tokens_;  // a ring; `tokens_head_`: the oldest token not returned; `tokens_sent_`: the oldest not sent
  std::uint32_t tokens_head_ = 0, tokens_sent_ = 0, tokens_tail_ = 0;
  bool room_wanted_ = false, crowded_ = false;
  DmaMemory head_;

  log::Traffic& traffic_;
  TransmitCounters counters_;
};

}  // namespace neap::ixgbe
