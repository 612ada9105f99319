// SPDX-License-Identifier: BSL-1.0
// One connection: where the network meets the conversation.
//
// All that one event brought is worked on before anything is sent, so pipelined requests are answered together. A client that sends more
// than it reads is stopped by its own window: when the connection takes no more of the reply, parsing stops, received buffers are kept, and
// the peer may send no more until it has read. So one connection holds at most a receive window, what the connection queues
// (`send_queue_bytes_max`), and one reply (reply.hpp), whatever it asks for.
#pragma once

#include <cstddef>
#include <memory>

#include "apps/memcached/conversation.hpp"
#include "net/network.hpp"

namespace neap::memcached {

class Session final : public net::ConnectionHandler {
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

  void work();
  std::size_t parse();
  [[nodiscard]] bool send_reply();
  void cut();
  /// A mistake of ours, not the peer's: `cut`, counted as `no_progress`.
  void stuck();

  CoreState& core_;
  Conversation conversation_;
  Reply reply_;
  net::Buffer input_;   ///< received, not yet parsed
  net::Buffer unsent_;  ///< taken from the reply, but the connection had no room
  bool peer_closed_ = false;
  bool ended_ = false;  ///< closed or cut by us; what still arrives is dropped
};

/// Serves `port` of `network` with `service`, which must outlive it. Errors as `Network::listen`.
[[nodiscard]] task<Result<void>> serve(net::Network& network, Service& service, std::uint16_t port);

}  // namespace neap::memcached
