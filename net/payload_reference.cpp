// SPDX-License-Identifier: BSL-1.0
#include "net/payload_reference.hpp"

#include "kernel/panic.hpp"
#include "lwip/pbuf.h"
#include "net/lwip/lwip_hooks.h"
#include "net/object_pool.hpp"

namespace neap::net {

namespace {

/// An lwIP pbuf that refers to a part of a `Buffer::Piece`.
struct ReferencePbuf {
  pbuf_custom custom;  // MUST be first: lwIP frees the object by this address
  PayloadReference* reference;
};

constinit thread_local ObjectPool<PayloadReference> references;
constinit thread_local ObjectPool<ReferencePbuf, 4096> pbufs;
constinit thread_local PayloadReference* writing = nullptr;

void pbuf_freed(pbuf* freed) noexcept {
  auto* const own = reinterpret_cast<ReferencePbuf*>(freed);
  PayloadReference* const reference = own->reference;
  pbufs.give_back(own);
  if (reference != nullptr) PayloadReference::drop(reference);
}

/// Returns a pbuf for `bytes` at `data`, which holds `reference` unless that is null; null without memory.
pbuf* make_pbuf(const void* data, std::uint32_t bytes, PayloadReference* reference) noexcept {
  ReferencePbuf* const own = pbufs.take();
  if (own == nullptr) return nullptr;
  own->custom.custom_free_function = &pbuf_freed;
  own->reference = reference;
  if (reference != nullptr) reference->hold();
  // PBUF_ROM: the data does not change, so lwIP need not copy it into the queue of packets that wait for a neighbour's address.
  const auto length = static_cast<u16_t>(bytes);
  return pbuf_alloced_custom(PBUF_RAW, length, PBUF_ROM, &own->custom, const_cast<void*>(data), length);
}

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

PayloadReference::Writing::Writing(const Buffer::Piece& piece) noexcept {
  require(piece.release == nullptr || piece.release == &PayloadReference::drop, "payload is shared before lwIP refers to it", piece.bytes);
  writing = piece.release == nullptr ? nullptr : static_cast<PayloadReference*>(piece.owner);
}
PayloadReference::Writing::~Writing() { writing = nullptr; }

pbuf* refer_to(const std::byte* data, std::uint32_t bytes) noexcept { return make_pbuf(data, bytes, nullptr); }

pbuf* refer_to(Buffer::Piece& piece, std::uint32_t bytes) noexcept {
  if (!PayloadReference::share(piece)) return nullptr;
  return make_pbuf(piece.data, bytes, piece.release == nullptr ? nullptr : static_cast<PayloadReference*>(piece.owner));
}

void trim_payload_references() noexcept {
  references.trim();
  pbufs.trim();
}

}  // namespace neap::net

extern "C" pbuf* neap_lwip_write_reference(const void* data, u16_t bytes) { return neap::net::make_pbuf(data, bytes, neap::net::writing); }
