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

#include "apps/webserver/http/response_head.hpp"
#include "apps/webserver/limits.hpp"
#include "apps/webserver/statistics.hpp"
#include "kernel/events.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::webserver {

class Application;
class Exchange;
class HttpCore;
class Session;

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

  /// The lines of a usual response: Date, and then Connection and Keep-Alive. `write_usual` writes all of them.
  [[nodiscard]] char* write_usual(char* to) const noexcept;
  [[nodiscard]] std::string_view keep_alive_lines() const noexcept;
  void make_usual_lines() noexcept;
  [[nodiscard]] bool admit(net::Connection& connection);
  void leave(const net::Connection& connection) noexcept;

  static constexpr std::size_t usual_bytes_max = 112;

  HttpCore& core_;
  HttpServer* next_ = nullptr;  ///< in the core's list
  std::uint32_t connections_ = 0;
  bool draining_ = false;
  std::uint32_t usual_bytes_ = 0, keep_alive_at_ = 0;
  std::array<char, usual_bytes_max> usual_{};
  std::unordered_map<std::uint64_t, std::uint32_t> peers_;  ///< open connections by `peer_key`; empty without a limit
};

/// The state of one core.
class HttpCore {
 public:
  /// Returns the seconds since 1970, or a negative number if the machine does not know the date. Responses then have no Date.
  using UnixClock = std::int64_t (*)() noexcept;

  enum class Timing : std::uint8_t {
    events,  ///< by the kernel's timers and hooks
    manual,  ///< a test calls `tick`, `resume` and `end_event` by itself
  };
  explicit HttpCore(UnixClock unix_clock, const CoreLimits& limits = {}, Timing timing = Timing::events);
  HttpCore(const HttpCore&) = delete;
  HttpCore& operator=(const HttpCore&) = delete;
  /// All sessions MUST have ended, and the application MUST have given back its references.
  ~HttpCore();

  Statistics statistics;
  const CoreLimits limits;

  /// The once-a-second work: the date, and the time-outs of all sessions.
  void tick() noexcept;
  /// Goes on with the sessions that wait for another event. Returns false if there was none.
  bool resume() noexcept;
  /// Sends what the present event has gathered.
  void end_event() noexcept;
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

  static constexpr std::size_t scratch_bytes = 16 * 1024;
  static constexpr std::uint32_t spare_exchanges_max = 256;

  /// Returns an exchange with one reference; null without memory.
  [[nodiscard]] Exchange* take_exchange() noexcept;
  void give_back(Exchange& exchange) noexcept;
  void add(Session& session) noexcept;
  void remove(Session& session) noexcept;
  void resume_later(Session& session) noexcept;
  void read_clock() noexcept;

  const UnixClock unix_clock_;
  const Timing timing_;
  std::uint32_t now_ticks_ = 0;
  std::uint32_t date_bytes_ = 0;
  std::array<char, http::date_bytes + 3> date_{};
  // Short responses are gathered here until the event ends. `scratch_owner_` is the session whose bytes they are.
  Session* scratch_owner_ = nullptr;
  std::size_t scratch_used_ = 0;
  std::unique_ptr<char[]> scratch_;
  std::size_t output_bytes_ = 0;
  Exchange* spare_exchanges_ = nullptr;
  std::uint32_t spare_exchange_count_ = 0;
  std::uint32_t session_count_ = 0;
  Session* sessions_ = nullptr;  ///< all of them
  Session* resumed_first_ = nullptr;
  Session* resumed_last_ = nullptr;
  HttpServer* servers_ = nullptr;
  Timer tick_timer_, resume_timer_;
  std::unique_ptr<EventEndHook> end_hook_;
};

}  // namespace neap::webserver
