// SPDX-License-Identifier: BSL-1.0
// Receive-side scaling: which core gets a frame.
//
// A connection belongs to the core to which the card sends its frames, so the connection's state is never shared. The card computes a
// Toeplitz hash of addresses and ports. The hash's low bits index a table, whose entries name queues. The 82599 has 128 entries of four
// bits (datasheet 7.1.2.8), so any number of cores from 1 to 16 works. The X550's table has 512 entries of six bits; the driver uses 16
// queues there, too. virtio-net has 16-bit entries (virtio 1.2, 5.1.6.5.7), of which the driver uses up to 128. If the number of queues
// does not divide that of the entries, some queues have one entry more than others.
//
// A core that opens a connection must receive the answers, so it computes the hash in advance, with a fixed key (kernel/toeplitz.hpp).
#pragma once

#include <array>
#include <cstdint>

#include "kernel/panic.hpp"

namespace neap::rss {

constexpr unsigned queues_max = 256;  // of `Table`; a card may have fewer
constexpr unsigned table_entries = 128;
constexpr unsigned table_entries_max = 512;
constexpr unsigned none = ~0U;

/// The queues of the table's entries. A range-based `for` runs over the entries in use.
struct Table {
  std::array<std::uint8_t, table_entries_max> queues{};
  unsigned entries = table_entries;  ///< a power of two; 0: the table is not used
  [[nodiscard]] constexpr const std::uint8_t* begin() const noexcept { return queues.data(); }
  [[nodiscard]] constexpr const std::uint8_t* end() const noexcept { return queues.data() + entries; }
};

/// Returns a table that names the queues 0 to `queues` - 1 (1 to `queues_max`) in turn, except `left_out`. The queues' shares differ by one
/// entry at most. At least one queue MUST remain.
[[nodiscard]] constexpr Table table_for(unsigned queues, unsigned left_out = none, unsigned entries = table_entries) noexcept {
  require(entries <= table_entries_max && (entries & (entries - 1)) == 0, "rss: no table has this size", entries);
  require(queues != 0 && queues <= queues_max && (queues > 1 || left_out != 0), "rss: no queue is left", queues);
  Table table{.entries = entries};
  unsigned queue = 0;
  for (unsigned i = 0; i < entries; ++i) {
    if (queue == left_out) queue = (queue + 1) % queues;
    table.queues[i] = static_cast<std::uint8_t>(queue);
    queue = (queue + 1) % queues;
  }
  return table;
}

/// The queue of a frame with this hash; `none` if the table is not used.
[[nodiscard]] constexpr unsigned queue_of(const Table& table, std::uint32_t frame_hash) noexcept {
  return table.entries != 0 ? table.queues[frame_hash & (table.entries - 1)] : none;
}

}  // namespace neap::rss
