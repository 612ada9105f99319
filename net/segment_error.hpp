// SPDX-License-Identifier: BSL-1.0
// An ICMP error about a segment that this machine may have sent (RFC 792). Any core may receive it, so it is copied from core to core until
// the core of the connection has it. Internal to net/.
#pragma once

#include <cstdint>

#include "net/connection_key.hpp"

namespace neap::net {

/// Numbers are in host byte order.
struct SegmentError {
  SegmentAddresses sent;              ///< of the quoted segment
  std::uint32_t sequence = 0;         ///< of the quoted segment
  std::uint8_t type = 0, code = 0;    ///< of ICMP
  std::uint16_t next_hop_mtu = 0;     ///< RFC 1191, 4; 0: the router does not say
  std::uint16_t quoted_ip_bytes = 0;  ///< total length of the quoted packet
};

}  // namespace neap::net
