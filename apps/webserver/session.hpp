// SPDX-License-Identifier: BSL-1.0
// One connection: passes data between the network, the parser and the exchange.
//
// A session handles one exchange at a time. Pipelined bytes wait until the response has ended: their buffers are kept, so the client's
// window closes (back-pressure). A client with many pipelined requests has its turn after the others (`Limits::requests_per_event`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/webserver/exchange.hpp"
#include "apps/webserver/http_core.hpp"
#include "net/network.hpp"

namespace neap::webserver {

class Session final : public net::ConnectionHandler {
 public:
  explicit Session(HttpServer& server) noexcept;
  ~Session() override;
  void received(net::Buffer data) override;
  void writable() override;
  void peer_closed() override;
  void closed() override;

  [[nodiscard]] HttpServer& server() noexcept { return server_; }
  /// For `Application::client_error`: sends the bytes of a whole response instead of the usual one. Has no effect at any other time.
  void send_error_response(std::span<const std::byte> response);

 private:
  friend class Exchange;
  friend class HttpCore;
  friend class HttpServer;

  HttpServer& server_;
};

}  // namespace neap::webserver
