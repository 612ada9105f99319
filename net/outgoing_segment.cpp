// SPDX-License-Identifier: BSL-1.0
#include "net/outgoing_segment.hpp"

#include <cstdlib>
#include <new>

namespace neap::net {

constinit thread_local OutgoingSegment::Spare OutgoingSegment::spare_;

namespace {

void pbuf_freed(pbuf* freed) noexcept {
  auto* const object = reinterpret_cast<OutgoingSegment*>(freed);
  object->segment.flags = TF_SEG_IN_PBUF;  // a long one has a further flag
  OutgoingSegment::give_back(*object);
}

void release_piece(void* object) noexcept { OutgoingSegment::give_back(*static_cast<OutgoingSegment*>(object)); }

}  // namespace

OutgoingSegment* OutgoingSegment::make_new(std::size_t size_class) noexcept {
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

void OutgoingSegment::free(OutgoingSegment& object) noexcept { std::free(&object); }

Buffer::Piece& OutgoingSegment::as_piece() noexcept {
  return *new (&piece) Buffer::Piece{.data = payload(), .bytes = segment.len, .release = &release_piece, .owner = this};
}

void OutgoingSegment::trim() noexcept {
  for (OutgoingSegment*& first : spare_.first) {
    while (first != nullptr) free(*std::exchange(first, first->next_free));
  }
  spare_.bytes = 0;
  if (spare_.open != nullptr) free(*std::exchange(spare_.open, nullptr));
}

}  // namespace neap::net
