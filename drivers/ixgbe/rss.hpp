// SPDX-License-Identifier: BSL-1.0
// Receive-side scaling: which core gets a frame.
//
// A connection belongs to the core to which the card sends its frames, so the connection's state is never shared. The card computes a
// Toeplitz hash of addresses and ports. The hash's low seven bits index a table of 128 four-bit entries (82599 datasheet 7.1.2.8). The
// table can name any queue, so any number of cores from 1 to 16 works. If the number does not divide 128, some queues have one entry more
// than others.
//
// A core that opens a connection must receive the answers, so it computes the hash in advance, with a fixed key (kernel/toeplitz.hpp).
#pragma once

#include <array>
#include <cstdint>

#include "kernel/panic.hpp"

namespace neap::ixgbe::rss {

constexpr unsigned queues_max = 16;  // an entry has four bits
constexpr unsigned table_entries = 128;
using Table = std::array<std::uint8_t, table_entries>;
constexpr unsigned none = ~0U;

/// Returns a table that names the queues 0 to `queues` - 1 (1 to `queues_max`) in turn, except `left_out`. The queues' shares differ by one
/// entry at most. At least one queue MUST remain.
[[nodiscard]] constexpr Table table_for(unsigned queues, unsigned left_out = none) noexcept {
  require(queues != 0 && queues <= queues_max && (queues > 1 || left_out != 0), "ixgbe: no queue is left for RSS", queues);
  Table table{};
  unsigned queue = 0;
  for (auto& entry : table) {
    if (queue == left_out) queue = (queue + 1) % queues;
    entry = static_cast<std::uint8_t>(queue);
    queue = (queue + 1) % queues;
  }
  return table;
}

[[nodiscard]] constexpr unsigned queue_of(const Table& table, std::uint32_t frame_hash) noexcept {
  return table[frame_hash % table_entries];
}

}  // namespace neap::ixgbe::rss
