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

  [[nodiscard]] HttpCore& core() noexcept { return core_; }
  [[nodiscard]] Application& application() noexcept { return server_.application; }

  // --- Input ---
  /// Parses, calls the application, and sends, until there is nothing to do without another event.
  void work() noexcept;
  /// One step of `work`. Returns false if it has to wait.
  [[nodiscard]] bool step() noexcept;
  [[nodiscard]] bool begin_exchange() noexcept;
  [[nodiscard]] bool parse_head() noexcept;
  [[nodiscard]] bool parse_body() noexcept;
  /// The client has closed its side, and its last bytes were parsed.
  void end_of_input() noexcept;
  void resume_later() noexcept;
  /// Goes on in an event of its own, after `resume_later`.
  void resume() noexcept;

  // --- The end of an exchange ---
  /// If the exchange is complete, reports that and removes it. Called when the response or the body has ended.
  void settle_exchange() noexcept;
  /// Removes the exchange and makes the last call.
  void detach(bool aborted) noexcept;
  void refuse(http::Refusal refusal) noexcept;
  void close_in_order() noexcept;
  void abort() noexcept;
  void check_timeouts() noexcept;
  [[nodiscard]] bool elapsed(std::uint32_t timeout_ms) const noexcept;

  // --- Output ---
  /// Returns room for `bytes` bytes behind all earlier output; null without memory, after an abort. `commit` MUST follow, with no call of
  /// the application and of the connection in between.
  [[nodiscard]] char* reserve(std::size_t bytes) noexcept;
  /// As `reserve`, but not in a frame, so that further output goes into the same segment.
  [[nodiscard]] char* reserve_elsewhere(std::size_t bytes) noexcept;
  void commit(const char* end) noexcept;
  void commit_elsewhere(std::size_t bytes) noexcept;
  /// Queues bytes behind all earlier output. Returns false without memory, after an abort.
  [[nodiscard]] bool send_bytes(std::span<const std::byte> bytes) noexcept;
  [[nodiscard]] bool send_buffer(net::Buffer&& buffer) noexcept;
  [[nodiscard]] bool append(net::Buffer&& buffer, std::size_t bytes) noexcept;
  void flush() noexcept;
  void flush_scratch() noexcept;
  void push() noexcept;
  /// The bytes that the client has not acknowledged, or that wait for room.
  [[nodiscard]] std::size_t in_flight() noexcept;
  /// Brings the core's account up to date.
  void charge(std::size_t bytes) noexcept;
  void settle_charge() noexcept;
  /// Asks for the callback `writable` when the bytes in flight have fallen to the low watermark.
  void request_room() noexcept;
  /// Goes on if the client has read enough.
  void settle_room() noexcept;
  [[nodiscard]] bool above_watermark() noexcept;

  HttpServer& server_;
  HttpCore& core_;
  Exchange* exchange_ = nullptr;
  net::Buffer input_;   ///< received and not parsed
  net::Buffer unsent_;  ///< not accepted by the connection
  Session* previous_ = nullptr;
  Session* next_ = nullptr;
  Session* resumed_next_ = nullptr;
  char* reserved_ = nullptr;
  std::size_t charged_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;          ///< queued for the client since the start
  std::uint64_t acknowledged_bytes_ = 0;  ///< at the last tick
  std::uint64_t discarded_bytes_ = 0;     ///< of the present request's unread body
  std::uint32_t since_ticks_ = 0;         ///< the begin of the present request, or of the wait for one
  std::uint32_t acknowledged_ticks_ = 0;  ///< when `acknowledged_bytes_` changed
  std::uint32_t requests_ = 0;
  std::uint32_t event_requests_ = 0;  ///< of the present event
  enum class Room : std::uint8_t { frame, scratch, block } room_ = Room::frame;
  bool head_parsed_ = false;  ///< of the exchange
  bool working_ = false;      ///< `work` is in progress further up the stack
  bool ended_ = false;        ///< closed or reset by this session, or gone; later input is dropped
  bool peer_closed_ = false;
  bool resuming_ = false;      ///< in the core's list
  bool output_waits_ = false;  ///< requests wait until the client has read its responses
  bool drain_wanted_ = false;  ///< the application waits for `writable`
  bool answering_error_ = false;
  bool listed_ = false;  ///< in the core's list of sessions
};

}  // namespace neap::webserver
