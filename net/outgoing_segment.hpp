// SPDX-License-Identifier: BSL-1.0
// A segment as one object.
//
// lwIP keeps a sent segment as three objects (tcp_seg, pbuf, payload), each with its own allocation. A reply that fits one frame needs one:
// this object holds lwIP's two structures, the headers and the payload. The payload is written once, into the memory that the card reads.
// lwIP sees an ordinary segment, so it retransmits, splits and frees the segment as any other (lwip-patches/0025). A long segment, which
// the card cuts up, has its payload in further pbufs (lwip-patches/0027). Internal to net/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernel/panic.hpp"
#include "lwip/pbuf.h"
#include "lwip/priv/tcp_priv.h"
#include "net/buffer.hpp"
#include "net/segment_headers.hpp"

namespace neap::net {

struct OutgoingSegment {
  static constexpr std::size_t frame_object_bytes = 1600;  ///< of an object whose payload the open frame has
  static constexpr std::size_t payload_bytes_max = 1464;   ///< in this object; a long segment has further buffers behind it

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
  /// Returns the room for the payload of the core's open frame, an object for `TCP_MSS` bytes; empty without memory.
  [[nodiscard]] static std::span<std::byte> frame() noexcept;
  /// Returns the object of the open frame as one with `bytes` of payload. MUST follow a call of `frame` that did not fail.
  [[nodiscard]] static OutgoingSegment& take_frame(std::size_t bytes) noexcept;
  /// Returns the payload as a piece of a Buffer. The piece is in the place of the headers, and releasing it releases the object.
  [[nodiscard]] Buffer::Piece& as_piece() noexcept;
  /// The object of a segment with the flag TF_SEG_IN_PBUF.
  [[nodiscard]] static OutgoingSegment& of(tcp_seg& segment) noexcept { return *reinterpret_cast<OutgoingSegment*>(segment.p); }
  /// Releases a segment that lwIP no longer keeps. The card MAY still read it.
  static void release(tcp_seg& segment) noexcept {
    if (is_object(segment)) [[likely]] {
      give_back(of(segment));
    } else {
      tcp_seg_free(&segment);
    }
  }
  /// As `release`, if the segment is one object and none follows it, which is nearly always so. Otherwise returns false, with no effect.
  [[nodiscard]] static bool release_alone(tcp_seg& segment) noexcept {
    if (segment.next != nullptr || !is_object(segment)) return false;
    give_back(of(segment));
    return true;
  }
  /// Makes an object without references a spare one.
  static void give_back(OutgoingSegment& object) noexcept;
  /// Returns this core's spare objects to malloc (for tests that look for leaks).
  static void trim() noexcept;

 private:
  /// An object of class c has 320 + 256 c bytes, which the heap (kernel/memory/size_classes.hpp) rounds up by at most a ninth.
  static constexpr std::size_t smallest_bytes = 320, step_bytes = 256, classes = 6;
  /// Limit of a core's spare objects of all classes together. Further ones are returned to malloc, so that a burst of replies does not
  /// occupy memory for ever. An event takes at most 64 frames, whose short replies need 20 KiB.
  static constexpr std::size_t spare_bytes_max = std::size_t{32} * 1024;
  /// True if nothing but this object belongs to the segment, and the card no longer reads it.
  [[nodiscard]] static bool is_object(const tcp_seg& segment) noexcept {
    return (segment.flags & TF_SEG_IN_PBUF) != 0 && segment.p->ref == 1 && segment.p->next == nullptr;
  }
  static constexpr std::size_t frame_class = classes - 1;  ///< of the open frame
  static_assert(smallest_bytes + frame_class * step_bytes == frame_object_bytes);
  struct Spare {
    std::array<OutgoingSegment*, classes> first{};
    OutgoingSegment* open = nullptr;  ///< the open frame; a released object of its class becomes the next one
    std::size_t bytes = 0;
  };
  static constinit thread_local Spare spare_;

  /// Makes it an unsent segment with one reference, whose length is still to be set.
  void initialise() noexcept {
    custom.pbuf.next = nullptr;
    custom.pbuf.payload = headers.to_mac;
    custom.pbuf.ref = 1;
    segment.next = nullptr;
    segment.acked = 0;
  }
  void set_payload_bytes(std::size_t bytes) noexcept {
    custom.pbuf.len = custom.pbuf.tot_len = static_cast<u16_t>(SegmentHeaders::bytes + bytes);
    segment.len = static_cast<u16_t>(bytes);
  }
  static constexpr std::size_t object_bytes(std::size_t size_class) noexcept { return smallest_bytes + size_class * step_bytes; }
  [[nodiscard]] static OutgoingSegment* make_new(std::size_t size_class) noexcept;
  static void free(OutgoingSegment& object) noexcept;
};
static_assert(offsetof(OutgoingSegment, headers) % 8 == 0);

inline OutgoingSegment* OutgoingSegment::make(std::size_t bytes) noexcept {
  constexpr std::size_t smallest_payload_bytes = smallest_bytes - sizeof(OutgoingSegment);
  static_assert(sizeof(OutgoingSegment) % 8 == 0 && smallest_payload_bytes + (classes - 1) * step_bytes >= payload_bytes_max);
  require(bytes <= payload_bytes_max, "a segment fits its object", bytes);
  const std::size_t size_class = (bytes + step_bytes - 1 - smallest_payload_bytes % step_bytes) / step_bytes;
  OutgoingSegment* object = spare_.first[size_class];
  if (object != nullptr) [[likely]] {
    spare_.first[size_class] = object->next_free;
    spare_.bytes -= object_bytes(size_class);
  } else {
    object = make_new(size_class);
    if (object == nullptr) return nullptr;
  }
  object->initialise();
  object->set_payload_bytes(bytes);
  return object;
}

inline std::span<std::byte> OutgoingSegment::frame() noexcept {
  if (spare_.open == nullptr) {
    spare_.open = make(TCP_MSS);
    if (spare_.open == nullptr) [[unlikely]]
      return {};
  }
  return {spare_.open->payload(), TCP_MSS};
}

inline OutgoingSegment& OutgoingSegment::take_frame(std::size_t bytes) noexcept {
  require(spare_.open != nullptr && bytes - 1 < TCP_MSS, "the open frame is sent, with a byte or more", bytes);
  OutgoingSegment& object = *std::exchange(spare_.open, nullptr);
  object.set_payload_bytes(bytes);
  return object;
}

inline void OutgoingSegment::give_back(OutgoingSegment& object) noexcept {
  if (object.size_class == frame_class && spare_.open == nullptr) {
    object.initialise();
    spare_.open = &object;
    return;
  }
  const std::size_t bytes = spare_.bytes + object_bytes(object.size_class);
  if (bytes > spare_bytes_max) [[unlikely]]
    return free(object);
  spare_.bytes = bytes;
  object.next_free = std::exchange(spare_.first[object.size_class], &object);
}

}  // namespace neap::net
