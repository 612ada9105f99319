// SPDX-License-Identifier: BSL-1.0
// The hash by which network cards spread frames over cores (receive-side scaling).
//
// The hash is the same for every card with RSS. So the core of a connection's frames can be computed from its addresses and ports before
// the first frame arrives. For each set bit of the input, the 32 bits of the key from that bit's position on are XORed into the hash.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/panic.hpp"

namespace neap::toeplitz {

/// The verification key of the public RSS specification: its published hashes are our test vectors.
constexpr std::array<std::uint8_t, 40> key = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
                                              0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
                                              0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

/// The hash of `input`: at most 36 bytes, in the frame's byte order.
[[nodiscard]] constexpr std::uint32_t hash(std::span<const std::uint8_t> input) noexcept {
  require(input.size() <= key.size() - 4, "more input than the key has bits for", input.size());
  std::uint32_t result = 0;
  std::uint64_t window = 0;  // upper half: the 32 key bits for the present input bit
  for (unsigned i = 0; i < 4; ++i) window = window << 8 | key[i];
  window <<= 32;
  for (std::size_t i = 0; i < input.size(); ++i) {
    window |= std::uint64_t{key[i + 4]} << 24;
    for (unsigned bit = 8; bit-- > 0; window <<= 1) {
      if ((input[i] >> bit & 1) != 0) result ^= static_cast<std::uint32_t>(window >> 32);
    }
  }
  return result;
}

/// The hash of a TCP or UDP frame over IPv4. Addresses and ports in host byte order.
[[nodiscard]] constexpr std::uint32_t hash_ipv4(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                                std::uint16_t destination_port) noexcept {
  const std::array<std::uint32_t, 3> words{source_ip, destination_ip, std::uint32_t{source_port} << 16 | destination_port};
  std::array<std::uint8_t, sizeof words> input{};
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::uint8_t>(words[i / 4] >> (24 - 8 * (i % 4)));
  return hash(input);
}

/// The hash of a TCP or UDP frame over IPv6. Addresses in network byte order, ports in host byte order.
[[nodiscard]] constexpr std::uint32_t hash_ipv6(std::span<const std::uint8_t, 16> source_ip,
                                                std::span<const std::uint8_t, 16> destination_ip, std::uint16_t source_port,
                                                std::uint16_t destination_port) noexcept {
  std::array<std::uint8_t, 36> input{};
  std::copy(source_ip.begin(), source_ip.end(), input.begin());
  std::copy(destination_ip.begin(), destination_ip.end(), input.begin() + 16);
  for (std::size_t i = 0; i < 2; ++i) {
    input[32 + i] = static_cast<std::uint8_t>(source_port >> (8 - 8 * i));
    input[34 + i] = static_cast<std::uint8_t>(destination_port >> (8 - 8 * i));
  }
  return hash(input);
}

}  // namespace neap::toeplitz
