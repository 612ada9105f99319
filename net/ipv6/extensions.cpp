// SPDX-License-Identifier: BSL-1.0
#include "net/ipv6/extensions.hpp"

namespace neap::net::ipv6 {

namespace {

constexpr unsigned option_pad_1 = 0, option_pad_n = 1, option_router_alert = 5;

Extensions problem(std::uint8_t code, std::size_t pointer, bool even_to_groups = false) noexcept {
  return {.result = Extensions::Result::problem,
          .code = code,
          .even_to_groups = even_to_groups,
          .pointer = static_cast<std::uint32_t>(pointer)};
}
Extensions dropped() noexcept { return {.result = Extensions::Result::drop}; }

/// Checks the options between `at` and `end` (RFC 8200, 4.2). Returns the reason for a refusal, or `upper`.
Extensions check_options(Octets packet, std::size_t at, std::size_t end, unsigned& options, bool& router_alert) noexcept {
  while (at < end) {
    const unsigned type = octet(packet, at);
    if (type == option_pad_1) {
      ++at;
      continue;
    }
    if (at + 2 > end) return dropped();
    const std::size_t bytes = octet(packet, at + 1);
    if (at + 2 + bytes > end || ++options > options_max) return dropped();
    if (type == option_router_alert && bytes == 2) {
      router_alert = true;
    } else if (type != option_pad_n) {
      switch (type >> 6) {  // what to do with an option that is not known
        case 0:
          break;
        case 1:
          return dropped();
        case 2:
          return problem(icmp::code_option, at, true);
        default:
          return problem(icmp::code_option, at);
      }
    }
    at += 2 + bytes;
  }
  return {};
}

}  // namespace

Extensions parse_extensions(Octets packet) noexcept {
  Extensions found{.next = static_cast<std::uint8_t>(octet(packet, 6)), .offset = header_bytes};
  unsigned options = 0;
  for (unsigned headers = 0; headers <= extension_headers_max; ++headers) {
    const std::size_t at = found.offset;
    const bool has_options = found.next == next_header::hop_by_hop || found.next == next_header::destination_options;
    if (!has_options && found.next != next_header::routing && found.next != next_header::fragment) return found;
    if (at + 8 > packet.size()) return dropped();
    // RFC 8200, 4.1: hop-by-hop options only follow the fixed header. Elsewhere the number is no known header.
    if (found.next == next_header::hop_by_hop && headers > 0) return problem(icmp::code_next_header, found.next_field);
    std::size_t bytes = 8;
    if (found.next == next_header::fragment) {
      constexpr unsigned offset_and_more = 0xFFF9;
      if ((read_16(packet, at + 2) & offset_and_more) != 0) {
        found.result = Extensions::Result::fragment;
        return found;
      }
      found.fragmented = true;
    } else {
      bytes += octet(packet, at + 1) * std::size_t{8};
      if (at + bytes > packet.size()) return dropped();
    }
    if (has_options) {
      const Extensions checked = check_options(packet, at + 2, at + bytes, options, found.router_alert);
      if (checked.result != Extensions::Result::upper) return checked;
    }
    // No type of routing header is supported, type 0 included (RFC 5095). RFC 8200, 4.4: a header without segments left is skipped.
    if (found.next == next_header::routing && octet(packet, at + 3) != 0) return problem(icmp::code_field, at + 2);
    found.next = static_cast<std::uint8_t>(octet(packet, at));
    found.next_field = static_cast<std::uint32_t>(at);
    found.offset = static_cast<std::uint32_t>(at + bytes);
  }
  return dropped();
}

}  // namespace neap::net::ipv6
