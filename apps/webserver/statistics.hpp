// SPDX-License-Identifier: BSL-1.0
// The counters of one core's HTTP connections. Only that core writes them; any core may read them.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/counter.hpp"

namespace neap::webserver {

struct Statistics {
  // Connections
  Counter connections_accepted, connections_closed;
  Counter connections_refused;       ///< 503: over `connections_max`
  Counter peer_connections_refused;  ///< 503: over `peer_connections_max`
  Counter connections_idle_closed;   ///< closed because no request came in time
  Counter connections_aborted;       ///< reset by this side, for any reason
  Counter connections_lost;          ///< ended by the client or the network within a request or a response
  // Requests
  Counter requests;            ///< heads passed to the application
  Counter requests_completed;  ///< request and response complete
  Counter requests_aborted;    ///< ended otherwise
  Counter requests_refused;    ///< by the parser, with any status
  Counter refused_400, refused_408, refused_413, refused_414, refused_417, refused_431, refused_501, refused_503, refused_505;
  Counter head_timeouts, request_timeouts, write_timeouts;
  Counter yields;          ///< a client's pipelined requests waited for other events
  Counter continues_sent;  ///< 100 Continue
  // Responses
  std::array<Counter, 10> responses;   ///< by the status's first digit
  Counter responses_too_long;          ///< the application wrote more than its Content-Length; the connection was reset
  Counter responses_too_short;         ///< the same, with fewer bytes
  Counter writes_refused;              ///< writes after the end, or without a connection
  Counter bodies_discarded;            ///< unread request bodies that were read and dropped
  Counter bodies_too_long_to_discard;  ///< the same, over the limit; the connection was closed
  // Bytes and memory
  Counter bytes_received, bytes_sent;
  Counter send_waits;      ///< the connection's queue was full
  Counter output_waits;    ///< `write` returned `wait` because of the core's limit
  Counter output_refused;  ///< connections reset because the core's limit was exceeded
  Counter no_memory;       ///< connections or requests refused for lack of memory
  Counter exchanges;       ///< alive now: referred to by a session or the application
};

/// Calls `emit` with the name and the value of each counter.
void report_statistics(const Statistics& statistics, const Emit& emit);

}  // namespace neap::webserver
