// SPDX-License-Identifier: BSL-1.0
// Which frames are not the application's.
//
// Whoever watches a machine over its own network sends frames through the same queues as the application. To subtract them they are counted
// apart (log::count_control), by the TCP port that control listens on. Fragments are not told apart: their ports are not in each of them.
// Internal to net/.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace neap::net {

/// Up to two ports in its halves; 0: none.
extern constinit std::atomic<std::uint32_t> control_ports;

/// True if connections of this local port are control's. They have connections and memory of their own (stack_memory.hpp).
[[nodiscard]] inline bool is_control_port(std::uint16_t port) noexcept {
  const std::uint32_t ports = control_ports.load(std::memory_order_relaxed);
  return port != 0 && (port == (ports & 0xFFFF) || port == ports >> 16);
}

/// Where in a TCP header our own port is.
enum class LocalPort : std::uint8_t { source = 0, destination = 2 };

/// `frame` begins with the Ethernet header; `bytes` of it lie there.
[[nodiscard]] bool has_control_port(const std::byte* frame, std::size_t bytes, LocalPort where) noexcept;

/// The test that every frame pays for.
[[nodiscard]] inline bool is_control_frame(const std::byte* frame, std::size_t bytes, LocalPort where) noexcept {
  return control_ports.load(std::memory_order_relaxed) != 0 && has_control_port(frame, bytes, where);
}

}  // namespace neap::net
