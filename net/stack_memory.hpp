// SPDX-License-Identifier: BSL-1.0
// Limits for the memory that peers can make a core hold.
//
// A peer that does not read, or never sends a missing byte, makes its connection hold more and more memory. Nevertheless the card's receive
// ring must not run empty, and other peers must be served. So every connection is charged for all memory that it holds
// (Connection::held_bytes), and the sum for a core has two limits. Connections that hold more than a guaranteed amount share the first
// limit equally. Above the first limit, payload for a connection over its share is refused. The connection's segments still deliver
// acknowledgements and resets, and the peer sends the payload again. Above the second limit, the connection that holds the most is reset.
// Control, connections below the guaranteed amount, and frames without payload are exempt. Internal to net/.
#pragma once

#include <cstddef>

#include "kernel/memory/size_classes.hpp"
#include "kernel/net_device.hpp"

namespace neap::net::memory {

using neap::memory::heap_bytes;

/// The memory of one of the card's receive buffers, for a frame of any size.
constexpr std::size_t card_buffer_bytes = 2048 + sizeof(ReceiveBuffer);
/// The overhead of a queued piece: header and rounding.
constexpr std::size_t piece_bytes = 64;
/// The overhead of a pbuf in lwIP's send queue: tcp_seg, pbuf, headers, room for more payload (TCP_OVERSIZE) and rounding.
constexpr std::size_t segment_bytes = 512;
/// The memory of a frame in which a handler writes a reply (Connection::frame), however short the reply is. A connection has at most one.
constexpr std::size_t frame_bytes = heap_bytes(1600);

/// A connection may hold this much even while the core is short of memory. It is enough for one request (a few card buffers).
constexpr std::size_t connection_guarantee_bytes = 8 * 1024;
/// The first limit is 1/`core_share` of a core's equal part of the machine's memory, but at least `core_bytes_min`.
constexpr std::size_t core_share = 8;
constexpr std::size_t core_bytes_min = std::size_t{8} * 1024 * 1024;
/// The second limit, as a multiple of the first.
constexpr std::size_t reset_factor = 2;
/// The number of connections that one search compares to find the connection to reset. The next search continues after these connections.
constexpr unsigned reset_candidates = 64;

/// Returns the first limit of a core, in bytes.
[[nodiscard]] std::size_t core_limit_bytes() noexcept;

/// Sizes of the blocks for gathered payload (gathered_piece.hpp): a connection's first block, and further ones.
constexpr std::size_t first_block_bytes = 512;
constexpr std::size_t block_bytes = 4096;

}  // namespace neap::net::memory
