// SPDX-License-Identifier: BSL-1.0
// What a stack sends without a connection's state: resets, cookies, and the answers of TIME-WAIT. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "net/connection_key.hpp"

namespace neap::net {

/// A segment without payload that belongs to no connection, or to one that ends.
struct BareSegment {
  ConnectionKey sent;  ///< of this segment
  std::uint32_t sequence = 0, acknowledgement = 0;
  unsigned flags = 0;
  std::uint16_t window = 0;
  std::span<const std::byte> options{};
};

}  // namespace neap::net
