// SPDX-License-Identifier: BSL-1.0
// The fields of a received segment that a connection reads. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neap::net {

/// The addresses and ports of a connection's received segments, as they are in a frame: the peer's first.
struct SegmentAddresses {
  std::uint64_t addresses = 0;
  std::uint32_t ports = 0;

  [[nodiscard]] static SegmentAddresses of(std::uint32_t from, std::uint32_t to, std::uint16_t from_port, std::uint16_t to_port) noexcept {
    return {.addresses = std::uint64_t{to} << 32 | from, .ports = std::uint32_t{to_port} << 16 | from_port};
  }
  /// Returns a number below 2^`bits`.
  [[nodiscard]] std::size_t hash(unsigned bits) const noexcept {
    return static_cast<std::size_t>(((addresses + ports * 0x9E37'79B9'7F4A'7C15) * 0xBF58'476D'1CE4'E5B9) >> (64 - bits));
  }
  friend bool operator==(const SegmentAddresses&, const SegmentAddresses&) = default;
};

/// A segment without options, with ACK, and with no other flag but PSH. Numbers are in host byte order.
struct ArrivedSegment {
  std::uint32_t sequence, acknowledgement;
  std::uint32_t bytes;   ///< of payload
  std::uint16_t window;   ///< not scaled
  std::uint16_t buffers;  ///< receive buffers of the frame, which hold all payload
  const std::byte* payload;
};

}  // namespace neap::net
