// SPDX-License-Identifier: BSL-1.0
// The state that all HTTP connections of one core share: pools, scratch memory, the clock, and the servers.
//
// Nothing here is shared between cores. A core that serves connections looks at them once a second, in one timer event, because re-arming a
// timer for each request would cost more than the whole time-out is worth. That event also makes the new text of Date. So a request reads
// no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/webserver/http/response_head.hpp"
#include "apps/webserver/limits.hpp"
#include "apps/webserver/statistics.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::webserver {

class Application;
class Exchange;
class HttpCore;
class Session;

/// A list of sessions, without memory of its own.
struct SessionLink {
  Session* previous = nullptr;
  Session* next = nullptr;
};

/// One listening server on one core. It MUST exist until its last connection has ended (`connections() == 0`).
class HttpServer {
 public:
  HttpServer(HttpCore& core, Application& application_, const Limits& limits_ = {});
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  Application& application;
  Limits limits;
  void* context = nullptr;  ///< the application's own

  /// MUST be called after each change of `limits`.
  void limits_changed() noexcept;
  /// Makes the handler of a new connection: a session, or the refusal of one over a limit. Throws `bad_alloc`, which the network handles.
  [[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(net::Connection& connection);
  /// The open connections of this server on this core.
  [[nodiscard]] std::uint32_t connections() const noexcept { return connections_; }
  /// Closes the connections that wait for a request. With `all`, also resets those with a request or a response in progress.
  void close_connections(bool all) noexcept;
  /// From now on, each response has Connection: close, and connections are closed when they become idle. For an orderly shutdown.
  void drain() noexcept;
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  [[nodiscard]] HttpCore& core() noexcept { return core_; }

 private:
  friend class Exchange;
  friend class HttpCore;
  friend class Session;

  /// Returns the lines Date, Connection: keep-alive and Keep-Alive of a usual response.
  [[nodiscard]] std::string_view usual_lines() noexcept;
  void make_usual_lines() noexcept;

  HttpCore& core_;
  std::uint32_t connections_ = 0;
  bool draining_ = false;
  std::uint32_t usual_lines_second_ = 0;  ///< `HttpCore::date_second` for which they were made
  std::uint32_t usual_lines_bytes_ = 0, keep_alive_at_ = 0;
  std::array<char, 128> usual_lines_{};
  std::unordered_map<std::uint64_t, std::uint32_t> peers_;  ///< open connections by `peer_key`; empty without a limit
};

/// The state of one core.
class HttpCore {
 public:
  /// Returns the seconds since 1970, or a negative number if the machine does not know the date. Responses then have no Date.
  using UnixClock = std::int64_t (*)() noexcept;

  explicit HttpCore(UnixClock unix_clock, const CoreLimits& limits = {});
  HttpCore(const HttpCore&) = delete;
  HttpCore& operator=(const HttpCore&) = delete;
  /// All sessions MUST have ended, and the application MUST have given back its references.
  ~HttpCore();

  Statistics statistics;
  const CoreLimits limits;

  /// The once-a-second work: the date, and the time-outs of all sessions. Called by the core's timer while sessions exist; a test MAY call
  /// it.
  void tick() noexcept;
  /// Ticks since the start, about seconds.
  [[nodiscard]] std::uint32_t now_ticks() const noexcept { return now_ticks_; }
  /// Bytes of responses queued for all clients: not yet acknowledged, or not yet accepted by their connections.
  [[nodiscard]] std::size_t output_bytes() const noexcept { return output_bytes_; }
  /// Returns the text of Date; empty if the machine does not know the date.
  [[nodiscard]] std::string_view date() const noexcept { return {date_.data(), date_bytes_}; }
  [[nodiscard]] std::uint32_t sessions() const noexcept { return session_count_; }

 private:
  friend class Exchange;
  friend class HttpServer;
  friend class Session;
};

}  // namespace neap::webserver
