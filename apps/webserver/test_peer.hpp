// SPDX-License-Identifier: BSL-1.0
// For tests: a client's connection to a server whose application the test writes. Only one source of a program MAY include it, because
// test_connection.hpp defines functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/memcached/test_connection.hpp"
#include "apps/webserver/exchange.hpp"
#include "apps/webserver/http_core.hpp"
#include "apps/webserver/session.hpp"

namespace neap::net {
Endpoint Connection::local() const noexcept { return {.address = Ipv4Address{0xC0000201}, .port = 80}; }
}  // namespace neap::net

namespace neap::webserver::test {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

inline std::int64_t unix_s = 784'111'777;  // Sun, 06 Nov 1994 08:49:37 GMT
inline constexpr std::string_view date_line = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
inline constexpr std::string_view kept_lines = "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n";

/// Records each call as a line of `log`, and then calls the function that the test has set.
struct TestApplication : Application {
  std::function<void(Exchange&)> on_request = [](Exchange& exchange) { (void)exchange.respond({}, bytes_of("hello")); };
  std::function<void(Exchange&, std::string)> on_body;
  std::function<void(Exchange&)> on_body_end, on_writable, on_sent;
  std::function<void(Exchange&, bool)> on_closed;
  std::function<bool(Session&, const http::ParseError&)> on_error;
  std::vector<std::string> log;
  bool logs = true;

  void note(std::string line) {
    if (logs) log.push_back(std::move(line));
  }
  void request(Exchange& exchange) override {
    note("request " + std::string(exchange.target()));
    on_request(exchange);
  }
  void body(Exchange& exchange, std::span<const std::byte> piece) override {
    note("body " + text_of(piece));
    if (on_body) on_body(exchange, text_of(piece));
  }
  void body_end(Exchange& exchange) override {
    note("body_end");
    if (on_body_end) on_body_end(exchange);
  }
  void writable(Exchange& exchange) override {
    note("writable");
    if (on_writable) on_writable(exchange);
  }
  void sent(Exchange& exchange) override {
    note("sent");
    if (on_sent) on_sent(exchange);
  }
  void closed(Exchange& exchange, bool aborted) override {
    note(aborted ? "aborted" : "closed");
    if (on_closed) on_closed(exchange, aborted);
  }
  bool client_error(Session& session, const http::ParseError& error) override {
    note("error " + std::to_string(error.status));
    return on_error ? on_error(session, error) : false;
  }
  [[nodiscard]] std::string logged() const {
    std::string all;
    for (const std::string& line : log) all += (all.empty() ? "" : "; ") + line;
    return all;
  }
};

struct TestServer {
  explicit TestServer(const Limits& limits = {}, const CoreLimits& core_limits = {})
      : core([]() noexcept { return unix_s; }, core_limits, HttpCore::Timing::manual), server(core, application, limits) {}
  TestApplication application;
  HttpCore core;
  HttpServer server;

  void wait_s(unsigned seconds) {
    for (; seconds > 0; --seconds) {
      core.tick();
      end_event();
    }
  }
  /// Runs the events that sessions have asked for.
  void run() {
    end_event();
    for (int rounds = 0; core.resume(); ++rounds) {
      require(rounds < 10'000, "webserver: a session asks for events for ever");
      end_event();
    }
  }
  void end_event() { core.end_event(); }
};

struct Peer {
  explicit Peer(TestServer& server_) : server(server_), handler(server.server.accept(connection)) { connection.begin(*handler); }
  ~Peer() { leave(); }
  Peer& operator=(Peer&&) = delete;

  void leave() {
    connection.drop_all();
    if (!std::exchange(gone, true)) handler->closed();
  }
  /// The stack's work at the end of an event.
  void settle() {
    server.run();
    if (gone) return;
    connection.end_event();
    if (connection.aborted || (connection.closed && connection.unacknowledged() == 0)) leave();
  }
  void send(std::string_view text) {
    if (gone || text.empty()) return;
    handler->received(net::Buffer::copy(bytes_of(text)));
    settle();
  }
  void send_bytewise(std::string_view text) {
    for (const char letter : text) send({&letter, 1});
  }
  /// Reads and acknowledges up to `limit` bytes.
  std::string read(std::size_t limit = ~std::size_t{0}) {
    settle();
    std::string text = connection.acknowledge(limit);
    if (!text.empty() && !gone && connection.writable_due()) handler->writable();
    settle();
    return text;
  }
  std::string read_all() {
    std::string all;
    for (;;) {
      const std::string part = read();
      if (part.empty()) return all;
      all += part;
    }
  }
  std::string ask(std::string_view request) {
    send(request);
    return read_all();
  }
  void end() {
    if (gone) return;
    handler->peer_closed();
    settle();
  }
  [[nodiscard]] bool closed() const { return connection.closed || connection.aborted; }

  TestServer& server;
  net::PlayedConnection connection;
  std::unique_ptr<net::ConnectionHandler> handler;
  bool gone = false;
};

}  // namespace neap::webserver::test
