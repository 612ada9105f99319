// SPDX-License-Identifier: BSL-1.0
// Received bytes that an application keeps, in memory of their size.
//
// A segment of one byte holds a card's buffer of 2 KiB. A peer that sends such segments to an application that does not read would hold a
// thousand times what its window promises. So once a core's applications hold many card buffers, payload is copied into blocks of a
// connection and the card's buffers go back. Pieces that follow each other in a block are joined when an application appends them.
// Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/events.hpp"
#include "net/buffer.hpp"

namespace neap::net {

class ConnectionState;

/// A block of gathered bytes, which follow this header. It lives while a piece refers to it.
struct GatheredBlock {
  ConnectionState* connection = nullptr;
  std::uint32_t room_bytes = 0;  ///< behind the header
  std::uint32_t used_bytes = 0;
  std::uint32_t pieces = 0;

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

struct GatheredPiece {
  Buffer::Piece piece;  ///< first: `of` relies on it
  GatheredBlock* block = nullptr;
  std::uint32_t bytes = 0;    ///< of the window, whatever was dropped from the front meanwhile
  std::uint32_t count = 1;    ///< pieces that were joined in this one
  std::uint32_t headers = 1;  ///< of them, those that are still charged to the connection
  RemoteNode way_home;

  /// The release of such a piece; on any core.
  static void release(void* owner) noexcept;
  [[nodiscard]] static GatheredPiece* of(Buffer::Piece& piece) noexcept { return reinterpret_cast<GatheredPiece*>(&piece); }
  /// True if `next` continues `last` in the same block.
  [[nodiscard]] static bool continues(const Buffer::Piece& last, const Buffer::Piece& next) noexcept {
    return last.release == &release && next.release == &release && last.data + last.bytes == next.data && block_of(last) == block_of(next);
  }
  /// Makes `last` stand for both; `next`, which continues it and is in no chain any more, is gone.
  static void join(Buffer::Piece& last, Buffer::Piece& next) noexcept;

 private:
  [[nodiscard]] static const GatheredBlock* block_of(const Buffer::Piece& piece) noexcept {
    return reinterpret_cast<const GatheredPiece*>(&piece)->block;
  }
};

}  // namespace neap::net
