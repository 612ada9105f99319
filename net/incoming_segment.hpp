// SPDX-License-Identifier: BSL-1.0
// A received TCP segment of any form, after the checks of the IP and TCP headers (stack_segments.cpp). Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernel/net_device.hpp"
#include "net/connection_key.hpp"
#include "net/tcp/options.hpp"

namespace neap::net {

/// The bits of a TCP header's flags (RFC 9293, 3.1; RFC 3168).
namespace flag {
constexpr unsigned fin = 0x01, syn = 0x02, rst = 0x04, psh = 0x08, ack = 0x10, ece = 0x40, cwr = 0x80;
}  // namespace flag

/// Numbers are in host byte order. The segment owns its frame until the payload is taken.
struct IncomingSegment {
  ConnectionKey key;
  std::uint32_t sequence = 0, acknowledgement = 0;
  std::uint32_t window = 0;  ///< not scaled
  unsigned flags = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_at = 0;  ///< the payload's place in the frame
  std::span<const std::byte> option_bytes;
  tcp::Options options;
  bool marked = false;             ///< CE in the IP header (RFC 3168)
  ReceiveBuffer* frame = nullptr;  ///< null once the payload was taken

  [[nodiscard]] bool has(unsigned flags_wanted) const noexcept { return (flags & flags_wanted) != 0; }
  /// SEG.LEN.
  [[nodiscard]] std::uint32_t length() const noexcept { return payload_bytes + ((flags & flag::syn) >> 1) + (flags & flag::fin); }
  [[nodiscard]] ReceiveBuffer* take_frame() noexcept { return std::exchange(frame, nullptr); }
};

}  // namespace neap::net
