// SPDX-License-Identifier: BSL-1.0
// Determines the checksum offload that a frame needs.
//
// lwIP leaves checksums to the card (stack.cpp). The frame itself shows which checksums it needs and where its headers end. The card
// expects the pseudo-header's sum in the checksum fields of TCP and UDP. A card may leave the checksum of the IPv4 header to the stack.
// Internal to net/.
#pragma once

#include <cstdint>

#include "kernel/net_device.hpp"

struct ip_hdr;
struct pbuf;

namespace neap::net {

/// Returns the folded, not inverted sum of the pseudo-header (RFC 9293, 3.1), in the packet's byte order.
[[nodiscard]] std::uint16_t pseudo_header_sum(const ip_hdr& ip, std::uint16_t l4_bytes) noexcept;

/// Returns the checksums that the card must fill in, and writes the pseudo-header's sum into `first`, which MUST hold all headers. The card
/// MUST NOT be reading `first`. `ip_header_offload`: as in `NetDeviceLimits`.
[[nodiscard]] TransmitOffload offload_checksums(pbuf& first, bool ip_header_offload) noexcept;

}  // namespace neap::net
