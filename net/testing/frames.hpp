// SPDX-License-Identifier: BSL-1.0
// Frames that tests make and read byte by byte. Numbers are in network byte order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "net/network.hpp"
#include "net/testing/wire.hpp"

namespace neap::net::testing {

[[nodiscard]] inline unsigned octet(std::span<const std::byte> frame, std::size_t at) { return std::to_integer<unsigned>(frame[at]); }
[[nodiscard]] inline std::uint16_t word(std::span<const std::byte> frame, std::size_t at) {
  return static_cast<std::uint16_t>(octet(frame, at) << 8 | octet(frame, at + 1));
}
[[nodiscard]] inline std::uint32_t quad(std::span<const std::byte> frame, std::size_t at) {
  return std::uint32_t{word(frame, at)} << 16 | word(frame, at + 2);
}
inline void put_word(Bytes& frame, std::size_t at, std::size_t value) {
  frame[at] = static_cast<std::byte>(value >> 8);
  frame[at + 1] = static_cast<std::byte>(value);
}
inline void put_quad(Bytes& frame, std::size_t at, std::uint32_t value) {
  put_word(frame, at, value >> 16);
  put_word(frame, at + 2, value);
}
/// `bytes`: at most 8.
inline void append(Bytes& frame, std::uint64_t value, unsigned bytes) {
  const std::uint64_t ordered = std::endian::native == std::endian::little ? std::byteswap(value) : value;
  const auto* const end = reinterpret_cast<const std::byte*>(&ordered) + sizeof ordered;
  frame.insert(frame.end(), end - bytes, end);
}
inline void append(Bytes& frame, std::span<const std::byte> more) { frame.insert(frame.end(), more.begin(), more.end()); }
inline void append(Bytes& frame, const MacAddress& mac) { append(frame, std::as_bytes(std::span(mac))); }

/// The MAC address of all simulated neighbours.
constexpr std::uint64_t neighbour_mac = 0x0200'0000'00FE;

struct Ipv4Header {
  Ipv4Address from, to;
  unsigned protocol = 6, identification = 1;
  unsigned fragment_field = 0;  ///< flags, and the offset in units of 8 bytes
  unsigned hops = 64;
  MacAddress to_mac{2, 0, 0, 0, 0, 1};
};

/// Writes numbers of constant size one after the other, for frames that are made very often.
class Writer {
 public:
  explicit Writer(std::span<std::byte> to) : to_(to) {}
  template <unsigned bytes>
  void put(std::uint64_t value) {
    const std::uint64_t first = value << (64 - 8 * bytes);
    const std::uint64_t ordered = std::endian::native == std::endian::little ? std::byteswap(first) : first;
    std::memcpy(to_.data(), &ordered, bytes);
    to_ = to_.subspan(bytes);
  }
  void put(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, to_.begin());
    to_ = to_.subspan(bytes.size());
  }

 private:
  std::span<std::byte> to_;
};

constexpr std::size_t ipv4_headers_bytes = 34;

/// Makes a frame from a simulated neighbour, without checksums. Its payload is zeros.
[[nodiscard]] inline Bytes ipv4_headers(const Ipv4Header& header, std::size_t payload_bytes) {
  Bytes frame(ipv4_headers_bytes + payload_bytes);
  Writer to(frame);
  to.put(std::as_bytes(std::span(header.to_mac)));
  to.put<6>(neighbour_mac);
  to.put<4>(0x0800'4500);
  to.put<2>(20 + payload_bytes);
  to.put<2>(header.identification);
  to.put<2>(header.fragment_field);
  to.put<2>(header.hops << 8 | header.protocol);
  to.put<2>(0);
  to.put<4>(header.from.value);
  to.put<4>(header.to.value);
  return frame;
}
/// Makes a frame from a simulated neighbour, without checksums.
[[nodiscard]] inline Bytes ipv4_frame(const Ipv4Header& header, const Bytes& payload) {
  Bytes frame = ipv4_headers(header, payload.size());
  Writer(std::span(frame).subspan(ipv4_headers_bytes)).put(payload);
  return frame;
}

[[nodiscard]] inline Bytes with_checksums(Bytes frame) {
  fill_checksums(frame);
  return frame;
}

/// Makes an ARP packet, by default an answer of a simulated neighbour. `mac` is the receiver's.
[[nodiscard]] inline Bytes arp_answer(Ipv4Address from, Ipv4Address to, const MacAddress& mac, unsigned operation = 2,
                                      std::uint64_t sender = neighbour_mac) {
  Bytes frame;
  append(frame, mac);
  append(frame, sender, 6);
  append(frame, 0x0806'0001'0800, 6);
  append(frame, 0x0604, 2);
  append(frame, operation, 2);
  append(frame, sender, 6);
  append(frame, from.value, 4);
  append(frame, mac);
  append(frame, to.value, 4);
  return frame;
}

/// True if the frame is an ARP packet with this operation (1: request, 2: answer).
[[nodiscard]] inline bool is_arp(const Bytes& frame, unsigned operation) {
  return frame.size() >= 42 && word(frame, 12) == 0x0806 && word(frame, 20) == operation;
}

}  // namespace neap::net::testing
