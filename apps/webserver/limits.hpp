// SPDX-License-Identifier: BSL-1.0
// Limits that keep one client, or one faulty script, from the memory and the connections of the others.
//
// Each limit has a counter in `Statistics` (statistics.hpp) that says how often it took effect.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/webserver/http/request_parser.hpp"

namespace neap::webserver {

/// The limits of a server (a listening port). A change has effect from the next request on; call `HttpServer::limits_changed` after it.
/// Time-outs are checked once a second, so they take effect up to a second late, and never early. 0: no time-out.
struct Limits {
  http::ParserLimits request;
  std::uint32_t head_timeout_ms = 60'000;           ///< from the first byte of a request to the end of its head (408); Node: headersTimeout
  std::uint32_t request_timeout_ms = 300'000;       ///< from the first byte of a request to its end (408); Node: requestTimeout
  std::uint32_t keep_alive_timeout_ms = 5'000;      ///< between a response and the next request; Node: keepAliveTimeout
  std::uint32_t first_byte_timeout_ms = 60'000;     ///< between the connection's start and the first request
  std::uint32_t write_timeout_ms = 120'000;         ///< a client acknowledges no byte of a response in flight
  std::uint32_t requests_per_connection_max = 0;    ///< the last one is answered with Connection: close; 0: no limit
  std::uint32_t requests_per_event = 32;            ///< then other connections have their turn
  std::uint32_t connections_max = 0;                ///< of this server on this core; 0: no limit. Beyond it a connection gets 503.
  std::uint32_t peer_connections_max = 0;           ///< of this server on this core and one peer address; 0: no limit
  std::uint32_t high_watermark_bytes = 64 * 1024;   ///< with more bytes in flight, `write` returns `wait`
  std::uint32_t low_watermark_bytes = 32 * 1024;    ///< `writable` is called at or below this
  std::uint32_t discarded_bytes_max = 1024 * 1024;  ///< a longer unread rest of a body ends the connection
};

/// The limits of a core, for all its servers together.
struct CoreLimits {
  std::size_t output_bytes_max = 64 * 1024 * 1024;  ///< queued for all clients. Beyond it, `write` returns `wait` at once.
  /// A write that would exceed this factor of `output_bytes_max` aborts its connection.
  static constexpr std::size_t output_abort_factor = 2;
};

}  // namespace neap::webserver
