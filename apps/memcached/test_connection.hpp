// SPDX-License-Identifier: BSL-1.0
// A connection simulated by the test, for tests of sessions. This file defines the functions of `net::Connection`, so exactly one source of
// a program MUST include it, and the program links without the network stack.
//
// The connection keeps the contract of net/network.hpp and treats memory as the stack does. At the end of an event, pieces of up to
// `Connection::copy_bytes_max` bytes are copied while the send buffer has room. Longer pieces stay where they are until acknowledged.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

#include "kernel/panic.hpp"
#include "net/gathered_piece.hpp"
#include "net/network.hpp"

namespace neap::net {

/// Takes up to `space` bytes and keeps them until `acknowledge`.
struct PlayedConnection : Connection {
  static constexpr std::size_t send_buffer_bytes = 256 * 1024;  ///< lwIP's TCP_SND_BUF
  void begin(ConnectionHandler& handler) { bind(handler); }
  std::size_t space = send_queue_bytes_max;
  std::size_t wanted = 0;  ///< bytes of the last refused `send`
  Buffer sent;             ///< bytes not yet written to the stack
  Buffer written;          ///< bytes written to the stack and not yet acknowledged
  bool closed = false, aborted = false;
  unsigned refusals = 0;
  Endpoint peer{.address = Ipv4Address{0xC0000202}, .port = 1};
  std::array<std::byte, send_copy_bytes_max> room{};  ///< of `frame`
  unsigned frames = 0;                                ///< calls of `send_frame`

  [[nodiscard]] std::size_t unacknowledged() const { return sent.bytes() + written.bytes(); }
  /// Moves bytes from `sent` to `written`, as the stack does at the end of an event.
  void end_event() {
    while (!sent.empty() && written.bytes() < send_buffer_bytes) {
      Buffer::Piece* const first = sent.first();
      Buffer rest;
      if (first->bytes <= copy_bytes_max) {
        written.append(Buffer::copy(sent.front()));
        sent.drop_front(first->bytes);
        continue;
      }
      Buffer::Piece* piece = sent.detach();
      Buffer::Piece* next = piece->next;
      written.append_piece(*piece);
      while (next != nullptr) {
        piece = next;
        next = piece->next;
        rest.append_piece(*piece);
      }
      sent = std::move(rest);
    }
  }
  std::string acknowledge(std::size_t limit = ~std::size_t{0}) {
    std::string text;
    for (Buffer* queue : {&written, &sent}) {
      while (!queue->empty() && text.size() < limit) {
        const auto front = queue->front().first(std::min(queue->front().size(), limit - text.size()));
        text.append(reinterpret_cast<const char*>(front.data()), front.size());
        queue->drop_front(front.size());
      }
    }
    return text;
  }
  /// True if `writable` of the handler has to be called after an acknowledgement.
  [[nodiscard]] bool writable_due() {
    if (closed || aborted) return false;
    if (unacknowledged() > 0 && (wanted == 0 || send_space_bytes() < wanted)) return false;
    wanted = 0;
    return true;
  }
  void drop_all() {
    sent.clear();
    written.clear();
  }
};

Result<void> Connection::send(Buffer&& data) {
  auto& self = static_cast<PlayedConnection&>(*this);
  if (self.closed || self.aborted) return failure(ErrorCode::closed, "closed");
  if (data.bytes() > send_space_bytes()) {
    ++self.refusals;
    self.wanted = std::min(data.bytes(), send_queue_bytes_max);
    return failure(ErrorCode::full, "full");
  }
  self.sent.append(std::move(data));
  return {};
}
bool Connection::send_copy(std::span<const std::byte> bytes) noexcept { return send(Buffer::copy(bytes)).has_value(); }
std::span<std::byte> Connection::frame() noexcept {
  auto& self = static_cast<PlayedConnection&>(*this);
  return self.closed || self.aborted || self.unacknowledged() != 0 ? std::span<std::byte>() : std::span<std::byte>(self.room);
}
void Connection::send_frame(std::size_t bytes) noexcept {
  auto& self = static_cast<PlayedConnection&>(*this);
  require(bytes - 1 < self.room.size(), "a frame is sent with a byte or more", bytes);
  ++self.frames;
  static_cast<void>(send(Buffer::copy(std::span(self.room).first(bytes))));
}
std::size_t Connection::send_space_bytes() const noexcept {
  const auto& self = static_cast<const PlayedConnection&>(*this);
  return self.space - std::min(self.space, self.unacknowledged());
}
std::size_t Connection::unacknowledged_bytes() const noexcept { return static_cast<const PlayedConnection&>(*this).unacknowledged(); }
Endpoint Connection::remote() const noexcept { return static_cast<const PlayedConnection&>(*this).peer; }
void Connection::close() { static_cast<PlayedConnection&>(*this).closed = true; }
void Connection::abort() { static_cast<PlayedConnection&>(*this).aborted = true; }
void ConnectionHandler::peer_closed() { connection().close(); }

// The code of buffers refers to these functions, but no test calls them.
void GatheredPiece::release(void*) noexcept { std::abort(); }
void GatheredPiece::join(Buffer::Piece&, Buffer::Piece&) noexcept { std::abort(); }

}  // namespace neap::net
