// SPDX-License-Identifier: BSL-1.0
// Copies of small objects, such as keys, small values and replies, without a call.
//
// Most have some hundred bytes at most, so a call of memcpy, and the registers that the caller saves for it, cost more than the copy. These
// functions save some 100 instructions for a GET of 100 bytes (`./neap bench request --rows get.16`).
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace neap {

namespace detail {
template <typename Word>
inline void copy_word(char* to, const char* from) noexcept {
  Word word;
  std::memcpy(&word, from, sizeof word);
  std::memcpy(to, &word, sizeof word);
}
inline void copy_16(char* to, const char* from) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
[[gnu::always_inline]] inline void copy_32(char* to, const char* from) noexcept {
  copy_16(to, from);
  copy_16(to + 16, from + 16);
}
[[gnu::always_inline]] inline void copy_64(char* to, const char* from) noexcept {
  copy_32(to, from);
  copy_32(to + 32, from + 32);
}
}  // namespace detail

/// As memcpy; without a call for 8 to 32 bytes. The first and the last part are copied, and may overlap.
[[gnu::always_inline]] inline void copy_short(char* to, const char* from, std::size_t bytes) noexcept {
  if (bytes - 16 <= 16) {
    detail::copy_16(to, from);
    detail::copy_16(to + bytes - 16, from + bytes - 16);
  } else if (bytes - 8 <= 8) {
    detail::copy_word<std::uint64_t>(to, from);
    detail::copy_word<std::uint64_t>(to + bytes - 8, from + bytes - 8);
  } else {
    std::memcpy(to, from, bytes);
  }
}

/// As memcpy; without a call for 8 to 512 bytes.
[[gnu::always_inline]] inline void copy_medium(char* to, const char* from, std::size_t bytes) noexcept {
  if (bytes - 32 > 512 - 32) return copy_short(to, from, bytes);
  if (bytes <= 64) {
    detail::copy_32(to, from);
    return detail::copy_32(to + bytes - 32, from + bytes - 32);
  }
  detail::copy_64(to, from);
  if (bytes > 128) {
    for (std::size_t at = 64; at < bytes - 64; at += 64) detail::copy_64(to + at, from + at);
  }
  detail::copy_64(to + bytes - 64, from + bytes - 64);
}

}  // namespace neap
