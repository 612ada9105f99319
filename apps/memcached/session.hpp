// SPDX-License-Identifier: BSL-1.0
// One connection: where the network meets the conversation.
//
// All that one event brought is worked on before anything is sent, so pipelined requests are answered together. A client that sends more
// than it reads is stopped by its own window. Parsing stops when its replies in flight are more than its share (reply_memory.hpp), or when
// the connection takes no more. Received buffers are then kept, and the peer may send no more until it has read. So one connection holds at
// most a receive window, its share, and one reply (reply.hpp), whatever it asks for.
//
// A piece in flight costs its bytes, and headers in this folder, in the connection and in lwIP. The session counts an upper bound of these
// (`cost`), against its share and against the whole. Acknowledgements come as a count of bytes, so what is in flight is kept as two parts,
// an older and a newer one; a part is taken off once all of it is acknowledged.
#pragma once

#include <cstddef>
#include <memory>

#include "apps/memcached/conversation.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::memcached {

class Session final : public net::ConnectionHandler, private Holder {
 public:
  /// `core` is the state of the core on which the connection lives.
  Session(Service& service, CoreState& core) noexcept;
  ~Session() override;
  void received(net::Buffer data) override;
  void writable() override;
  void peer_closed() override;
  void closed() override;

 private:
  /// Pieces of a reply that are handed to the connection in one go; a large value leaves in several.
  static constexpr std::size_t send_bytes_max = 256 * 1024;

  /// Pieces in flight up to this many bytes stay in the chunks that the core's connections share. More means that the client is slow.
  static constexpr std::size_t shared_bytes_max = 4096;
  /// Of a piece: its header here, a reference to the payload, and a segment with the headers of its frame in lwIP.
  static constexpr std::size_t piece_bytes = 384;
  /// lwIP's headers for each segment of a long piece, and the allocator's rounding, are a quarter at most.
  [[nodiscard]] static constexpr std::size_t cost(std::size_t bytes, bool is_item) noexcept {
    return piece_bytes + bytes / 4 + (is_item ? 0 : bytes);
  }

  [[nodiscard]] std::size_t held_in_flight() noexcept override { return in_flight_bytes(); }
  void reset_connection() noexcept override;

  void work();
  void turns();
  std::size_t parse();
  /// Bytes taken from the reply that the peer has not acknowledged.
  [[nodiscard]] std::size_t in_flight_bytes() noexcept { return connection().unacknowledged_bytes() + unsent_.bytes(); }
  /// Takes off the account what was acknowledged.
  void settle() noexcept;
  void settle_all() noexcept;
  /// False: more replies are in flight than this connection's share, so its input waits. `writable` follows, since something is in flight.
  [[nodiscard]] bool may_parse() noexcept;
  [[nodiscard]] bool send_reply();
  void cut();
  /// A mistake of ours, not the peer's: `cut`, counted as `no_progress`.
  void stuck();

  Service& service_;
  CoreState& core_;
  Conversation conversation_;
  Reply reply_;
  net::Buffer input_;           ///< received, not yet parsed
  Timer again_;                 ///< pending while a command waits for the store's memory
  net::Buffer unsent_;          ///< taken from the reply, but the connection had no room
  std::size_t older_cost_ = 0;  ///< of pieces up to `boundary_`
  std::size_t newer_cost_ = 0;  ///< of pieces behind it
  std::uint64_t boundary_ = 0;  ///< as `Reply::taken`
  bool waits_ = false;          ///< the input waits, for replies to be read
  bool peer_closed_ = false;
  bool ended_ = false;  ///< closed or cut by us; what still arrives is dropped
};

/// Serves `port` of `network` with `service`, which must outlive it. Errors as `Network::listen`.
[[nodiscard]] task<Result<void>> serve(net::Network& network, Service& service, std::uint16_t port);

}  // namespace neap::memcached
