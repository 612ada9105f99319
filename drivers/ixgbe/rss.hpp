// SPDX-License-Identifier: BSL-1.0
// Which core gets a frame.
//
// A connection lives on the core to which the card sends its frames, so that nothing of it is ever shared. The card decides by receive-side
// scaling: a Toeplitz hash of addresses and ports, its low seven bits an index into a table of 128 four-bit entries (82599
// datasheet 7.1.2.8). The table can name any queue, so any number of cores from 1 to 16 works; for counts that do not divide 128 some
// queues own one entry more than others.
//
// Who opens a connection wants the answers on its own core, and so must know the hash beforehand: the key is fixed (kernel/toeplitz.hpp).
#pragma once

#include <array>
#include <cstdint>

namespace neap::ixgbe::rss {

constexpr unsigned queues_max = 16;  // an entry has four bits
constexpr unsigned table_entries = 128;

using Table = std::array<std::uint8_t, table_entries>;

constexpr unsigned none = ~0U;

/// Entries name the queues 0 to `queues` - 1 (1 to `queues_max`) but `left_out` in turn: shares differ by one entry at most. Somebody must
/// be left.
[[nodiscard]] constexpr Table table_for(unsigned queues, unsigned left_out = none) noexcept {
  Table table{};
  unsigned queue = 0;
  for (auto& entry : table) {
    if (queue == left_out) queue = (queue + 1) % queues;
    entry = static_cast<std::uint8_t>(queue);
    queue = (queue + 1) % queues;
  }
  return table;
}

/// The queue of a frame with this hash.
[[nodiscard]] constexpr unsigned queue_of(const Table& table, std::uint32_t frame_hash) noexcept {
  return table[frame_hash % table_entries];
}

}  // namespace neap::ixgbe::rss
