// SPDX-License-Identifier: BSL-1.0
// A segment as one object.
//
// lwIP keeps a sent segment as three objects (tcp_seg, pbuf, payload), each with its own allocation. A reply that fits one frame needs one:
// this object holds lwIP's two structures, the headers and the payload. The payload is written once, into the memory that the card reads.
// lwIP sees an ordinary segment, so it retransmits, splits and frees the segment as any other (lwip-patches/0025). A long segment, which
// the card cuts up, has its payload in further pbufs (lwip-patches/0027). Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lwip/pbuf.h"
#include "lwip/priv/tcp_priv.h"
#include "net/buffer.hpp"
#include "net/segment_headers.hpp"

namespace neap::net {

struct OutgoingSegment {
  static constexpr std::size_t payload_bytes_max = 1464;  ///< in this object; a long segment has further buffers behind it

  pbuf_custom custom;  // MUST be first: lwIP frees the object by this address
  tcp_seg segment;
  OutgoingSegment* next_free;
  std::uint64_t size_class;
  union {
    SegmentHeaders headers;  // lwIP's functions expect the bytes of a pbuf behind the pbuf
    Buffer::Piece piece;     // until the segment is sent: see `as_piece`
  };
  // the payload follows

  OutgoingSegment() noexcept {}  // `headers` and `piece` are written before they are used

  [[nodiscard]] std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }

  /// Returns an object for `bytes` of payload, at most `payload_bytes_max`; null without memory. `segment` and the pbuf are initialised,
  /// with one reference, as those of a segment whose headers are complete. The headers are not initialised.
  [[nodiscard]] static OutgoingSegment* make(std::size_t bytes) noexcept;
  /// The object of a segment with the flag TF_SEG_IN_PBUF.
  [[nodiscard]] static OutgoingSegment& of(tcp_seg& segment) noexcept { return *reinterpret_cast<OutgoingSegment*>(segment.p); }
  /// Returns the payload as a piece of a Buffer. The piece is in the place of the headers, and releasing it releases the object.
  [[nodiscard]] Buffer::Piece& as_piece() noexcept;
  /// Releases a segment that lwIP no longer keeps. The card MAY still read it.
  static void release(tcp_seg& segment) noexcept;
  /// Returns this core's spare objects to malloc (for tests that look for leaks).
  static void trim() noexcept;
};

}  // namespace neap::net
