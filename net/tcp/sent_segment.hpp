// SPDX-License-Identifier: BSL-1.0
// A segment that was sent and is not acknowledged.
//
// The sender's algorithms need little of a segment: its numbers, its time and some flags. The headers and the payload belong to the owner
// of the sender, whose object of a segment derives from this one. A long segment, which the card cuts into up to 64 KiB / MSS frames, is
// one object. It is split only if the peer has received a part of it, or if only a part may be sent again.
#pragma once

#include <cstdint>

namespace neap::net::tcp {

struct SentSegment {
  enum Flag : std::uint8_t {
    syn = 1 << 0,                 ///< takes a number before the payload
    fin = 1 << 1,                 ///< takes a number behind the payload
    sacked = 1 << 2,              ///< the peer has reported it by a SACK block
    lost = 1 << 3,                ///< believed to be lost, and not yet sent again
    retransmitted = 1 << 4,       ///< sent again, and this transmission is not believed to be lost
    ever_retransmitted = 1 << 5,  ///< sent more than once, so its acknowledgement does not tell a round trip (Karn)
  };

  SentSegment* next = nullptr;  ///< the segment with the next number
  std::uint32_t sequence = 0;   ///< of the SYN, or of the first byte
  std::uint32_t bytes = 0;      ///< of payload
  std::uint32_t sent_us = 0;    ///< time of the last transmission: low word of the boot clock in microseconds
  std::uint8_t flags = 0;       ///< of type Flag

  [[nodiscard]] bool has(unsigned any_of) const noexcept { return (flags & any_of) != 0; }
  void set(Flag flag) noexcept { flags = static_cast<std::uint8_t>(flags | flag); }
  void clear(unsigned these) noexcept { flags = static_cast<std::uint8_t>(flags & ~these); }
  /// The number behind the segment.
  [[nodiscard]] std::uint32_t end() const noexcept { return sequence + numbers(); }
  /// The sequence numbers that it takes.
  [[nodiscard]] std::uint32_t numbers() const noexcept { return bytes + (flags & syn) + ((flags & fin) >> 1); }
};

/// Given by the owner: moves the payload behind the first `first_bytes` (at least one, fewer than the segment has) to a new segment.
/// Returns the new segment, or null, with no change, without memory. The sender writes the SentSegment of both, and links the new one.
using SplitSegment = SentSegment* (*)(SentSegment& segment, std::uint32_t first_bytes) noexcept;

}  // namespace neap::net::tcp
