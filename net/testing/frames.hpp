// SPDX-License-Identifier: BSL-1.0
// Frames that tests make and read byte by byte. Numbers are in network byte order.
#pragma once

#include <cstdint>

#include "net/network.hpp"
#include "net/testing/wire.hpp"

namespace neap::net::testing {

[[nodiscard]] inline unsigned octet(const Bytes& frame, std::size_t at) { return std::to_integer<unsigned>(frame[at]); }
[[nodiscard]] inline std::uint16_t word(const Bytes& frame, std::size_t at) {
  return static_cast<std::uint16_t>(octet(frame, at) << 8 | octet(frame, at + 1));
}
[[nodiscard]] inline std::uint32_t quad(const Bytes& frame, std::size_t at) {
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
inline void append(Bytes& frame, std::uint64_t value, unsigned bytes) {
  while (bytes-- > 0) frame.push_back(static_cast<std::byte>(value >> 8 * bytes));
}
inline void append(Bytes& frame, const Bytes& more) { frame.insert(frame.end(), more.begin(), more.end()); }
inline void append(Bytes& frame, const MacAddress& mac) {
  for (const std::uint8_t byte : mac) append(frame, byte, 1);
}

/// The MAC address of all simulated neighbours.
constexpr std::uint64_t neighbour_mac = 0x0200'0000'00FE;

struct Ipv4Header {
  Ipv4Address from, to;
  unsigned protocol = 6, identification = 1;
  unsigned fragment_field = 0;  ///< flags, and the offset in units of 8 bytes
  unsigned hops = 64;
  MacAddress to_mac{2, 0, 0, 0, 0, 1};
};

/// Makes a frame from a simulated neighbour, without checksums.
[[nodiscard]] inline Bytes ipv4_frame(const Ipv4Header& header, const Bytes& payload) {
  Bytes frame;
  append(frame, header.to_mac);
  append(frame, neighbour_mac, 6);
  append(frame, 0x0800'4500, 4);
  append(frame, 20 + payload.size(), 2);
  append(frame, header.identification, 2);
  append(frame, header.fragment_field, 2);
  append(frame, header.hops << 8 | header.protocol, 2);
  append(frame, 0, 2);
  append(frame, header.from.value, 4);
  append(frame, header.to.value, 4);
  append(frame, payload);
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
