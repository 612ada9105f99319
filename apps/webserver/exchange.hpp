// SPDX-License-Identifier: BSL-1.0
// One request with its response: the interface between HTTP and an application.
//
// An application in a script answers at once or much later, keeps objects of a request after the connection has gone, and may call any
// function in any state. So each call here is defined in each state: a call that comes too late is refused and counted, and never a defect.
//
// Life. The session makes an exchange when the first bytes of a request arrive, and passes it to `Application::request` when its head is
// complete. The exchange is complete when the response has ended and the request's body has arrived or was discarded. Then, or when the
// connection ends earlier, `Application::closed` is called once, as the last call. The application MAY hold references
// (`ExchangeReference`) for longer. It can then still read the request; writes are refused.
//
// Calls. The calls of one exchange come in the order request, body*, body_end, closed; `writable` and `sent` at any time in between. Calls
// never come from within `write`, `start`, `respond` or `end`, with one exception: `sent` and `closed` MAY come from within the call that
// ends the response or destroys the exchange. The application MAY call any function of any exchange within any call.
//
// Body. No piece of the body is delivered before `read_body`. A client that sends more than the application reads is stopped by
// back-pressure: received buffers are kept, so its receive window closes. A body that is not read before the response ends is discarded, up
// to a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "apps/webserver/http/header.hpp"
#include "apps/webserver/http/request_parser.hpp"
#include "apps/webserver/http/response_head.hpp"
#include "net/address.hpp"
#include "net/buffer.hpp"

namespace neap::webserver {

class Exchange;
class HttpCore;
class HttpServer;
class Session;

/// The application behind a server. All calls are made on the server's core. They MUST NOT throw.
class Application {
 public:
  virtual ~Application() = default;
  /// The head of a request has arrived. The application MAY answer now or later.
  virtual void request(Exchange& exchange) = 0;
  /// A piece of the decoded body. The bytes are valid during the call only.
  virtual void body(Exchange&, std::span<const std::byte>) {}
  /// The body is complete, and `trailers()` are valid. Only called for a request with a body, after `read_body`.
  virtual void body_end(Exchange&) {}
  /// After a write that returned `wait`: the bytes in flight have fallen to the low watermark.
  virtual void writable(Exchange&) {}
  /// The whole response was handed to the network. Only called if `Exchange::report_sent` was called before.
  virtual void sent(Exchange&) {}
  /// The last call. `aborted`: the connection ended before the exchange was complete.
  virtual void closed(Exchange&, bool aborted) = 0;
  /// A request was refused, or did not arrive in time. Returns true if the application has answered by `Session::send_error_response`.
  /// Otherwise the client gets the usual answer (status, Connection: close, no body). The connection is closed in either case.
  virtual bool client_error(Session&, const http::ParseError&) { return false; }
};

class Exchange {
 public:
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // --- The request. All texts stay valid as long as the exchange. ---
  [[nodiscard]] http::Method method() const noexcept { return parser_.method(); }
  [[nodiscard]] std::string_view method_name() const noexcept { return http::method_name(parser_.method()); }
  /// The request-target as received, such as "/path?query", "*", or "http://host/path".
  [[nodiscard]] std::string_view target() const noexcept { return parser_.target(); }
  /// 0 or 1: HTTP/1.0 or HTTP/1.1.
  [[nodiscard]] unsigned minor_version() const noexcept { return parser_.minor_version(); }
  [[nodiscard]] std::span<const http::HeaderField> headers() const noexcept { return parser_.fields(); }
  /// Empty before the body is complete.
  [[nodiscard]] std::span<const http::HeaderField> trailers() const noexcept { return parser_.trailers(); }
  /// True if the request has a body: Transfer-Encoding, or a Content-Length over 0.
  [[nodiscard]] bool has_body() const noexcept { return parser_.has_body(); }
  /// True if the whole request has arrived (Node: `complete`). From the start true without a body.
  [[nodiscard]] bool body_complete() const noexcept { return body_complete_; }
  [[nodiscard]] bool expects_continue() const noexcept { return parser_.expects_continue(); }
  /// True if the client wants to keep the connection.
  [[nodiscard]] bool keep_alive() const noexcept { return parser_.keep_alive(); }
  [[nodiscard]] net::Endpoint remote() const noexcept;
  [[nodiscard]] net::Endpoint local() const noexcept;

  /// Starts or resumes the delivery of the body. It begins in this or a later event, never within this call. Sends 100 Continue if the
  /// client expects it, nothing of the response was sent, and `take_continue` was not called.
  void read_body() noexcept;
  /// Stops the delivery after the present piece.
  void pause_body() noexcept { reading_ = false; }

  // --- The response ---
  /// False when the connection has ended, or the exchange is complete.
  [[nodiscard]] bool connected() const noexcept { return session_ != nullptr; }
  [[nodiscard]] bool head_sent() const noexcept { return head_sent_; }
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// True if the response's status or the request's method forbids a body. Valid after `start`.
  [[nodiscard]] bool without_body() const noexcept { return without_body_; }
  /// The connection will be closed after this response, and the response says so.
  void set_close() noexcept { close_ = true; }
  [[nodiscard]] bool will_close() const noexcept { return close_; }

  enum class Written : std::uint8_t {
    accepted,
    wait,     ///< accepted, and the bytes in flight exceed the high watermark; `Application::writable` follows
    refused,  ///< nothing was written: not connected, the response has ended, its length is wrong, or there is no memory. In the last two
              ///< cases the connection was reset, and `closed` came from within the call.
  };
  /// Sends a whole response: the usual and the cheapest way. Sets Content-Length to the size of `body`, unless `head` has a length, which
  /// then MUST be that size. A body that is forbidden (HEAD, 204, 304) is not sent; for HEAD its length is still announced.
  Written respond(const http::ResponseHead& head, std::span<const std::byte> body = {});
  /// As above, with a body by reference.
  Written respond(const http::ResponseHead& head, net::Buffer&& body);
  /// Starts a response whose body follows by `write` and `end`. The head is sent at the end of this event, at the latest.
  Written start(const http::ResponseHead& head);
  /// Sends a piece of the body. MUST NOT be called before `start`. An empty piece has no effect. A piece for a response without body is
  /// dropped.
  Written write(std::span<const std::byte> piece);
  /// As above, by reference. The buffer is moved from unless the result is `refused`.
  Written write(net::Buffer&& piece);
  /// Ends a started response, with a last piece.
  Written end(std::span<const std::byte> last = {});
  /// Ends a started response with trailers: "Name: value\r\n" each, valid. They are dropped unless the response is chunked.
  Written end_with_trailers(std::string_view lines);
  /// Sends 100 Continue now. Has no effect if the client does not expect it, it was sent, or the response was started.
  void send_continue();
  /// `read_body` will not send 100 Continue by itself.
  void take_continue() noexcept { continue_done_ = true; }
  /// Sends an informational response (102, 103) with `lines`. Refused after `start`, and for clients of HTTP/1.0.
  Written inform(unsigned status, std::string_view lines);
  /// Resets the connection. `closed` with `aborted` follows, from within this call, unless the exchange is complete.
  void destroy();
  /// Bytes of the response that the client has not acknowledged (Node: `writableLength`).
  [[nodiscard]] std::size_t bytes_in_flight() const noexcept;
  /// `Application::sent` will be called.
  void report_sent() noexcept { report_sent_ = true; }

  [[nodiscard]] HttpServer& server() noexcept { return *server_; }
  void* context = nullptr;  ///< the application's own; null at `Application::request`

  void add_reference() noexcept { ++references_; }
  void drop_reference() noexcept;

 private:
  friend class HttpCore;
  friend class Session;

  /// How the end of the body is marked.
  enum class Framing : std::uint8_t { none, length, chunked, connection };

  explicit Exchange(HttpCore& core) noexcept : core_(core) {}
  void begin(Session& session) noexcept;
  /// Decides whether the connection stays, and how the body ends. Returns false if no response can be started.
  [[nodiscard]] bool plan(const http::ResponseHead& head, bool whole, std::size_t body_bytes) noexcept;
  [[nodiscard]] char* write_head(char* to, const http::ResponseHead& head, bool whole, std::size_t body_bytes) const noexcept;
  [[nodiscard]] static std::size_t head_bytes_max(const http::ResponseHead& head) noexcept;
  Written refuse() noexcept;
  /// Checks the size of a piece against Content-Length.
  [[nodiscard]] bool take_length(std::size_t bytes) noexcept;
  Written finish(std::string_view trailers);
  Written written() noexcept;

  http::RequestParser parser_;
  HttpCore& core_;
  HttpServer* server_ = nullptr;
  Session* session_ = nullptr;
  std::uint32_t references_ = 0;
  bool requested_ = false;  ///< the application knows the exchange
  bool body_complete_ = false, reading_ = false, head_sent_ = false, ended_ = false, without_body_ = false, close_ = false;
  bool continue_done_ = false, continue_sent_ = false, report_sent_ = false;
  Framing framing_ = Framing::none;
  std::uint64_t left_bytes_ = 0;    ///< of a body with `Framing::length`
  Exchange* next_spare_ = nullptr;  ///< in the core's list
};

/// A reference that keeps an exchange alive. MUST be destroyed on the exchange's core, before its `HttpCore`.
class ExchangeReference {
 public:
  ExchangeReference() = default;
  explicit ExchangeReference(Exchange& exchange) noexcept : exchange_(&exchange) { exchange.add_reference(); }
  ExchangeReference(ExchangeReference&& other) noexcept : exchange_(std::exchange(other.exchange_, nullptr)) {}
  ExchangeReference& operator=(ExchangeReference&& other) noexcept {
    std::swap(exchange_, other.exchange_);
    return *this;
  }
  ~ExchangeReference() {
    if (exchange_ != nullptr) exchange_->drop_reference();
  }
  [[nodiscard]] Exchange* get() const noexcept { return exchange_; }
  [[nodiscard]] Exchange* operator->() const noexcept { return exchange_; }
  [[nodiscard]] Exchange& operator*() const noexcept { return *exchange_; }
  [[nodiscard]] explicit operator bool() const noexcept { return exchange_ != nullptr; }

 private:
  Exchange* exchange_ = nullptr;
};

}  // namespace neap::webserver
