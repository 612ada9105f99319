// SPDX-License-Identifier: BSL-1.0
// Gathered bytes: received payload that an application does not release at once, copied from card buffers into smaller blocks.
//
// A segment of one byte occupies a card buffer of 2 KiB. If an application does not release such segments, they occupy a thousand times as
// much memory as the receive window allows. So when applications hold many of a core's card buffers, the stack copies payload into blocks
// and returns the buffers to the card. Adjacent pieces of a block are joined when one is appended to the other. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/events.hpp"
#include "net/buffer.hpp"

namespace neap::net {

class ConnectionState;

/// A block of gathered bytes. The bytes follow this header. The block is freed when no piece refers to it.
struct GatheredBlock {
  ConnectionState* connection = nullptr;
  std::uint32_t room_bytes = 0;  ///< bytes of the block after this header
  std::uint32_t used_bytes = 0, pieces = 0;

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

/// A gathered piece, as the application sees it. Its RemoteNode (a queue entry) is handed over if another core releases the piece.
struct GatheredPiece : RemoteNode {
  Buffer::Piece piece;  ///< its `owner` is this object
  GatheredBlock* block = nullptr;
  std::uint32_t bytes = 0;    ///< bytes that count against the window, including those that the application dropped by `drop_front`
  std::uint32_t count = 1;    ///< number of pieces joined into this one, itself included
  std::uint32_t headers = 1;  ///< number of these pieces whose headers are still charged to the connection's memory

  /// The release function of a gathered piece (a Buffer::Release). MAY be called on any core.
  static void release(void* owner) noexcept;
  [[nodiscard]] static GatheredPiece* of(const Buffer::Piece& piece) noexcept { return static_cast<GatheredPiece*>(piece.owner); }
  /// True if the bytes of `next` directly follow those of `last` in the same block.
  [[nodiscard]] static bool continues(const Buffer::Piece& last, const Buffer::Piece& next) noexcept {
    return last.release == &release && next.release == &release && last.data + last.bytes == next.data &&
           of(last)->block == of(next)->block;
  }
  /// Merges `next` into `last` and deletes `next`. `continues(last, next)` MUST be true, and `next` MUST NOT be in a Buffer's chain.
  static void join(Buffer::Piece& last, Buffer::Piece& next) noexcept;
};

}  // namespace neap::net
