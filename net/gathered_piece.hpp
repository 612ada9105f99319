// SPDX-License-Identifier: BSL-1.0
// Received bytes that an application keeps, copied into memory of their own size.
//
// A segment of one byte occupies a card buffer of 2 KiB. A peer that sends such segments to an application that does not read would occupy
// memory of a thousand times its window. So when a core's application holds many card buffers, the stack copies payload into blocks of the
// connection and returns the card buffers. Adjacent pieces of one block are joined when an application appends them. Internal to net/.
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

/// If a piece is released on another core, its RemoteNode is handed over to the connection's core.
struct GatheredPiece : RemoteNode {
  Buffer::Piece piece;  ///< its `owner` is this object
  GatheredBlock* block = nullptr;
  std::uint32_t bytes = 0;    ///< bytes that count against the window, also after the application drops some
  std::uint32_t count = 1;    ///< number of pieces joined into this one, itself included
  std::uint32_t headers = 1;  ///< number of these pieces whose headers are still charged to the connection

  /// Buffer::Release of a gathered piece. MAY be called on any core.
  static void release(void* owner) noexcept;
  [[nodiscard]] static GatheredPiece* of(const Buffer::Piece& piece) noexcept { return static_cast<GatheredPiece*>(piece.owner); }
  /// True if `next` continues `last` in the same block.
  [[nodiscard]] static bool continues(const Buffer::Piece& last, const Buffer::Piece& next) noexcept {
    return last.release == &release && next.release == &release && last.data + last.bytes == next.data &&
           of(last)->block == of(next)->block;
  }
  /// Merges `next` into `last` and deletes `next`. `next` MUST continue `last` and MUST NOT be in a chain.
  static void join(Buffer::Piece& last, Buffer::Piece& next) noexcept;
};

}  // namespace neap::net
