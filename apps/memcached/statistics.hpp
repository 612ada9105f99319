// SPDX-License-Identifier: BSL-1.0
// What the `stats` command tells.
//
// Each core counts what it did in counters of its own, which cost an ordinary add; only who asks walks over all cores. A reset therefore
// does not touch them: it remembers their sums, and they are taken off from then on.
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

/// Counted on the core that served the request. Names as `stats` shows them (protocol.txt, "General-purpose statistics").
enum class Count : std::uint8_t {
  total_connections,
  closed_connections,
  rejected_connections,
  requests,  ///< commands of any kind, good or bad; not in `stats`, but what the log counts
  cmd_get,
  cmd_set,
  cmd_flush,
  cmd_touch,
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
  holders_reset,  ///< connections reset because of the values that they held by not reading (holders.hpp)
  reply_waits,    ///< times that a connection's input began to wait for its replies to be read
  protocol_errors,
  protocol_overrun,  ///< connections ended because received bytes did not fit where they should have gone
  no_progress,       ///< connections ended because work on them made no progress
  size
};

struct Statistics {
  std::array<Counter, static_cast<std::size_t>(Count::size)> counters;
  void add(Count which, std::uint64_t amount = 1) noexcept { counters[static_cast<std::size_t>(which)].add(amount); }
  [[nodiscard]] std::uint64_t value(Count which) const noexcept { return counters[static_cast<std::size_t>(which)].value(); }
};

/// Every counter under its name, as numbers: of one core, or (without one) of the server since the last reset, with the store's gauges.
void tell_counters(Service& service, std::optional<unsigned> core, const Emit& emit);

/// Receives one name and its value.
using StatisticSink = std::function<void(std::string_view name, std::string_view value)>;

enum class StatisticsAnswer : std::uint8_t { shown, reset, unknown };

/// Shows what `topic` names: "" (general), `settings`, `items`, `slabs`, `sizes`; `reset` sets the general counters to zero.
StatisticsAnswer show_statistics(Service& service, std::string_view topic, const StatisticSink& sink);

}  // namespace neap::memcached
