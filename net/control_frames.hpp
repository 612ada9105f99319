// SPDX-License-Identifier: BSL-1.0
// Distinguishes frames of control connections (observe/control.hpp) from the application's frames.
//
// A client that observes a machine over the machine's own network sends frames through the application's queues. These frames are counted
// separately (log::count_control), so that an experiment can subtract them. The criterion is the TCP port that control listens on.
// Fragments always count as the application's, because only a datagram's first fragment carries the ports. Internal to net/.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace neap::net {

/// Up to two ports, one in the low and one in the high 16 bits; 0: none.
extern constinit std::atomic<std::uint32_t> control_ports;

/// True if this local port is control's. Control has reserved connections and is exempt from memory limits (stack_memory.hpp).
[[nodiscard]] inline bool is_control_port(std::uint16_t port) noexcept {
  const std::uint32_t ports = control_ports.load(std::memory_order_relaxed);
  return port != 0 && (port == (ports & 0xFFFF) || port == ports >> 16);
}

/// The offset of the local port in a TCP header: `source` for sent frames, `destination` for received ones.
enum class LocalPort : std::uint8_t { source = 0, destination = 2 };

/// True if the frame's TCP port at `where` is control's. `frame` begins with the Ethernet header; its first `bytes` bytes are readable.
[[nodiscard]] bool has_control_port(const std::byte* frame, std::size_t bytes, LocalPort where) noexcept;

/// True if the frame belongs to control. Called for every frame. In a datagram without options (RFC 791: a header of five words) the port
/// has a fixed place, so one look at that place rejects almost all frames.
[[nodiscard]] inline bool is_control_frame(const std::byte* frame, std::size_t bytes, LocalPort where) noexcept {
  if (control_ports.load(std::memory_order_relaxed) == 0) return false;
  constexpr std::size_t ip_at = 14, tcp_at = ip_at + 20;
  constexpr std::byte version_4_without_options{0x45};
  if (bytes >= tcp_at + 4 && frame[ip_at] == version_4_without_options) {
    const std::byte* const port = frame + tcp_at + static_cast<std::size_t>(where);
    const unsigned number = std::to_integer<unsigned>(port[0]) << 8 | std::to_integer<unsigned>(port[1]);
    if (!is_control_port(static_cast<std::uint16_t>(number))) return false;
  }
  return has_control_port(frame, bytes, where);
}

}  // namespace neap::net
