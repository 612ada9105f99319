// SPDX-License-Identifier: BSL-1.0
// The stack's data inside a receive buffer.
//
// A received frame becomes a piece of an application's Buffer, which may be released on another core. Datagrams pass lwIP before that, as a
// pbuf. The piece, the pbuf and the node for a hand-over are in the receive buffer's `stack_area`, so receiving allocates no memory.
// Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "kernel/events.hpp"
#include "kernel/net_device.hpp"
#include "lwip/pbuf.h"
#include "net/buffer.hpp"

namespace neap::net {

class ConnectionState;
class Stack;

/// A base, because lwIP's pbuf leads back to the piece.
struct ReceivedFront {
  union {
    pbuf_custom custom;   ///< of a frame that lwIP handles
    std::uint32_t bytes;  ///< of a segment: the bytes that count against the window
  };
  ReceivedFront() noexcept {}  // NOLINT(modernize-use-equals-default): the user sets a member of the union
};

/// The `RemoteNode` (an entry of a core's queue) is handed over if the piece is released on another core.
struct ReceivedPiece : ReceivedFront, RemoteNode {
  union {
    ConnectionState* connection;  ///< for a segment: the connection whose window counts the bytes
    Stack* stack;                 ///< for a datagram: the stack that received it
  };
  Buffer::Piece piece;

  ReceivedPiece() noexcept {}  // NOLINT(modernize-use-equals-default): the user sets a member of the union

  [[nodiscard]] static ReceivedPiece& make(ReceiveBuffer& buffer) noexcept { return *new (buffer.stack_area.data()) ReceivedPiece; }
  /// The piece that `make` has put into `buffer`.
  [[nodiscard]] static ReceivedPiece& in(ReceiveBuffer& buffer) noexcept {
    return *std::launder(reinterpret_cast<ReceivedPiece*>(buffer.stack_area.data()));
  }
  [[nodiscard]] static ReceivedPiece& of(struct pbuf& frame) noexcept {
    return static_cast<ReceivedPiece&>(*reinterpret_cast<ReceivedFront*>(&frame));
  }
  [[nodiscard]] ReceiveBuffer& buffer() noexcept {
    return *reinterpret_cast<ReceiveBuffer*>(reinterpret_cast<std::byte*>(this) - offsetof(ReceiveBuffer, stack_area));
  }
  /// A Buffer::Release: releases a piece of a segment that was passed to the application. MAY be called on any core.
  static void release(void* owner) noexcept;
};
static_assert(sizeof(ReceivedPiece) <= sizeof(ReceiveBuffer::stack_area));
static_assert(alignof(ReceivedPiece) <= 8);

}  // namespace neap::net
