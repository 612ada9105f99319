// SPDX-License-Identifier: BSL-1.0
// The fields of a received segment that a connection reads. Internal to net/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/segment_headers.hpp"

namespace neap::net {

/// The addresses and ports of a connection's received segments, as they are in a frame: the peer's first.
struct SegmentAddresses {
  std::uint64_t addresses = 0;
  std::uint32_t ports = 0;

  /// Those of the segments in the other direction.
  [[nodiscard]] SegmentAddresses reversed() const noexcept {
    return {.addresses = std::rotl(addresses, 32), .ports = std::rotl(ports, 16)};
  }
  /// Returns a number below 2^`bits`.
  [[nodiscard]] std::size_t hash(unsigned bits) const noexcept {
    return static_cast<std::size_t>(((addresses + ports * 0x9E37'79B9'7F4A'7C15) * 0xBF58'476D'1CE4'E5B9) >> (64 - bits));
  }
  friend bool operator==(const SegmentAddresses&, const SegmentAddresses&) = default;
};

/// A segment with no option but timestamps in their usual form, with ACK, and with no other flag but PSH, in the frame in which it arrived.
/// Numbers are in host byte order.
class ArrivedSegment {
 public:
  /// `header`: the TCP header, with all its bytes in one buffer.
  explicit ArrivedSegment(const std::byte* header) noexcept : header_(header) {}
  [[nodiscard]] std::uint32_t sequence() const noexcept { return read<std::uint32_t>(4); }
  [[nodiscard]] std::uint32_t acknowledgement() const noexcept { return read<std::uint32_t>(8); }
  [[nodiscard]] std::uint16_t window() const noexcept { return read<std::uint16_t>(14); }  ///< not scaled
  [[nodiscard]] const std::byte* options() const noexcept { return header_ + SegmentHeaders::tcp_header_bytes; }

 private:
  template <typename T>
  [[nodiscard]] T read(std::size_t at) const noexcept {
    T value;
    std::memcpy(&value, header_ + at, sizeof value);
    return std::byteswap(value);
  }

  const std::byte* header_;
};

}  // namespace neap::net
