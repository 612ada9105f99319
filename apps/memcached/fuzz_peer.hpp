// SPDX-License-Identifier: BSL-1.0
// A client of a fuzzer: a session and its simulated connection. Exactly one source of a program MAY include it (test_connection.hpp).
#pragma once

#include <malloc.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "apps/memcached/session.hpp"
#include "apps/memcached/test_connection.hpp"
#include "apps/memcached/test_server.hpp"

namespace neap::memcached::fuzz {

[[noreturn]] inline void fail(const char* what, std::size_t got, std::size_t expected) {
  std::fprintf(stderr, "%s: %zu instead of %zu\n", what, got, expected);
  std::abort();
}

/// Received bytes in a block of exactly their size. The block is the card's memory, so no account of replies includes it.
struct CardBuffer {
  static inline std::size_t out_bytes = 0;
  std::size_t bytes;
  static net::Buffer make(std::string_view text) {
    auto* const block = static_cast<CardBuffer*>(std::malloc(sizeof(CardBuffer) + text.size()));
    block->bytes = text.size();
    std::memcpy(block + 1, text.data(), text.size());
    out_bytes += malloc_usable_size(block) + sizeof(net::Buffer::Piece);
    return net::Buffer::reference({reinterpret_cast<const std::byte*>(block + 1), text.size()}, &release, block);
  }
  static void release(void* pointer) noexcept {
    out_bytes -= malloc_usable_size(pointer) + sizeof(net::Buffer::Piece);
    std::free(pointer);
  }
};

struct Peer {
  explicit Peer(test::Server& server) : session(std::make_unique<Session>(server.service, server.service.core(0))) {
    connection.begin(*session);
  }
  ~Peer() {
    if (!gone) leave();
  }
  void leave() {
    gone = true;
    connection.drop_all();
    session->closed();
  }
  void settle() {
    if (gone) return;
    connection.end_event();
    if (connection.aborted || (connection.closed && connection.unacknowledged() == 0)) leave();
  }
  void send(std::string_view text) {
    if (gone || connection.closed || peer_closed || text.empty()) return;
    session->received(CardBuffer::make(text));
    settle();
  }
  std::size_t read(std::size_t bytes) {
    const std::size_t read_bytes = connection.acknowledge(bytes).size();
    if (read_bytes > 0 && !gone && connection.writable_due()) session->writable();
    settle();
    return read_bytes;
  }
  void end() {
    if (gone || connection.closed || peer_closed) return;
    peer_closed = true;
    session->peer_closed();
    settle();
  }
  net::PlayedConnection connection;
  std::unique_ptr<Session> session;
  bool peer_closed = false, gone = false;
};

/// Returns the number with this name in `stats`, 0 if there is none.
inline std::uint64_t statistic(test::Server& server, std::string_view wanted) {
  std::uint64_t number = 0;
  show_statistics(server.service, "", [&](std::string_view name, std::string_view value) {
    if (name == wanted) std::from_chars(value.data(), value.data() + value.size(), number);
  });
  return number;
}

}  // namespace neap::memcached::fuzz
