// SPDX-License-Identifier: BSL-1.0
// SipHash: a short keyed hash that a peer cannot predict (Aumasson and Bernstein, 2012).
//
// Sequence numbers, local ports and SYN cookies must look random to a peer that does not know the key. SipHash-2-4, the default, is used
// for them. For a hash table whose keys are chosen by clients, SipHash-1-3 is enough: one round for each word, three at the end.
//
// No input can remove the key from the hash's state, because additions, rotations and xors are invertible. SipHash has no multiplication,
// because a factor of zero erases the other factor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace neap {

struct SipKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

namespace detail {

inline std::uint64_t load_8(const std::uint8_t* at) noexcept {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}
inline std::uint64_t load_4(const std::uint8_t* at) noexcept {
  std::uint32_t word;
  std::memcpy(&word, at, 4);
  return word;
}

/// Loads, little-endian, the last `bytes % 8` bytes of an input that has `bytes` bytes and ends at `end`. Reads no byte outside the input;
/// loads may overlap.
inline std::uint64_t load_tail(const std::uint8_t* end, std::size_t bytes) noexcept {
  const std::size_t left = bytes % 8;
  if (left == 0) return 0;
  if (bytes > 8) return load_8(end - 8) >> (64 - 8 * left);
  const std::uint8_t* const at = end - left;
  if (left >= 4) return load_4(at) | load_4(end - 4) << (8 * left - 32);
  return std::uint64_t{*at} | std::uint64_t{at[left / 2]} << (left / 2 * 8) | std::uint64_t{end[-1]} << (left * 8 - 8);
}

}  // namespace detail

/// SipHash with `word_rounds` for each word and `final_rounds` at the end. Little-endian machines only.
template <int word_rounds = 2, int final_rounds = 4>
[[nodiscard]] inline std::uint64_t siphash(const SipKey& key, std::span<const std::uint8_t> bytes) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t v0 = key.low ^ 0x736f6d6570736575;
  std::uint64_t v1 = key.high ^ 0x646f72616e646f6d;
  std::uint64_t v2 = key.low ^ 0x6c7967656e657261;
  std::uint64_t v3 = key.high ^ 0x7465646279746573;
  const auto rounds = [&](int count) [[gnu::always_inline]] {
#pragma GCC unroll 4
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
  const auto absorb = [&](std::uint64_t word) {
    v3 ^= word;
    rounds(word_rounds);
    v0 ^= word;
  };
  const std::uint8_t* at = bytes.data();
  const std::uint8_t* const end = at + bytes.size();
  for (; end - at >= 8; at += 8) absorb(detail::load_8(at));
  absorb(detail::load_tail(end, bytes.size()) | std::uint64_t{bytes.size()} << 56);
  v2 ^= 0xff;
  rounds(final_rounds);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace neap
