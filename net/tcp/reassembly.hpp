// SPDX-License-Identifier: BSL-1.0
// Segments that arrived out of order (RFC 9293, 3.10.7.4; RFC 2018; RFC 2883).
//
// After a loss, all further segments of the window wait for the missing one. A receiver that drops them makes the peer send them again, and
// one that does not report them makes the peer guess. So they are kept as ranges of adjacent bytes, and acknowledgements carry SACK blocks.
// Nearly every connection has no such segment, so an `OutOfOrder` is one null pointer then.
//
// A peer chooses the order, the overlaps and the sizes. The ranges are a sorted array, which is searched by bisection, with at most
// `ranges_max` entries. The caller bounds the memory. If a bound is reached, the range farthest from the next byte is dropped: RFC 2018, 8
// permits that, and the bytes needed first are kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "net/buffer.hpp"
#include "net/tcp/options.hpp"

namespace neap::net::tcp {

/// A part of the stream that may be followed by FIN.
struct StreamPart {
  std::uint32_t begin = 0;         ///< the sequence number of the first byte
  Buffer data;                     ///< may be empty if `fin`
  std::uint32_t memory_bytes = 0;  ///< the memory that `data` occupies
  bool fin = false;                ///< the peer sends no byte behind `data`
  bool copied = false;             ///< `data` occupies none of the card's buffers
};

/// The segments of one connection that are out of order, and the blocks that its next acknowledgements report.
class OutOfOrder {
 public:
  static constexpr std::size_t ranges_max = 256;

  struct Inserted {
    bool kept = false;                 ///< new bytes, or a new FIN, of the segment are kept
    bool duplicate = false;            ///< some of the segment's bytes had arrived before; the next acknowledgement reports them
    std::uint32_t ranges_dropped = 0;  ///< ranges dropped because of a bound
    std::uint32_t bytes_dropped = 0;   ///< the bytes of these ranges, or of the segment if it is not kept although it has new bytes
  };

  /// True if no range is kept and no duplicate has to be reported.
  [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }
  /// Returns the memory of all ranges, in bytes, including this object's own.
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return state_ == nullptr ? 0 : memory_of_state(); }
  [[nodiscard]] std::size_t ranges() const noexcept;

  /// Keeps a segment that begins behind `next`, the next byte in order, and ends in the window. Bytes that are there already are not
  /// replaced, unless the segment contains the whole range. Of several FINs, the first one counts, and bytes behind it are dropped.
  /// `memory_bytes_max` bounds `memory_bytes()`. `sack`: false if acknowledgements have no SACK blocks, so that duplicates do not wait for
  /// one.
  Inserted insert(StreamPart&& segment, std::uint32_t next, std::size_t memory_bytes_max, bool sack = true) noexcept;
  /// Records that the bytes from `begin` up to `end` have arrived twice (RFC 2883). For a segment before the next byte; `insert` does it
  /// for others.
  void report_duplicate(std::uint32_t begin, std::uint32_t end) noexcept;
  /// True if `take_next` returns bytes or FIN: bytes arrived in order up to `next`, without it. 3 instructions if there is no range.
  [[nodiscard]] bool has_next(std::uint32_t next) const noexcept { return state_ != nullptr && first_reaches(next); }
  /// The sequence number of a FIN that has arrived out of order.
  [[nodiscard]] std::optional<std::uint32_t> fin() const noexcept;
  /// Removes the first range, which contains `next` or begins there, and returns its bytes from `next` on. `has_next` MUST be true. The
  /// returned part is empty and without FIN if a segment in order has replaced the range.
  [[nodiscard]] StreamPart take_next(std::uint32_t next) noexcept;

  /// Writes the SACK blocks of an acknowledgement with the number `next`: first a duplicate (RFC 2883, 4), then the range of the segment
  /// that arrived last, then the others in the order of their last report (RFC 2018, 4). Returns their number. Duplicates are reported
  /// once.
  [[nodiscard]] std::size_t sack_blocks(std::uint32_t next, std::span<SequenceRange> blocks) noexcept;

  /// Drops all ranges, because memory is short. Returns the number of bytes.
  std::uint32_t drop_all() noexcept;
  /// Offers the payload of each range that may occupy the card's buffers for a copy, at most once: `Buffer copy(Buffer&& data,
  /// std::uint32_t& memory_bytes)`. It may return `data` itself, if there is no memory.
  template <class Copy>
  void compact(Copy copy) noexcept;

 private:
  struct Range {
    std::uint32_t begin = 0, end = 0;
    Buffer data;
    std::uint32_t memory_bytes = 0;
    bool copied = false;
  };
  struct State;
  struct Delete {
    void operator()(State* state) const noexcept;
  };

  [[nodiscard]] std::size_t memory_of_state() const noexcept;
  [[nodiscard]] bool first_reaches(std::uint32_t next) const noexcept;
  [[nodiscard]] std::span<Range> all_ranges() noexcept;
  [[nodiscard]] bool make_state() noexcept;
  void release_if_empty() noexcept;
  void count_memory() noexcept;

  std::unique_ptr<State, Delete> state_;
};

template <class Copy>
void OutOfOrder::compact(Copy copy) noexcept {
  for (Range& range : all_ranges()) {
    if (range.copied) continue;
    range.data = copy(std::move(range.data), range.memory_bytes);
    range.copied = true;
  }
  count_memory();
}

}  // namespace neap::net::tcp
