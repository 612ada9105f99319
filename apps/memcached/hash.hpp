// SPDX-License-Identifier: BSL-1.0
// From a key to a bucket.
//
// Clients choose the keys, and a client that finds many keys of one bucket makes each request walk all of them. So the function is SipHash
// (Aumasson and Bernstein, 2012) with one round for each word and three at the end, under 128 secret bits that are drawn at start. No input
// makes a step of it lose the secret: additions, rotations and xors are invertible. A multiplication is not: a factor of zero forgets the
// other factor.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace neap::memcached {

/// The secret of a store's hash.
struct HashSeed {
  std::uint64_t low;
  std::uint64_t high;
  constexpr HashSeed(std::uint64_t low_ = 0, std::uint64_t high_ = 0) noexcept : low(low_), high(high_) {}
};

namespace detail {

inline std::uint64_t load_8(const char* at) noexcept {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}
inline std::uint64_t load_4(const char* at) noexcept {
  std::uint32_t word;
  std::memcpy(&word, at, 4);
  return word;
}
inline std::uint64_t load_1(const char* at) noexcept { return static_cast<unsigned char>(*at); }

/// The last `bytes` modulo 8 bytes of a key that ends at `end`, the first of them lowest. Reads no byte outside the key; loads may overlap.
inline std::uint64_t load_tail(const char* end, std::size_t bytes) noexcept {
  const std::size_t left = bytes % 8;
  if (left == 0) return 0;
  if (bytes > 8) return load_8(end - 8) >> (64 - 8 * left);
  const char* const at = end - left;
  if (left >= 4) return load_4(at) | load_4(end - 4) << (8 * left - 32);
  return load_1(at) | load_1(at + left / 2) << (left / 2 * 8) | load_1(end - 1) << (left * 8 - 8);
}

/// SipHash with `word_rounds` for each word and `final_rounds` at the end. Little-endian machines only.
template <int word_rounds, int final_rounds>
[[nodiscard]] inline std::uint64_t siphash(std::string_view text, const HashSeed& seed) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t v0 = seed.low ^ 0x736f6d6570736575;
  std::uint64_t v1 = seed.high ^ 0x646f72616e646f6d;
  std::uint64_t v2 = seed.low ^ 0x6c7967656e657261;
  std::uint64_t v3 = seed.high ^ 0x7465646279746573;
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
  const char* at = text.data();
  const char* const end = at + text.size();
  for (; end - at >= 8; at += 8) absorb(load_8(at));
  absorb(load_tail(end, text.size()) | std::uint64_t{text.size()} << 56);
  v2 ^= 0xff;
  rounds(final_rounds);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace detail

/// 32 bits, all of them good: the low ones choose lock and bucket.
inline std::uint32_t hash_key(std::string_view key, const HashSeed& seed) noexcept {
  const std::uint64_t hash = detail::siphash<1, 3>(key, seed);
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

}  // namespace neap::memcached
