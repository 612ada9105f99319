// SPDX-License-Identifier: BSL-1.0
// One transmit queue: from a frame's pieces to descriptors, and back to "the card has read it".
//
// Frames of one event are queued one by one and told to the card together (`flush`): one tail write. The card reports progress only where
// the RS bit asks for it: on the last descriptor of a flush, and every `report_interval` descriptors within one, so that a long burst frees
// the ring as it goes. `reclaim` walks these reports by DD bit and never waits; `deliver` then tells the stack, frame by frame in the order
// in which they were queued. The two are apart because `transmit` may reclaim when the ring is full, and must not call the stack back from
// within the stack's own call. With head write-back instead of DD bits (7.2.3.5.2), only the look at a report differs. A head counts only
// if it lies between the oldest descriptor that the card may still read and the last tail. Any other head is counted and ignored, since it
// would free buffers that the card still reads.
//
// Offloads that differ from frame to frame travel in context descriptors. The card keeps two for each queue (82599 datasheet 7.2.3.2.3);
// one serves frames with checksums, the other TSO, and either is written only when it changes.
//
// Most frames of an event ask for what the one before asked for, and lie in one piece. So `transmit`, which looks at everything, leaves
// behind what it made of the offload, and `begin_run` looks how far neither room nor a report nor the ring's end needs a thought. Within
// such a run `transmit_alike` has only to compare. A run ends at the latest with `flush`.
//
// Belongs to one core.
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
  /// The card takes 40 less two and less WTHRESH (7.2.1.1); one of them may be a context.
  static constexpr std::uint32_t frame_descriptors_max = 40 - 2;
  /// 16 KiB a descriptor: the length field would take more, but no driver is known to ask for more.
  static constexpr std::uint32_t descriptor_bytes_max = 16 * 1024;
  static constexpr std::uint32_t tso_bytes_max = 64 * 1024;
  /// Every piece of a frame may begin a descriptor, every 16 KiB in it another; whatever WTHRESH is.
  static constexpr std::uint32_t pieces_max =
      frame_descriptors_max - QueueOptions::write_back_threshold_max - 1 - tso_bytes_max / descriptor_bytes_max;
  static constexpr std::uint32_t report_interval_descriptors = 32;

  /// Adds to `traffic`, which outlives it.
  TransmitQueue(Registers registers, unsigned index, log::Traffic& traffic) noexcept
      : registers_(registers), index_(index), traffic_(traffic) {}

  /// Takes memory for a ring as `options` want it, which the queue uses from the next `program` on. On the queue's core. Errors: `invalid`,
  /// `out_of_memory`; then nothing has changed.
  [[nodiscard]] Result<void> prepare(const QueueOptions& options);

  /// Gives the memory of the last `prepare` back, if no `program` has used it.
  void forget_prepared() noexcept { spare_ = {}; }

  /// Tells the card where the ring is (4.6.8, per queue); the queue is off and empty.
  void program(const QueueOptions& options) noexcept;
  /// Turns the queue on or off (4.6.8). Errors: `timeout`, `closed`.
  [[nodiscard]] task<Result<void>> enable(bool on) const;
  /// While held, `transmit` says `full`.
  void hold(bool on) noexcept {
    end_run();
    held_ = on;
  }
  /// Forgets what the card has not reported, for a queue that is off; returns how many frames that were. The next `deliver` gives their
  /// tokens back.
  std::uint32_t empty() noexcept;

  /// Queues a frame. Errors: `full`, `invalid`; then nothing was queued.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  /// The same, for a frame of one piece that asks for what the last frame (without TSO) asked for, as long as a run lasts. False: nothing
  /// was done, and `transmit` will do.
  [[nodiscard]] bool transmit_alike(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
    if (run_.next == run_.end || pieces.size() != 1 || std::bit_cast<std::uint64_t>(offload) != run_.offload) return false;
    const TransmitPiece piece = pieces.front();
    if (piece.bytes - run_.bytes_min > run_.bytes_range || !machine::in_direct_map(piece.data)) return false;
    const std::uint64_t lengths = descriptor::TransmitData::put_payload_length(piece.bytes) | piece.bytes;
    (run_.next++)->store(machine::physical_address(piece.data), run_.common | lengths);
    *run_.token++ = token;
    bytes_untold_ += piece.bytes;
    return true;
  }
  void begin_run() noexcept;
  /// Tells the card about everything that was queued since the last time.
  void flush() noexcept;

  /// True if the card has reported progress that was not looked at yet.
  [[nodiscard]] bool ready() const noexcept { return reports_head_ != reports_tail_ && oldest_report_is_done(); }
  /// Frees the descriptors that the card has reported.
  void reclaim() noexcept;
  /// True if `deliver` has something to say.
  [[nodiscard]] bool deliverable() const noexcept { return tokens_head_ != tokens_sent_ || (room_wanted_ && has_room()); }
  /// Gives tokens of sent frames back, in order, each once; then says so if a frame was refused and there is room again.
  void deliver(FrameReceiver& receiver) noexcept;

  /// Descriptors that the card has been told of, or will be, and has not reported.
  [[nodiscard]] std::uint32_t pending() const noexcept { return next_ - clean_; }
  /// Changes whenever the card makes progress.
  [[nodiscard]] std::uint32_t progress() const noexcept { return clean_; }
  void count_hang() noexcept { counters_.hangs.add(); }

  [[nodiscard]] const TransmitCounters& counters() const noexcept { return counters_; }

 private:
  /// Descriptors and tokens of frames that are alike, side by side; `next_` and `tokens_tail_` learn of them when the run ends.
  struct Run {
    Descriptor* begin = nullptr;
    Descriptor* next = nullptr;
    Descriptor* end = nullptr;
    void** token = nullptr;
    std::uint64_t offload = ~std::uint64_t{0};  // none asks for that
    std::uint64_t common = 0;                   // second word of the descriptor, without lengths
    std::uint32_t bytes_min = 1;                // of a frame;
    std::uint32_t bytes_range = 0;              // and up to so many more
  };
  /// A descriptor with RS, and what is done once it is: all descriptors before `end`, all tokens before `tokens_end`.
  struct Report {
    std::uint32_t end;
    std::uint32_t tokens_end;
  };
  using Context = std::array<std::uint64_t, 2>;
  struct Memory {
    DescriptorRing ring;
    std::unique_ptr<Report[]> reports;
    std::unique_ptr<void*[]> tokens;
    DmaMemory head;  // where the card writes the ring's head
  };

  /// Least and most bytes of a frame with that offload; 1 and 0 if the card cannot do it.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> bytes_for(TransmitOffload offload) const noexcept;
  [[nodiscard]] Context context_of(TransmitOffload offload) const noexcept;
  [[nodiscard]] std::uint32_t free_descriptors() const noexcept { return ring_.size() - 1 - pending(); }
  [[nodiscard]] bool has_room() const noexcept { return !held_ && free_descriptors() >= frame_descriptors_max_; }
  [[nodiscard]] std::uint32_t free_tokens() const noexcept { return ring_.size() - (tokens_tail_ - tokens_head_); }
  [[nodiscard]] bool has_room_for(std::uint32_t descriptors) const noexcept {
    return !held_ && descriptors <= free_descriptors() && free_tokens() != 0;
  }
  [[nodiscard]] bool oldest_report_is_done() const noexcept;
  /// Descriptors from `clean_` to the head that the card wrote; nothing if that lies outside of what the card was told of.
  [[nodiscard]] std::optional<std::uint32_t> done_by_head() const noexcept;
  void write_data(TransmitPieces pieces, std::uint64_t common) noexcept;
  void ask_for_report() noexcept;
  void end_run() noexcept {
    const auto frames = static_cast<std::uint32_t>(run_.next - run_.begin);
    next_ += frames;
    tokens_tail_ += frames;
    run_.begin = run_.end = run_.next;
  }

  Registers registers_;
  DescriptorRing ring_;
  Memory spare_;  // what `prepare` took
  unsigned index_;
  std::uint32_t frame_bytes_max_ = 0;
  std::uint32_t vlan_ = 0;  // 7.2.3.2.4, VLE: the card inserts the context's tag
  std::uint32_t frame_descriptors_max_ = frame_descriptors_max;
  bool held_ = false;
  const std::uint32_t* written_head_ = nullptr;  // null: DD bits

  std::uint32_t next_ = 0;      // next descriptor to write
  std::uint32_t clean_ = 0;     // oldest that the card may still read
  std::uint32_t told_ = 0;      // the card knows the descriptors before this
  std::uint32_t reported_ = 0;  // descriptors before this are covered by a report
  std::array<Context, 2> contexts_{};
  Run run_;
  // Since the last flush: what was queued (a token is a frame), and what TSO will make of it in addition.
  std::uint32_t bytes_untold_ = 0, segments_untold_ = 0, tokens_told_ = 0;

  std::unique_ptr<Report[]> reports_;  // ring, oldest at reports_head_
  std::uint32_t reports_head_ = 0, reports_tail_ = 0;
  std::unique_ptr<void*[]> tokens_;  // ring: given back < tokens_head_ <= sent < tokens_sent_ <= queued < tokens_tail_
  std::uint32_t tokens_head_ = 0, tokens_sent_ = 0, tokens_tail_ = 0;
  bool room_wanted_ = false;
  DmaMemory head_;

  log::Traffic& traffic_;
  TransmitCounters counters_;
};

}  // namespace neap::ixgbe
