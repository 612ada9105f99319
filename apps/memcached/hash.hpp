// SPDX-License-Identifier: BSL-1.0
// From a key to a bucket.
//
// Clients choose the keys, so the function must not be guessable (a seed drawn at start), and it is paid for on every request, so it takes
// 16 bytes a step: two words, xored with secrets, multiplied to 128 bits and folded. This is the construction that wyhash made known.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace neap::memcached {

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
inline std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}
}  // namespace detail

/// 32 bits, all of them good: the low ones choose lock and bucket.
inline std::uint32_t hash_key(std::string_view key, std::uint64_t seed) noexcept {
  constexpr std::uint64_t secret_a = 0x9e3779b97f4a7c15, secret_b = 0xd1b54a32d192ed03;  // odd, about half their bits set
  const char* at = key.data();
  std::size_t left = key.size();
  std::uint64_t state = seed ^ (left * secret_a);
  while (left > 16) {
    state = detail::fold(detail::load_8(at) ^ secret_a, detail::load_8(at + 8) ^ state);
    at += 16;
    left -= 16;
  }
  std::uint64_t a = 0, b = 0;  // what is left, 0 to 16 bytes; the two loads may overlap
  if (left >= 8) {
    a = detail::load_8(at);
    b = detail::load_8(at + left - 8);
  } else if (left >= 4) {
    a = detail::load_4(at);
    b = detail::load_4(at + left - 4);
  } else if (left > 0) {
    a = static_cast<std::uint64_t>(static_cast<unsigned char>(at[0])) |
        static_cast<std::uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
        static_cast<std::uint64_t>(static_cast<unsigned char>(at[left - 1])) << 16;
  }
  const std::uint64_t mixed = detail::fold(detail::fold(a ^ secret_b, b ^ state) ^ secret_a, seed ^ secret_b);
  return static_cast<std::uint32_t>(mixed ^ (mixed >> 32));
}

}  // namespace neap::memcached
