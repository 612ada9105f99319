// SPDX-License-Identifier: BSL-1.0
// A short keyed hash that an outsider cannot foresee.
//
// Sequence numbers and ports must look random to who does not know the key, and cost little. SipHash-2-4 (Aumasson and Bernstein, 2012) is
// made for this. The key is drawn once, at first use, from the machine's random bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace neap::net {

struct SipKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

[[nodiscard]] constexpr std::uint64_t siphash(const SipKey& key, std::span<const std::uint8_t> bytes) noexcept {
  std::uint64_t v0 = key.low ^ 0x736f6d6570736575;
  std::uint64_t v1 = key.high ^ 0x646f72616e646f6d;
  std::uint64_t v2 = key.low ^ 0x6c7967656e657261;
  std::uint64_t v3 = key.high ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto word = [&](std::size_t from, std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value |= std::uint64_t{bytes[from + i]} << (8 * i);
    return value;
  };
  std::size_t at = 0;
  for (; bytes.size() - at >= 8; at += 8) {
    const std::uint64_t m = word(at, 8);
    v3 ^= m;
    rounds(2);
    v0 ^= m;
  }
  const std::uint64_t last = word(at, bytes.size() - at) | std::uint64_t{bytes.size()} << 56;
  v3 ^= last;
  rounds(2);
  v0 ^= last;
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace neap::net
