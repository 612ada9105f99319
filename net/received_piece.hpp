// SPDX-License-Identifier: BSL-1.0
// What the stack keeps in a receive buffer's own memory.
//
// A received frame becomes an lwIP pbuf, then a piece of an application's Buffer, and is perhaps released on another core in the end. All
// three headers lie in the buffer's `stack_area`, so that taking a frame in allocates nothing. Internal to net/.
#pragma once

#include <cstddef>
#include <new>

#include "kernel/events.hpp"
#include "kernel/net_device.hpp"
#include "lwip/pbuf.h"
#include "net/buffer.hpp"

namespace neap::net {

class ConnectionState;
class Stack;

struct ReceivedPiece {
  pbuf_custom custom;  ///< first: lwIP gives it back by this address
  union {
    ConnectionState* connection;  ///< whose window the bytes count against, once delivered
    Stack* stack;                 ///< of a datagram: where it came in
  };
  Buffer::Piece piece;
  RemoteNode way_home;  ///< to its own core, if it is released on another

  [[nodiscard]] static ReceivedPiece& make(ReceiveBuffer& buffer) noexcept { return *new (buffer.stack_area.data()) ReceivedPiece{}; }
  [[nodiscard]] static ReceivedPiece& of(pbuf& custom) noexcept { return *reinterpret_cast<ReceivedPiece*>(&custom); }
  [[nodiscard]] ReceiveBuffer& buffer() noexcept {
    return *reinterpret_cast<ReceiveBuffer*>(reinterpret_cast<std::byte*>(this) - offsetof(ReceiveBuffer, stack_area));
  }
};
static_assert(sizeof(ReceivedPiece) <= sizeof(ReceiveBuffer::stack_area));
static_assert(alignof(ReceivedPiece) <= 8);

}  // namespace neap::net
