// SPDX-License-Identifier: BSL-1.0
// The headers of a TCP segment over IPv4 and Ethernet, without options, as they are in a frame. Internal to net/.
#pragma once

#include <bit>
#include <cstddef>
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
  /// Also sets `urgent`, to 0.
  void set_checksum(std::uint16_t checksum) noexcept {
    const std::uint32_t both = checksum;
    std::memcpy(reinterpret_cast<std::byte*>(this) + offsetof(SegmentHeaders, tcp_checksum), &both, sizeof both);
  }
};
static_assert(sizeof(SegmentHeaders) == SegmentHeaders::bytes + 2);

/// The part of a frame's headers that is the same for all connections of a core. It is the part of `SegmentHeaders` from `from_mac` on.
struct CommonHeaders {
  std::uint8_t from_mac[6];
  Big<std::uint16_t> ethertype;
  std::uint8_t version_and_length, service;
  Big<std::uint16_t> ip_bytes, id, fragment;
};
static_assert(sizeof(CommonHeaders) == 16);

struct ConnectionIpv6;

/// The part of the headers that belongs to a connection.
struct ConnectionHeaders {
  // As in the first 8 bytes of `SegmentHeaders`. The checksum has the place of its unused bytes.
  std::uint16_t checksum;  ///< the sum of the pseudo header, without the length
  std::uint8_t to_mac[6];
  // As in `SegmentHeaders` from `from` on. `generation` has the place of the sequence number.
  union {
    std::uint64_t addresses;  ///< `from` and `to`
    ConnectionIpv6* ipv6;     ///< of a connection over IPv6, which owns it; `generation` is 0 then
  };
  std::uint32_t ports;       ///< `from_port` and `to_port`
  std::uint32_t generation;  ///< `checksum` and `to_mac` are valid while lwIP's `etharp_generation` (never 0) has this value

  void set_addresses(Big<std::uint32_t> from, Big<std::uint32_t> to, Big<std::uint16_t> from_port, Big<std::uint16_t> to_port) noexcept {
    addresses = std::uint64_t{to.raw()} << 32 | from.raw();
    ports = std::uint32_t{to_port.raw()} << 16 | from_port.raw();
  }
  [[nodiscard]] bool has_addresses_of(const SegmentHeaders& headers) const noexcept {
    ConnectionHeaders own;
    own.set_addresses(headers.from, headers.to, headers.from_port, headers.to_port);
    return own.addresses == addresses && own.ports == ports;
  }
  /// Writes the part into `headers`, and `common`. The fields that the two parts do not have are not written.
  void write(const CommonHeaders& common, SegmentHeaders& headers) const noexcept {
    constexpr std::size_t first_bytes = sizeof checksum + sizeof to_mac;
    const auto* const own = reinterpret_cast<const std::byte*>(this);
    auto* const frame = reinterpret_cast<std::byte*>(&headers);
    std::memcpy(frame, own, first_bytes);
    std::memcpy(frame + first_bytes, &common, sizeof common);
    std::memcpy(frame + offsetof(SegmentHeaders, from), own + first_bytes, sizeof *this - first_bytes);
  }
};
static_assert(sizeof(ConnectionHeaders) == 24 && offsetof(ConnectionHeaders, addresses) == offsetof(SegmentHeaders, from_mac));
static_assert(offsetof(SegmentHeaders, from_mac) + sizeof(CommonHeaders) == offsetof(SegmentHeaders, time_to_live));
static_assert(offsetof(SegmentHeaders, sequence) - offsetof(SegmentHeaders, from) == 12);

}  // namespace neap::net
