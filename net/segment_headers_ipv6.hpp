// SPDX-License-Identifier: BSL-1.0
// The headers of a TCP segment over IPv6 and Ethernet, without options, as they are in a frame. Internal to net/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/segment_headers.hpp"
#include "net/tcp/connection_table.hpp"

namespace neap::net {

/// The headers up to the ports. Nearly all of them are the same in all segments that a connection sends. Two unused bytes align the IP
/// header. Fields are in the order of RFC 894 and RFC 8200.
struct Ipv6Headers {
  std::uint16_t unused = 0;
  std::uint8_t to_mac[6]{}, from_mac[6]{};
  Big<std::uint16_t> ethertype{0x86DD};
  Big<std::uint32_t> version_and_flow{0x6000'0000};  ///< version, traffic class, flow label
  Big<std::uint16_t> payload_bytes{0};
  std::uint8_t next = 6, hops = 0;
  std::uint32_t addresses[8]{};  ///< the sender's first
  std::uint32_t ports = 0;

  [[nodiscard]] tcp::SegmentAddresses6 key() const noexcept {
    tcp::SegmentAddresses6 key{.addresses = {}, .ports = ports};
    std::memcpy(&key.addresses, addresses, sizeof addresses);
    return key;
  }
  /// True if these are the headers of segments in the other direction.
  [[nodiscard]] bool answers(const tcp::SegmentAddresses6& key) const noexcept {
    constexpr std::size_t half = sizeof addresses / 2;
    return std::memcmp(addresses, &key.addresses[2], half) == 0 && std::memcmp(addresses + 4, key.addresses.data(), half) == 0 &&
           ports == std::rotl(key.ports, 16);
  }
  void set_key(const tcp::SegmentAddresses6& key) noexcept {
    std::memcpy(addresses, &key.addresses, sizeof addresses);
    ports = key.ports;
  }
};

struct SegmentHeaders6 {
  Ipv6Headers ip;
  Big<std::uint32_t> sequence, acknowledgement;
  Big<std::uint16_t> length_and_flags;  ///< as in `SegmentHeaders`
  Big<std::uint16_t> window;
  std::uint16_t tcp_checksum;
  Big<std::uint16_t> urgent;

  static constexpr std::size_t ethernet_bytes = 14, ip_header_bytes = 40, tcp_header_bytes = 20;
  static constexpr std::size_t bytes = ethernet_bytes + ip_header_bytes + tcp_header_bytes;
  static constexpr std::uint32_t congestion_bits = 3U << 20;  ///< ECN's, of the first word (RFC 8200, 7)

  /// Also sets `urgent`, to 0.
  void set_checksum(std::uint16_t checksum) noexcept {
    tcp_checksum = checksum;
    urgent = 0;
  }
};
static_assert(sizeof(Ipv6Headers) == 60 && sizeof(SegmentHeaders6) == SegmentHeaders6::bytes + 2);
static_assert(offsetof(Ipv6Headers, addresses) == 2 + 14 + 8);

}  // namespace neap::net
