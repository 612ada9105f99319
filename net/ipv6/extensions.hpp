// SPDX-License-Identifier: BSL-1.0
// Extension headers of received packets (RFC 8200, 4).
//
// A packet may have any chain of extension headers, which a peer can make long and odd. The walk here has a bound for headers and options,
// and ends at the first header that it does not skip. Internal to net/.
#pragma once

#include <cstdint>

#include "net/ipv6/packet.hpp"

namespace neap::net::ipv6 {

constexpr unsigned extension_headers_max = 8, options_max = 16;

struct Extensions {
  enum class Result : std::uint8_t {
    upper,     ///< `next` at `offset` is no extension header
    fragment,  ///< `offset` is that of a fragment header that does not hold a whole packet
    drop,      ///< the packet is malformed or beyond the bounds
    problem,   ///< the packet is dropped; a parameter problem with `code` and `pointer` is reported to the sender
  };
  Result result = Result::upper;
  std::uint8_t next = next_header::none;
  std::uint8_t code = 0;
  bool even_to_groups = false;   ///< the problem is reported even if the packet was sent to a group
  bool fragmented = false;       ///< the packet had a fragment header, which held all of it (RFC 6946)
  bool router_alert = false;     ///< RFC 2711
  std::uint32_t offset = 0;      ///< from the start of the packet
  std::uint32_t next_field = 6;  ///< offset of the field that holds `next`
  std::uint32_t pointer = 0;
};

/// Walks the headers of `packet`, which MUST hold the whole packet (the fixed header and its payload bytes).
[[nodiscard]] Extensions parse_extensions(Octets packet) noexcept;

}  // namespace neap::net::ipv6
