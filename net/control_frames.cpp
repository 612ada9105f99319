// SPDX-License-Identifier: BSL-1.0
#include "net/control_frames.hpp"

#include "net/network.hpp"

namespace neap::net {

constinit std::atomic<std::uint32_t> control_ports{0};

namespace {

unsigned read_u16(const std::byte* at) noexcept { return std::to_integer<unsigned>(at[0]) << 8 | std::to_integer<unsigned>(at[1]); }

}  // namespace

Result<void> count_as_control(std::uint16_t port) {
  if (port == 0) return failure(ErrorCode::invalid, "net: port 0 is not a port");
  std::uint32_t ports = control_ports.load(std::memory_order_relaxed);
  for (;;) {
    if ((ports & 0xFFFF) == port || ports >> 16 == port) return {};
    if (ports >> 16 != 0) return failure(ErrorCode::full, "net: two ports are counted as control already", port);
    const std::uint32_t more = ports << 16 | port;
    if (control_ports.compare_exchange_weak(ports, more, std::memory_order_relaxed)) return {};
  }
}

bool has_control_port(const std::byte* frame, std::size_t bytes, LocalPort where) noexcept {
  constexpr std::size_t ethernet_bytes = 14, ip_bytes_min = 20, ipv6_bytes = 40;
  constexpr unsigned ethertype_ipv4 = 0x0800, ethertype_ipv6 = 0x86DD, protocol_tcp = 6;
  constexpr unsigned fragment_mask = 0x3FFF;  // RFC 791: the flag "more fragments" and the fragment offset
  if (bytes < ethernet_bytes + ip_bytes_min) return false;
  const std::byte* const ip = frame + ethernet_bytes;
  if (read_u16(frame + 12) == ethertype_ipv6) {
    const std::size_t port_at = ethernet_bytes + ipv6_bytes + static_cast<std::size_t>(where);
    return std::to_integer<unsigned>(ip[6]) == protocol_tcp && bytes >= port_at + 2 &&
           is_control_port(static_cast<std::uint16_t>(read_u16(frame + port_at)));
  }
  if (read_u16(frame + 12) != ethertype_ipv4) return false;
  if (std::to_integer<unsigned>(ip[9]) != protocol_tcp || (read_u16(ip + 6) & fragment_mask) != 0) return false;
  const std::size_t port_at = ethernet_bytes + (std::to_integer<std::size_t>(ip[0]) & 0xF) * 4 + static_cast<std::size_t>(where);
  if (bytes < port_at + 2) return false;
  return is_control_port(static_cast<std::uint16_t>(read_u16(frame + port_at)));
}

}  // namespace neap::net
