// SPDX-License-Identifier: BSL-1.0
#include "net/payload_reference.hpp"

#include "kernel/panic.hpp"
#include "net/object_pool.hpp"

namespace neap::net {

namespace {

constinit thread_local ObjectPool<PayloadReference> references;

}  // namespace

bool PayloadReference::share(Buffer::Piece& piece) noexcept {
  if (piece.release == nullptr || piece.release == &PayloadReference::drop) return true;
  PayloadReference* const reference = references.take(piece.release, piece.owner);
  if (reference == nullptr) return false;
  piece.release = &PayloadReference::drop;
  piece.owner = reference;
  return true;
}

void PayloadReference::drop(void* reference) noexcept {
  auto* const self = static_cast<PayloadReference*>(reference);
  require(self->count_ > 0, "no more references to payload are dropped than are held");
  if (--self->count_ > 0) return;
  const Buffer::Release release = self->release_;
  void* const owner = self->owner_;
  references.give_back(self);
  release(owner);
}

// The front of a cut piece gets a new header. The rest keeps the piece's own header, which may be in the block that the last reference
// frees.
bool take_front(Buffer& from, std::uint32_t bytes, Buffer& to) noexcept {
  require(bytes < from.bytes(), "a part of a buffer is taken", bytes);
  std::uint32_t whole_bytes = 0;
  Buffer::Piece* cut = from.first();
  for (; cut->bytes <= bytes - whole_bytes; cut = cut->next) whole_bytes += cut->bytes;
  Buffer front;
  const std::uint32_t part = bytes - whole_bytes;
  if (part != 0) {
    if (!PayloadReference::share(*cut)) return false;
    if (cut->release != nullptr) static_cast<PayloadReference*>(cut->owner)->hold();
    front = Buffer::reference({cut->data, part}, cut->release, cut->owner);
    if (front.empty()) return false;  // `reference` has dropped the reference
  }
  from.move_pieces(whole_bytes, to);
  if (part == 0) return true;
  to.append(std::move(front));
  from.drop_front(part);
  return true;
}

void trim_payload_references() noexcept { references.trim(); }

}  // namespace neap::net
