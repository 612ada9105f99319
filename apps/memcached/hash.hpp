// SPDX-License-Identifier: BSL-1.0
// The hash function, which selects a key's bucket.
//
// Clients choose the keys. A client that knows many keys of one bucket could make each request walk all these keys. So the hash is keyed by
// 128 secret bits that are drawn at start. There are two functions, and a store uses one of them for all its keys:
// - With the CPU's AES instructions, blocks of 16 bytes are chained with four rounds of AES after each, as in Pelican (Daemen and Rijmen,
//   2005). A difference between two keys passes at least 25 S-boxes before the next block could cancel it, so it does so with a probability
//   of at most 2^-150. A key of 16 bytes takes 30 instructions.
// - Otherwise SipHash-1-3 (kernel/siphash.hpp), which takes 130.
#pragma once

#include <cpuid.h>
#include <emmintrin.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernel/siphash.hpp"

namespace neap::memcached {

/// True if this CPU has the AES instructions.
inline bool cpu_has_aes() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_AES) != 0;
}

/// The secret of a store's hash, and its function.
struct HashSeed : SipKey {
  bool uses_aes = cpu_has_aes();
};

namespace detail {

/// Four rounds of AES on `state`. The compiler is not told of the instruction, so that the program also runs on CPUs without it.
[[gnu::always_inline]] inline __m128i four_aes_rounds(__m128i state, __m128i key) noexcept {
  asm("aesenc %1, %0\n\taesenc %1, %0\n\taesenc %1, %0\n\taesenc %1, %0" : "+x"(state) : "x"(key));
  return state;
}

/// Loads 0 to 15 bytes, and zeros behind or between them. Different texts of one length give different blocks.
inline __m128i load_short_block(const char* text, std::size_t bytes) noexcept {
  std::uint64_t low = 0, high = 0;
  if (bytes >= 8) {
    std::memcpy(&low, text, 8);
    std::memcpy(&high, text + bytes - 8, 8);
  } else if (bytes >= 4) {
    std::memcpy(&low, text, 4);
    std::memcpy(&high, text + bytes - 4, 4);
  } else if (bytes != 0) {
    std::memcpy(&low, text, 1);
    std::memcpy(&high, text + bytes / 2, 1);
    low |= std::uint64_t{static_cast<std::uint8_t>(text[bytes - 1])} << 8;
  }
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}

[[gnu::always_inline]] inline std::uint32_t hash_by_aes(std::string_view text, const SipKey& seed) noexcept {
  const auto load = [](const char* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
  const __m128i key = _mm_set_epi64x(static_cast<long long>(seed.high), static_cast<long long>(seed.low));
  // The length is a part of the first block, so that the last block may overlap the one before it.
  __m128i state = _mm_xor_si128(key, _mm_cvtsi64_si128(static_cast<long long>(text.size())));
  __m128i last;
  if (text.size() >= 16) [[likely]] {
    const char* const last_at = text.data() + text.size() - 16;
    for (const char* at = text.data(); at < last_at; at += 16) state = four_aes_rounds(_mm_xor_si128(state, load(at)), key);
    last = load(last_at);
  } else {
    last = load_short_block(text.data(), text.size());
  }
  state = four_aes_rounds(four_aes_rounds(_mm_xor_si128(state, last), key), key);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(state));
}

[[gnu::noinline]] inline std::uint32_t hash_by_siphash(std::string_view text, const SipKey& seed) noexcept {
  const std::uint64_t hash = siphash<1, 3>(seed, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

}  // namespace detail

/// Returns the hash of `key`. All its 32 bits are equally random. The low bits choose the lock and the bucket.
[[gnu::always_inline]] inline std::uint32_t hash_key(std::string_view key, const HashSeed& seed) noexcept {
  return seed.uses_aes ? detail::hash_by_aes(key, seed) : detail::hash_by_siphash(key, seed);
}

}  // namespace neap::memcached
