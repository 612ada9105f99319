// SPDX-License-Identifier: BSL-1.0
// Which core gets a frame.
//
// A connection lives on the core to which the card sends its frames, so that nothing of it is ever shared. The card decides by receive-side
// scaling: a Toeplitz hash of addresses and ports, its low seven bits an index into a table of 128 four-bit entries (82599
// datasheet 7.1.2.8). The table can name any queue, so any number of cores from 1 to 16 works; for counts that do not divide 128 some
// queues own one entry more than others.
//
// Who opens a connection wants the answers on its own core, and so must know the hash beforehand: the key is fixed, and `hash` is the
// card's function.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace neap::ixgbe::rss {

constexpr unsigned queues_max = 16;  // an entry has four bits
constexpr unsigned table_entries = 128;

/// The verification key of the public RSS specification: its published hashes are our test vectors.
constexpr std::array<std::uint8_t, 40> key = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
                                              0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
                                              0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

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

/// Toeplitz hash of `input`, at most 36 bytes, in the order in which they stand in the frame.
[[nodiscard]] constexpr std::uint32_t hash(std::span<const std::uint8_t> input) noexcept {
  std::uint32_t result = 0;
  std::uint64_t window = 0;  // its upper half: the 32 key bits that belong to the present input bit
  for (unsigned i = 0; i < 4; ++i) window = window << 8 | key[i];
  window <<= 32;
  for (std::size_t i = 0; i < input.size(); ++i) {
    window |= std::uint64_t{key[i + 4]} << 24;
    for (unsigned bit = 8; bit-- > 0; window <<= 1) {
      if ((input[i] >> bit & 1) != 0) result ^= static_cast<std::uint32_t>(window >> 32);
    }
  }
  return result;
}

/// The hash of a TCP or UDP frame over IPv4. Addresses and ports in host byte order.
[[nodiscard]] constexpr std::uint32_t hash_ipv4(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                                std::uint16_t destination_port) noexcept {
  std::array<std::uint8_t, 12> input{};
  for (unsigned i = 0; i < 4; ++i) {
    input[i] = static_cast<std::uint8_t>(source_ip >> (24 - 8 * i));
    input[4 + i] = static_cast<std::uint8_t>(destination_ip >> (24 - 8 * i));
  }
  for (unsigned i = 0; i < 2; ++i) {
    input[8 + i] = static_cast<std::uint8_t>(source_port >> (8 - 8 * i));
    input[10 + i] = static_cast<std::uint8_t>(destination_port >> (8 - 8 * i));
  }
  return hash(input);
}

/// The queue of a frame with this hash.
[[nodiscard]] constexpr unsigned queue_of(const Table& table, std::uint32_t frame_hash) noexcept {
  return table[frame_hash % table_entries];
}

}  // namespace neap::ixgbe::rss
