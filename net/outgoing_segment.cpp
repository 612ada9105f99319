// SPDX-License-Identifier: BSL-1.0
#include "net/outgoing_segment.hpp"

#include <array>
#include <cstdlib>
#include <new>
#include <utility>

#include "kernel/panic.hpp"

namespace neap::net {

namespace {

/// An object of class c has 320 + 256 c bytes, so that the heap (kernel/memory/size_classes.hpp) rounds it up by at most a seventh.
constexpr std::size_t smallest_bytes = 320, step_bytes = 256, classes = 6;
/// Limit of a core's free objects of all classes together. Further ones are returned to malloc, so that a burst of replies does not occupy
/// memory for ever. An event takes at most 64 frames, whose short replies need 20 KiB.
constexpr std::size_t spare_bytes_max = std::size_t{32} * 1024;
constexpr std::size_t smallest_payload_bytes = smallest_bytes - sizeof(OutgoingSegment);

static_assert(sizeof(OutgoingSegment) % 8 == 0 &&
              smallest_payload_bytes + (classes - 1) * step_bytes >= OutgoingSegment::payload_bytes_max);
static_assert(offsetof(OutgoingSegment, headers) % 8 == 0);

struct FreeLists {
  std::array<OutgoingSegment*, classes> first{};
  std::size_t bytes = 0;
};
constinit thread_local FreeLists spare;

constexpr std::size_t object_bytes(std::size_t size_class) noexcept { return smallest_bytes + size_class * step_bytes; }

void give_back(OutgoingSegment* object) noexcept {
  const std::size_t bytes = spare.bytes + object_bytes(object->size_class);
  if (bytes > spare_bytes_max) [[unlikely]] {
    std::free(object);
    return;
  }
  spare.bytes = bytes;
  object->next_free = std::exchange(spare.first[object->size_class], object);
}

void pbuf_freed(pbuf* freed) noexcept {
  auto* const object = reinterpret_cast<OutgoingSegment*>(freed);
  object->segment.flags = TF_SEG_IN_PBUF;  // a long one has a further flag
  give_back(object);
}

OutgoingSegment* make_new(std::size_t size_class) noexcept {
  void* const memory = std::malloc(object_bytes(size_class));
  if (memory == nullptr) return nullptr;
  auto* const object = new (memory) OutgoingSegment;
  object->size_class = size_class;
  object->custom.custom_free_function = &pbuf_freed;
  // PBUF_RAM: the bytes are behind the pbuf, and do not change while a neighbour's address is awaited.
  pbuf_alloced_custom(PBUF_RAW, 0, PBUF_RAM, &object->custom, nullptr, 0);
  object->segment.p = &object->custom.pbuf;
  object->segment.flags = TF_SEG_IN_PBUF;
  object->segment.tcphdr = reinterpret_cast<tcp_hdr*>(&object->headers.from_port);
  return object;
}

}  // namespace

OutgoingSegment* OutgoingSegment::make(std::size_t bytes) noexcept {
  require(bytes <= payload_bytes_max, "a segment fits its object", bytes);
  const std::size_t size_class = (bytes + step_bytes - 1 - smallest_payload_bytes % step_bytes) / step_bytes;
  OutgoingSegment* object = spare.first[size_class];
  if (object != nullptr) [[likely]] {
    spare.first[size_class] = object->next_free;
    spare.bytes -= object_bytes(size_class);
  } else {
    object = make_new(size_class);
    if (object == nullptr) return nullptr;
  }
  pbuf& buffer = object->custom.pbuf;
  buffer.next = nullptr;
  buffer.payload = object->headers.to_mac;
  buffer.len = buffer.tot_len = static_cast<u16_t>(SegmentHeaders::bytes + bytes);
  buffer.ref = 1;
  object->segment.next = nullptr;
  object->segment.len = static_cast<u16_t>(bytes);
  object->segment.acked = 0;
  return object;
}

namespace {
void release_piece(void* object) noexcept { give_back(static_cast<OutgoingSegment*>(object)); }
}  // namespace

Buffer::Piece& OutgoingSegment::as_piece() noexcept {
  return *new (&piece) Buffer::Piece{.data = payload(), .bytes = segment.len, .release = &release_piece, .owner = this};
}

void OutgoingSegment::release(tcp_seg& segment) noexcept {
  pbuf& buffer = *segment.p;
  if ((segment.flags & TF_SEG_IN_PBUF) != 0 && buffer.ref == 1 && buffer.next == nullptr) [[likely]] {
    give_back(reinterpret_cast<OutgoingSegment*>(&buffer));
  } else {
    tcp_seg_free(&segment);
  }
}

void OutgoingSegment::trim() noexcept {
  for (OutgoingSegment*& first : spare.first) {
    while (first != nullptr) std::free(std::exchange(first, first->next_free));
  }
  spare.bytes = 0;
}

}  // namespace neap::net
