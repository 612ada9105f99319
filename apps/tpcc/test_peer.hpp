// SPDX-License-Identifier: BSL-1.0
// For tests: a server whose terminal runs no database, and a client's session and connection. Only one source of a program MAY include it,
// because test_connection.hpp defines functions.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "apps/memcached/test_connection.hpp"
#include "apps/tpcc/session.hpp"

namespace neap::tpcc::test {

/// Counts its transactions and answers with their number, padded to `text_bytes`.
class CountingTerminal final : public Terminal {
 public:
  Answer run(std::span<char, answer_bytes_max> text) noexcept override {
    if (postponed != 0) {
      --postponed;
      return {.ending = Ending::postponed};
    }
    ++runs;
    std::memset(text.data(), 'x', answer_bytes_max);
    const std::string number = std::to_string(runs);
    std::memcpy(text.data(), number.data(), number.size());
    const Ending ending = runs == fails_at ? failure : Ending::committed;
    return {.type = static_cast<TransactionType>(runs % transaction_types), .ending = ending, .bytes = std::max(text_bytes, number.size())};
  }

  unsigned runs = 0;
  unsigned postponed = 0;  ///< so many further calls are
  unsigned fails_at = 0;
  Ending failure = Ending::conflict;
  std::size_t text_bytes = 0;
};

struct Server {
  explicit Server(const Options& options = {}) : service(options, 1) {
    auto made = std::make_unique<CountingTerminal>();
    terminal = made.get();
    service.core(0).terminal = std::move(made);
  }
  [[nodiscard]] const Statistics& statistics() { return service.core(0).statistics; }

  Service service;
  CountingTerminal* terminal;
};

struct Peer {
  explicit Peer(Server& server) : handler(accept(server.service, connection, 0)) { connection.begin(*handler); }
  ~Peer() {
    connection.drop_all();
    if (handler != nullptr) handler->closed();
  }
  void send(std::string_view text) {
    handler->received(net::Buffer::copy({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
    connection.end_event();
  }
  /// Reads and acknowledges output, and lets the session send more, until no more arrives.
  std::string read_all() {
    std::string text;
    for (;;) {
      const std::string part = connection.acknowledge();
      if (part.empty()) return text;
      text += part;
      if (!connection.closed && !connection.aborted) handler->writable();
      connection.end_event();
    }
  }
  std::string ask(std::string_view request) {
    send(request);
    return read_all();
  }

  net::PlayedConnection connection;
  std::unique_ptr<net::ConnectionHandler> handler;
};

}  // namespace neap::tpcc::test
