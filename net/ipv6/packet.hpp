// SPDX-License-Identifier: BSL-1.0
// Headers of IPv6 and ICMPv6 as they are in a frame. Internal to net/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "kernel/net_device.hpp"
#include "net/address.hpp"

namespace neap::net::ipv6 {

using Octets = std::span<const std::byte>;

constexpr std::size_t ethernet_bytes = 14;
constexpr std::uint16_t ethertype = 0x86DD;
constexpr std::size_t header_bytes = 40;
constexpr std::uint16_t mtu_min = 1280;   ///< RFC 8200, 5
constexpr std::uint16_t mtu_link = 1500;  ///< RFC 2464, 2, without jumbo frames
constexpr std::uint64_t never = ~std::uint64_t{0};

/// Numbers of headers (IANA's registry of protocol numbers).
namespace next_header {
constexpr std::uint8_t hop_by_hop = 0, tcp = 6, udp = 17, routing = 43, fragment = 44, icmp = 58, none = 59, destination_options = 60;
}

/// Types of ICMPv6 messages (RFC 4443, RFC 4861, RFC 2710, RFC 3810).
namespace icmp {
constexpr std::uint8_t unreachable = 1, too_big = 2, time_exceeded = 3, parameter_problem = 4, echo_request = 128, echo_reply = 129,
                       listener_query = 130, listener_report_1 = 131, listener_done_1 = 132, router_solicitation = 133,
                       router_advertisement = 134, neighbour_solicitation = 135, neighbour_advertisement = 136, redirect = 137,
                       listener_report_2 = 143;
constexpr std::uint8_t code_address_unreachable = 3, code_port_unreachable = 4;                         ///< of `unreachable`
constexpr std::uint8_t code_reassembly = 1;                                                             ///< of `time_exceeded`
constexpr std::uint8_t code_field = 0, code_next_header = 1, code_option = 2, code_first_fragment = 3;  ///< of `parameter_problem`
constexpr std::size_t header_bytes = 8;
}  // namespace icmp

constexpr Address all_nodes{0xFF02'0000'0000'0000, 1}, all_routers{0xFF02'0000'0000'0000, 2}, all_listeners_2{0xFF02'0000'0000'0000, 0x16};

[[nodiscard]] constexpr unsigned octet(Octets bytes, std::size_t at) noexcept { return std::to_integer<unsigned>(bytes[at]); }
[[nodiscard]] constexpr std::uint16_t read_16(Octets bytes, std::size_t at) noexcept {
  return static_cast<std::uint16_t>(octet(bytes, at) << 8 | octet(bytes, at + 1));
}
[[nodiscard]] constexpr std::uint32_t read_32(Octets bytes, std::size_t at) noexcept {
  return std::uint32_t{read_16(bytes, at)} << 16 | read_16(bytes, at + 2);
}
constexpr void write_16(std::byte* at, unsigned value) noexcept {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value);
}
constexpr void write_32(std::byte* at, std::uint32_t value) noexcept {
  write_16(at, value >> 16);
  write_16(at + 2, value & 0xFFFF);
}
[[nodiscard]] inline MacAddress read_mac(Octets bytes, std::size_t at) noexcept {
  MacAddress mac;
  std::memcpy(mac.data(), bytes.data() + at, mac.size());
  return mac;
}

/// The fixed header (RFC 8200, 3).
struct Header {
  std::uint16_t payload_bytes = 0;
  std::uint8_t next = next_header::none, hops = 64;
  Address from{}, to{};
  std::uint32_t flow = 0;  ///< traffic class and flow label

  /// Reads the header of a packet of at least `header_bytes` bytes.
  [[nodiscard]] static Header read(Octets packet) noexcept {
    return {.payload_bytes = read_16(packet, 4),
            .next = static_cast<std::uint8_t>(octet(packet, 6)),
            .hops = static_cast<std::uint8_t>(octet(packet, 7)),
            .from = Address::read(packet.data() + 8),
            .to = Address::read(packet.data() + 24)};
  }
  void write(std::byte* out) const noexcept {
    write_32(out, 0x6000'0000 | flow);
    write_16(out + 4, payload_bytes);
    out[6] = static_cast<std::byte>(next);
    out[7] = static_cast<std::byte>(hops);
    from.write(out + 8);
    to.write(out + 24);
  }
};

/// Adds the 16-bit words of `bytes` to `sum`. Only the last of several pieces may have an odd length.
[[nodiscard]] constexpr std::uint64_t add_to_sum(std::uint64_t sum, Octets bytes) noexcept {
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) sum += read_32(bytes, i);
  if (i + 2 <= bytes.size()) sum += read_16(bytes, i), i += 2;
  if (i < bytes.size()) sum += octet(bytes, i) << 8;
  return sum;
}
[[nodiscard]] constexpr std::uint16_t fold(std::uint64_t sum) noexcept {
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}
/// Returns the folded sum of the pseudo-header (RFC 8200, 8.1) and of `bytes`; 0xFFFF if `bytes` hold a right checksum.
[[nodiscard]] inline std::uint16_t transport_sum(const Address& from, const Address& to, std::uint8_t protocol, Octets bytes,
                                                 Octets more = {}) noexcept {
  std::array<std::byte, 32> addresses;
  from.write(addresses.data());
  to.write(addresses.data() + 16);
  const std::uint64_t sum = add_to_sum(bytes.size() + more.size() + protocol, addresses);
  return fold(add_to_sum(add_to_sum(sum, bytes), more));
}

/// The MAC address of a group (RFC 2464, 7).
[[nodiscard]] constexpr MacAddress mac_of_group(const Address& group) noexcept {
  const std::uint64_t low = group.low();
  const auto part = [low](unsigned shift) { return static_cast<std::uint8_t>(low >> shift); };
  return {0x33, 0x33, part(24), part(16), part(8), part(0)};
}

/// True if packets may come from this address: no group, no loopback, no IPv4 address in IPv6's form (RFC 4291, 2.5 and 2.7). The
/// unspecified address is valid in a few messages only, so it is not accepted here.
[[nodiscard]] constexpr bool valid_source(const Address& address) noexcept {
  return !address.is_multicast() && !address.is_loopback() && !address.is_v4() && !address.is_unspecified();
}

/// Transmits packets and knows the time. It is the stack of the first core, or a test.
class Link {
 public:
  virtual ~Link() = default;
  /// Sends an IPv6 packet, `head` and `body` put together, in one frame. The packet is copied. A full ring drops it, which is counted.
  virtual void transmit(const MacAddress& to, Octets head, Octets body) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t now_ms() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t random_bits() noexcept = 0;
};

/// A limit of events: `burst` at once, then one each `period_ms`.
class RateLimit {
 public:
  constexpr RateLimit(unsigned burst, unsigned period_ms) noexcept : burst_(burst), period_ms_(period_ms) {}
  [[nodiscard]] bool take(std::uint64_t now_ms) noexcept {
    // `empty_ms_` is the time at which all tokens of the bucket will have come back.
    const std::uint64_t full = empty_ms_ > now_ms ? empty_ms_ : now_ms;
    if (full + period_ms_ > now_ms + std::uint64_t{burst_} * period_ms_) return false;
    empty_ms_ = full + period_ms_;
    return true;
  }

 private:
  unsigned burst_, period_ms_;
  std::uint64_t empty_ms_ = 0;
};

}  // namespace neap::net::ipv6
