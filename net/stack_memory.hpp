// SPDX-License-Identifier: BSL-1.0
// What the peers of one core may make it hold, and what is refused beyond that.
//
// A peer that does not read, or never sends the missing byte, makes its connection hold memory for as long as it likes. The card's ring
// must not run dry for it, and others must be served. So every connection is charged for all that it holds (Connection::held_bytes), and
// the sum of a core has two limits. Above the first one, a connection over its share gets no more payload in: segments still bring
// acknowledgements and resets, and their payload is sent again. Above the second one, the connection that holds most is reset. Frames
// that retain nothing, connections that hold little, and control are never refused. Internal to net/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernel/net_device.hpp"

namespace neap::net::memory {

/// Bytes that the heap takes for `bytes`: steps of 16 up to 128, then four steps to each doubling (kernel/memory/size_classes.hpp).
constexpr std::size_t heap_bytes(std::size_t bytes) noexcept {
  const std::size_t step = bytes <= 128 ? 16 : std::size_t{1} << (std::bit_width(bytes - 1) - 3);
  return (bytes + step - 1) / step * step;
}

/// A card's receive buffer, whatever the frame in it.
constexpr std::size_t card_buffer_bytes = 2048 + sizeof(ReceiveBuffer);
/// Of a queued piece, besides its bytes: header and rounding.
constexpr std::size_t piece_bytes = 64;
/// Of a pbuf that lwIP queues to send, besides its payload: tcp_seg, pbuf, headers, room for more payload (TCP_OVERSIZE), rounding.
constexpr std::size_t segment_bytes = 512;

/// A connection may hold this much while the core is short: some card buffers, so that a request is taken in.
constexpr std::size_t connection_guarantee_bytes = 8 * 1024;
/// The first limit: this share of a core's part of the memory,
constexpr std::size_t core_share = 8;
/// and at least as much.
constexpr std::size_t core_bytes_min = std::size_t{8} * 1024 * 1024;
/// The second limit is so many times the first.
constexpr std::size_t reset_factor = 2;
/// Connections that are looked at for the one to be reset. The next look goes on behind them.
constexpr unsigned reset_candidates = 64;

/// The first limit of a core.
[[nodiscard]] std::size_t core_limit_bytes() noexcept;

/// Blocks that payload is gathered in (gathered_piece.hpp): the first of a connection, and further ones.
constexpr std::size_t first_block_bytes = 512;
constexpr std::size_t block_bytes = 4096;

}  // namespace neap::net::memory
