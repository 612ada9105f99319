// SPDX-License-Identifier: BSL-1.0
#include "net/outgoing_segment.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "net/payload_reference.hpp"

namespace neap::net {

constinit thread_local OutgoingSegment::Spare OutgoingSegment::spare_;

namespace {

void release_piece(void* object) noexcept { OutgoingSegment::release(*static_cast<OutgoingSegment*>(object)); }

}  // namespace

OutgoingSegment* OutgoingSegment::make_new(std::size_t size_class) noexcept {
  void* const memory = std::malloc(object_bytes(size_class));
  if (memory == nullptr) return nullptr;
  auto* const object = new (memory) OutgoingSegment;
  object->size_class = static_cast<std::uint8_t>(size_class);
  return object;
}

OutgoingSegment* OutgoingSegment::make_large(std::uint32_t bytes) noexcept {
  void* const memory = std::malloc(sizeof(OutgoingSegment) + bytes);
  if (memory == nullptr) return nullptr;
  auto* const object = new (memory) OutgoingSegment;
  object->size_class = large_class;
  object->initialise(bytes);
  return object;
}

OutgoingSegment* OutgoingSegment::make_chain(Buffer&& data) noexcept {
  require(!data.empty(), "a segment of referenced bytes has some");
  OutgoingSegment* const object = make(sizeof(Buffer));
  if (object == nullptr) return nullptr;
  object->bytes = static_cast<std::uint32_t>(data.bytes());
  new (object->payload()) Buffer(std::move(data));
  object->kind = Kind::chain;
  return object;
}

OutgoingSegment* OutgoingSegment::make_envelope(OutgoingSegment& inner) noexcept {
  OutgoingSegment* const object = make(sizeof(OutgoingSegment*));
  if (object == nullptr) return nullptr;
  new (object->payload()) OutgoingSegment*(&inner);
  object->kind = Kind::envelope;
  object->bytes = inner.bytes;
  ++inner.references;
  return object;
}

[[gnu::noinline]] void OutgoingSegment::give_back_slowly(OutgoingSegment& object) noexcept {
  if (object.kind != Kind::inside) drop_payload(object);
  if (object.size_class > frame_class) return free(object);
  const std::size_t bytes = spare_.bytes + object_bytes(object.size_class);
  if (bytes > spare_bytes_max) return free(object);
  spare_.bytes = bytes;
  object.next = std::exchange(spare_.first[object.size_class], &object);
}

void OutgoingSegment::drop_payload(OutgoingSegment& object) noexcept {
  if (object.kind == Kind::chain) {
    object.data().~Buffer();
  } else {
    release(*object.inner());
  }
  object.kind = Kind::inside;
}

void OutgoingSegment::free(OutgoingSegment& object) noexcept { std::free(&object); }

unsigned OutgoingSegment::pieces_of(std::span<TransmitPiece> pieces) noexcept {
  OutgoingSegment& holder = kind == Kind::envelope ? *inner() : *this;
  pieces[0] = {.data = frame_begin(), .bytes = headers_bytes};
  if (holder.kind == Kind::inside) {
    if (&holder == this) {
      pieces[0].bytes += bytes;
      return 1;
    }
    if (bytes == 0) return 1;
    if (pieces.size() < 2) return 0;
    pieces[1] = {.data = holder.payload(), .bytes = bytes};
    return 2;
  }
  unsigned count = 1;
  for (const Buffer::Piece* piece = holder.data().first(); piece != nullptr; piece = piece->next) {
    if (piece->bytes == 0) continue;
    if (count == pieces.size()) return 0;
    pieces[count++] = {.data = piece->data, .bytes = piece->bytes};
  }
  return count;
}

void OutgoingSegment::copy_payload(std::uint32_t at, std::span<std::byte> to) noexcept {
  require(at <= bytes && to.size() <= bytes - at, "a part of a segment's payload is copied", at);
  if (kind == Kind::inside) {
    std::memcpy(to.data(), payload() + at, to.size());
    return;
  }
  for (const Buffer::Piece* piece = data().first(); piece != nullptr && !to.empty(); piece = piece->next) {
    if (at >= piece->bytes) {
      at -= piece->bytes;
      continue;
    }
    const std::size_t part = std::min<std::size_t>(to.size(), piece->bytes - at);
    std::memcpy(to.data(), piece->data + at, part);
    to = to.subspan(part);
    at = 0;
  }
}

Buffer OutgoingSegment::as_buffer(OutgoingSegment& segment) noexcept {
  if (segment.kind == Kind::chain) {
    Buffer data = std::move(segment.data());
    release(segment);
    return data;
  }
  static_assert(sizeof(Buffer::Piece) <= headroom_bytes);
  return Buffer(*new (segment.headroom.data())
                    Buffer::Piece{.data = segment.payload(), .bytes = segment.bytes, .release = &release_piece, .owner = &segment});
}

tcp::SentSegment* OutgoingSegment::split(tcp::SentSegment& segment, std::uint32_t first_bytes) noexcept {
  OutgoingSegment& whole = of(segment);
  if (whole.references != 1) return nullptr;
  if (whole.kind == Kind::chain) {
    Buffer first;
    if (!take_front(whole.data(), first_bytes, first)) return nullptr;
    Buffer rest = std::move(whole.data());
    OutgoingSegment* const second = make_chain(std::move(rest));
    if (second == nullptr) {
      first.append(std::move(rest));
      whole.data() = std::move(first);
      return nullptr;
    }
    whole.data() = std::move(first);
    return second;
  }
  const std::uint32_t rest_bytes = whole.bytes - first_bytes;
  OutgoingSegment* const second = make_any(rest_bytes);
  if (second == nullptr) return nullptr;
  std::memcpy(second->payload(), whole.payload() + first_bytes, rest_bytes);
  return second;
}

void OutgoingSegment::trim() noexcept {
  for (OutgoingSegment*& first : spare_.first) {
    while (first != nullptr) free(*std::exchange(first, static_cast<OutgoingSegment*>(first->next)));
  }
  spare_.bytes = 0;
  if (spare_.open != nullptr) free(*std::exchange(spare_.open, nullptr));
}

}  // namespace neap::net
