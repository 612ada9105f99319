// SPDX-License-Identifier: BSL-1.0
// The counters behind the `stats` command.
//
// Each core has counters of its own, so that counting costs an ordinary add. A reader sums over all cores. A reset does not change the
// counters. It stores their sums, and later reports subtract the sums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "kernel/counter.hpp"

namespace neap::memcached {

class Service;

/// Counted on the core that served the request. The names are the same as in `stats` (protocol.txt, "General-purpose statistics").
enum class Count : std::uint8_t {
  total_connections,
  closed_connections,
  rejected_connections,
  requests,  ///< commands of any kind, valid or not; the log counts them, `stats` does not show them
  cmd_get,
  cmd_set,
  cmd_flush,
  cmd_touch,
  cmd_meta,
  get_hits,
  get_misses,
  get_expired,
  get_flushed,
  delete_misses,
  delete_hits,
  incr_misses,
  incr_hits,
  decr_misses,
  decr_hits,
  cas_misses,
  cas_hits,
  cas_badval,
  touch_hits,
  touch_misses,
  store_too_large,
  store_no_memory,
  bytes_read,
  bytes_written,
  reply_no_memory,
  conn_yields,    ///< times that a connection's input waited because it had its requests of an event (`Settings::requests_per_event`)
  idle_kicks,     ///< connections reset because their client was silent
  uploads_reset,  ///< connections reset because their uploads made no progress while uploads took too much memory
  udp_requests,   ///< datagrams with requests
  udp_dropped,    ///< datagrams without a header or with unfinished requests, and replies that were not sent whole
  holders_reset,  ///< connections reset because they held values by not reading replies
  reply_waits,    ///< times that a connection's input began to wait for the peer to read its replies
  protocol_errors,
  protocol_overrun,  ///< connections ended because received bytes exceeded their destination (a parser's mistake)
  no_progress,       ///< connections ended because handling them made no progress (the session's mistake)
  size
};

struct Statistics {
  std::array<Counter, static_cast<std::size_t>(Count::size)> counters;
  void add(Count which, std::uint64_t amount = 1) noexcept { counters[static_cast<std::size_t>(which)].add(amount); }
  [[nodiscard]] std::uint64_t value(Count which) const noexcept { return counters[static_cast<std::size_t>(which)].value(); }
};

/// Emits the counters of one core. Without `core`, emits the sums of all cores since the last reset, and the store's gauges.
void report_counters(Service& service, std::optional<unsigned> core, const Emit& emit);

using StatisticSink = std::function<void(std::string_view name, std::string_view value)>;

enum class StatisticsAnswer : std::uint8_t { shown, reset, unknown };

/// Shows the statistics of `topic`: "" (general), `settings`, `items`, `slabs`, `sizes`; `reset` sets the counters to zero. The names are
/// those of memcached for all that exists here (protocol.txt). Names that have no counterpart here are left out, except those that programs
/// for monitoring require; docs/memcached.md gives the reason of each constant.
StatisticsAnswer show_statistics(Service& service, std::string_view topic, const StatisticSink& sink);

}  // namespace neap::memcached
