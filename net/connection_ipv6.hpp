// SPDX-License-Identifier: BSL-1.0
// The part of a connection over IPv6 that a connection over IPv4 does not have.
//
// Addresses of IPv6 need 24 bytes more, and the headers that are the same in all segments of a connection 60 bytes. Idle connections over
// IPv4 would pay for them. So they are an object of their own, which a connection over IPv6 owns. Internal to net/.
#pragma once

#include <cstdint>

#include "net/segment_headers_ipv6.hpp"

namespace neap::net {

struct ConnectionIpv6 {
  Ipv6Headers headers;           ///< of sent segments; the MAC address, the hop limit and `checksum` are valid while `generation` is
  std::uint16_t checksum = 0;    ///< the sum of the pseudo-header without the length
  std::uint32_t generation = 0;  ///< of `StackIpv6::generation`; 0: never resolved
  std::uint32_t resolved_s = 0;  ///< when the neighbour was last resolved
  std::uint32_t progress = 0;    ///< the sum of the acknowledged and the received number then

  /// RFC 4861, 7.3: a neighbour is unreachable after 30 s without a confirmation. It is resolved, and confirmed, more often.
  static constexpr std::uint32_t resolve_interval_s = 4;

  [[nodiscard]] bool is_resolved(std::uint32_t now_generation, std::uint32_t now_s) const noexcept {
    return generation == now_generation && now_s - resolved_s < resolve_interval_s;
  }
};

/// The flow label of segments with these addresses and ports (RFC 6437, 3): the same for all of them, and not predictable. 20 bits.
[[nodiscard]] std::uint32_t flow_label(const tcp::SegmentAddresses6& sent) noexcept;

}  // namespace neap::net
