// SPDX-License-Identifier: BSL-1.0
// The headers of a TCP segment over IPv4 and Ethernet, without options, as they are in a frame. Internal to net/.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace neap::net {

static_assert(std::endian::native == std::endian::little);

/// A number in network byte order, which is converted when it is read or written.
template <typename T>
class Big {
 public:
  Big() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): it is used like a number
  constexpr Big(T value) noexcept : bytes_(std::byteswap(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr operator T() const noexcept { return std::byteswap(bytes_); }
  /// The bytes as they are in the frame.
  [[nodiscard]] constexpr T raw() const noexcept { return bytes_; }
  constexpr void set_raw(T bytes) noexcept { bytes_ = bytes; }

 private:
  T bytes_;
};

/// Two unused bytes align the IP header. Fields are in the order of RFC 894, RFC 791 and RFC 9293.
struct SegmentHeaders {
  std::uint16_t unused;
  std::uint8_t to_mac[6], from_mac[6];
  Big<std::uint16_t> ethertype;
  std::uint8_t version_and_length, service;
  Big<std::uint16_t> ip_bytes, id, fragment;
  std::uint8_t time_to_live, protocol;
  std::uint16_t ip_checksum;
  Big<std::uint32_t> from, to;
  Big<std::uint16_t> from_port, to_port;
  Big<std::uint32_t> sequence, acknowledgement;
  Big<std::uint16_t> length_and_flags;  // the upper four bits: the header's length in words of four bytes
  Big<std::uint16_t> window;
  std::uint16_t tcp_checksum;
  Big<std::uint16_t> urgent;

  static constexpr std::size_t ethernet_bytes = 14, ip_header_bytes = 20, tcp_header_bytes = 20;
  static constexpr std::size_t bytes = ethernet_bytes + ip_header_bytes + tcp_header_bytes;
  static constexpr std::uint8_t version_4_without_options = 0x45;
  static constexpr std::uint16_t no_options = 5 << 12;

  /// Reads the headers at the start of a frame, which MUST hold `bytes` bytes.
  void read(const void* frame) noexcept { std::memcpy(to_mac, frame, bytes); }
  /// Writes the headers into `other`, including the unused bytes.
  void copy_to(SegmentHeaders& other) const noexcept { std::memcpy(&other, this, sizeof other); }
};
static_assert(sizeof(SegmentHeaders) == SegmentHeaders::bytes + 2);

}  // namespace neap::net
