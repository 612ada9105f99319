// SPDX-License-Identifier: BSL-1.0
// What a frame's headers ask of the card.
//
// lwIP leaves checksums to the card (stack.cpp). Which, and where the headers end, is read from the frame itself, and the card wants their
// fields prepared. Internal to net/.
#pragma once

#include <cstdint>

#include "kernel/net_device.hpp"

struct ip_hdr;
struct pbuf;

namespace neap::net {

/// Folded, not inverted sum of the pseudo-header (RFC 9293, 3.1), in the byte order that it has in the packet.
[[nodiscard]] std::uint16_t pseudo_header_sum(const ip_hdr& ip, std::uint16_t l4_bytes) noexcept;

/// Tells the card which checksums to fill in, and prepares their fields. The headers lie in the first piece; nobody else reads it yet.
[[nodiscard]] TransmitOffload offload_checksums(pbuf& first) noexcept;

}  // namespace neap::net
