// SPDX-License-Identifier: BSL-1.0
// A segment as one object.
//
// A reply that fits one frame needs one allocation: this object holds the sender's record of the segment, its headers and its payload. The
// payload is written once, into the memory that the card reads. The headers end where the payload begins, because the length of their
// options is known only when the segment is sent. A long segment, which the card cuts up, has its payload in a Buffer.
//
// The connection and the card each hold a reference. While the card reads a segment, its headers MUST NOT change. So a segment that is sent
// again meanwhile gets other headers: an envelope, which is an object without payload that refers to the segment. Internal to net/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "kernel/memory/size_classes.hpp"
#include "kernel/net_device.hpp"
#include "kernel/panic.hpp"
#include "net/buffer.hpp"
#include "net/segment_headers.hpp"
#include "net/segment_headers_ipv6.hpp"
#include "net/tcp/sent_segment.hpp"

namespace neap::net {

struct OutgoingSegment : tcp::SentSegment {
  /// The payload of a full segment without options, over Ethernet (RFC 9293, 3.7.1).
  static constexpr std::uint32_t frame_payload_bytes = 1460;
  static constexpr std::size_t frame_object_bytes = 1632;  ///< of an object whose payload the open frame has
  static constexpr std::size_t headroom_bytes = 128;       ///< two unused bytes, 74 bytes of headers (IPv6), 40 bytes of options

  enum class Kind : std::uint8_t {
    inside,    ///< the payload follows this object
    chain,     ///< `data()` has the payload
    envelope,  ///< the payload is that of `inner()`
  };

  std::uint16_t references = 1;     ///< of the connection, of the card and of envelopes
  std::uint16_t headers_bytes = 0;  ///< of the frame, as last written
  Kind kind = Kind::inside;
  std::uint8_t size_class = 0;
  alignas(8) std::array<std::byte, headroom_bytes> headroom;  // the headers, at its end; before that a piece: see `as_piece`
  // the payload, a Buffer or a pointer follows

  OutgoingSegment() noexcept {}  // NOLINT(modernize-use-equals-default): `headroom` is not cleared

  [[nodiscard]] std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  /// The payload of a segment of the kind `chain`.
  [[nodiscard]] Buffer& data() noexcept { return *std::launder(reinterpret_cast<Buffer*>(payload())); }
  [[nodiscard]] OutgoingSegment*& inner() noexcept { return *std::launder(reinterpret_cast<OutgoingSegment**>(payload())); }
  [[nodiscard]] SegmentHeaders& headers(std::size_t options_bytes) noexcept {
    return *reinterpret_cast<SegmentHeaders*>(payload() - options_bytes - sizeof(SegmentHeaders));
  }
  [[nodiscard]] SegmentHeaders6& headers_ipv6(std::size_t options_bytes) noexcept {
    return *reinterpret_cast<SegmentHeaders6*>(payload() - options_bytes - sizeof(SegmentHeaders6));
  }
  /// The first byte of the frame. The headers MUST be written.
  [[nodiscard]] std::byte* frame_begin() noexcept { return payload() - headers_bytes; }
  /// Writes the frame's pieces into `pieces`. Returns their number; 0 if there are more than `pieces` has room for.
  [[nodiscard]] unsigned pieces_of(std::span<TransmitPiece> pieces) noexcept;

  /// Copies payload from the byte at `at` on. The segment MUST have so many bytes.
  void copy_payload(std::uint32_t at, std::span<std::byte> to) noexcept;

  /// Returns an object for `bytes` of payload, at most `payload_bytes_max`; null without memory. It has one reference.
  [[nodiscard]] static OutgoingSegment* make(std::size_t bytes) noexcept;
  /// As `make`, for up to 64 KiB. Jumbo frames have more than `payload_bytes_max`.
  [[nodiscard]] static OutgoingSegment* make_any(std::uint32_t bytes) noexcept {
    return bytes <= payload_bytes_max ? make(bytes) : make_large(bytes);
  }
  /// Returns a segment with this payload, which MUST NOT be empty; null, with no change, without memory.
  [[nodiscard]] static OutgoingSegment* make_chain(Buffer&& data) noexcept;
  /// Returns a segment for up to 64 KiB of payload in one piece; null without memory.
  [[nodiscard]] static OutgoingSegment* make_large(std::uint32_t bytes) noexcept;
  /// Returns an object with other headers for a segment that the card still reads; null without memory.
  [[nodiscard]] static OutgoingSegment* make_envelope(OutgoingSegment& inner) noexcept;
  /// Returns the room for the payload of the core's open frame, `frame_payload_bytes`; empty without memory.
  [[nodiscard]] static std::span<std::byte> frame() noexcept;
  /// Returns the object of the open frame as one with `bytes` of payload. MUST follow a call of `frame` that did not fail.
  [[nodiscard]] static OutgoingSegment& take_frame(std::size_t bytes) noexcept;
  /// Returns the payload of a segment that was never sent. The result owns the object, which has no other owner from here on.
  [[nodiscard]] static Buffer as_buffer(OutgoingSegment& segment) noexcept;
  /// tcp::SplitSegment. Fails while the card reads the segment, because the card reads all its pieces.
  [[nodiscard]] static tcp::SentSegment* split(tcp::SentSegment& segment, std::uint32_t first_bytes) noexcept;

  /// Drops a reference. The last one frees the object.
  [[gnu::always_inline]] static void release(OutgoingSegment& object) noexcept {
    if (object.references == 1) [[likely]] {
      give_back(object);
    } else {
      --object.references;
    }
  }
  /// Drops a reference to each segment of a list.
  static void release_list(tcp::SentSegment* segment) noexcept {
    while (segment != nullptr) release(of(*std::exchange(segment, segment->next)));
  }
  [[nodiscard]] static OutgoingSegment& of(tcp::SentSegment& segment) noexcept { return static_cast<OutgoingSegment&>(segment); }
  /// The memory that the object occupies, without referenced bytes.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return size_class < classes ? heap_bytes_of_class[size_class] : sizeof(OutgoingSegment) + bytes;
  }
  /// Returns this core's spare objects to malloc (for tests that look for leaks).
  static void trim() noexcept;

  static constexpr std::size_t payload_bytes_max = frame_object_bytes - (8 + 4 + 4 + 4 + 12 + headroom_bytes);

 private:
  /// An object of class c has 352 + 256 c bytes, which the heap (kernel/memory/size_classes.hpp) rounds up by at most a ninth.
  static constexpr std::size_t smallest_bytes = 352, step_bytes = 256, classes = 6;
  static constexpr std::uint8_t large_class = classes;
  static constexpr std::array<std::uint16_t, classes> heap_bytes_of_class = [] {
    std::array<std::uint16_t, classes> bytes{};
    for (std::size_t i = 0; i < classes; ++i)
      bytes[i] = static_cast<std::uint16_t>(neap::memory::heap_bytes(smallest_bytes + i * step_bytes));
    return bytes;
  }();
  /// Limit of a core's spare objects of all classes together. Further ones are returned to malloc, so that a burst of replies does not
  /// occupy memory for ever. An event takes at most 64 frames, whose short replies need 22 KiB.
  static constexpr std::size_t spare_bytes_max = std::size_t{32} * 1024;
  static constexpr std::size_t frame_class = classes - 1;  ///< of the open frame
  static_assert(smallest_bytes + frame_class * step_bytes == frame_object_bytes);
  struct Spare {
    std::array<OutgoingSegment*, classes> first{};
    OutgoingSegment* open = nullptr;  ///< the open frame; a released object of its class becomes the next one
    std::size_t bytes = 0;
  };
  static constinit thread_local Spare spare_;

  void initialise(std::size_t payload_bytes) noexcept {
    next = nullptr;
    bytes = static_cast<std::uint32_t>(payload_bytes);
    flags = 0;
    references = 1;
    kind = Kind::inside;
  }
  static constexpr std::size_t object_bytes(std::size_t size_class) noexcept { return smallest_bytes + size_class * step_bytes; }
  [[nodiscard]] static OutgoingSegment* make_new(std::size_t size_class) noexcept;
  static void free(OutgoingSegment& object) noexcept;
  /// Makes an object without references a spare one: mostly the open frame.
  static void give_back(OutgoingSegment& object) noexcept;
  static void give_back_slowly(OutgoingSegment& object) noexcept;
  /// Releases the payload of a segment that is not of the kind `inside`.
  static void drop_payload(OutgoingSegment& object) noexcept;
};
static_assert(sizeof(OutgoingSegment) == 160 && OutgoingSegment::payload_bytes_max == 1472);

inline OutgoingSegment* OutgoingSegment::make(std::size_t bytes) noexcept {
  constexpr std::size_t smallest_payload_bytes = smallest_bytes - sizeof(OutgoingSegment);
  static_assert(smallest_payload_bytes + (classes - 1) * step_bytes >= payload_bytes_max);
  require(bytes <= payload_bytes_max, "a segment fits its object", bytes);
  const std::size_t size_class = (bytes + step_bytes - 1 - smallest_payload_bytes % step_bytes) / step_bytes;
  OutgoingSegment* object = spare_.first[size_class];
  if (object != nullptr) [[likely]] {
    spare_.first[size_class] = static_cast<OutgoingSegment*>(object->next);
    spare_.bytes -= object_bytes(size_class);
  } else {
    object = make_new(size_class);
    if (object == nullptr) return nullptr;
  }
  object->initialise(bytes);
  return object;
}

inline std::span<std::byte> OutgoingSegment::frame() noexcept {
  if (spare_.open == nullptr) {
    spare_.open = make(frame_payload_bytes);
    if (spare_.open == nullptr) [[unlikely]]
      return {};
  }
  return {spare_.open->payload(), frame_payload_bytes};
}

inline OutgoingSegment& OutgoingSegment::take_frame(std::size_t bytes) noexcept {
  require(spare_.open != nullptr && bytes - 1 < frame_payload_bytes, "the open frame is sent, with a byte or more", bytes);
  OutgoingSegment& object = *std::exchange(spare_.open, nullptr);
  object.bytes = static_cast<std::uint32_t>(bytes);
  return object;
}

[[gnu::always_inline]] inline void OutgoingSegment::give_back(OutgoingSegment& object) noexcept {
  if (object.size_class != frame_class || object.kind != Kind::inside || spare_.open != nullptr) return give_back_slowly(object);
  // As `initialise`. It has one reference already, and `take_frame` sets its bytes.
  object.next = nullptr;
  object.flags = 0;
  spare_.open = &object;
}

}  // namespace neap::net
