// SPDX-License-Identifier: BSL-1.0
// The fields of a received segment that a connection reads. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neap::net {

/// A segment without options, with ACK, and with no other flag but PSH. Numbers are in host byte order.
struct ArrivedSegment {
  std::uint32_t sequence, acknowledgement;
  std::uint32_t bytes;     ///< of payload
  std::uint16_t window;    ///< not scaled
  const std::byte* payload;
};

}  // namespace neap::net
