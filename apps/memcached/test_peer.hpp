// SPDX-License-Identifier: BSL-1.0
// For tests: a client's session and connection. Only one source of a program MAY include it, because test_connection.hpp defines functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "apps/memcached/session.hpp"
#include "apps/memcached/test_connection.hpp"
#include "apps/memcached/test_server.hpp"

namespace neap::memcached::test {

struct Peer {
  /// `ends_events`: true if the stack takes over the sent bytes after each call, as at the end of an event.
  explicit Peer(Server& server, bool ends_events = false)
      : session(std::make_unique<Session>(server.service, server.service.core(0))), ends_events_(ends_events) {
    connection.begin(*session);
  }
  ~Peer() {
    connection.drop_all();
    if (session != nullptr) session->closed();
  }
  void send(std::string_view text) {
    session->received(net::Buffer::copy({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
    if (ends_events_) connection.end_event();
  }
  /// Reads and acknowledges output, and lets the session send more, until no more arrives.
  std::string read_all() {
    std::string text;
    for (;;) {
      const std::string part = connection.acknowledge();
      if (part.empty()) return text;
      text += part;
      if (!connection.closed && !connection.aborted) session->writable();
      if (ends_events_) connection.end_event();
    }
  }
  std::string ask(std::string_view request) {
    send(request);
    return read_all();
  }

  net::PlayedConnection connection;
  std::unique_ptr<Session> session;

 private:
  bool ends_events_;
};

}  // namespace neap::memcached::test
