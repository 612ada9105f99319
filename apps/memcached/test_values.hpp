// SPDX-License-Identifier: BSL-1.0
// For tests: values of any length, in pieces or not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "apps/memcached/item.hpp"

namespace neap::memcached::test {

/// Returns the value and its line end.
inline std::string value_line_in(const Item& item) {
  std::string text;
  while (text.size() < item.value_line_bytes()) text += item.part(text.size());
  return text;
}
inline std::string value_in(const Item& item) { return value_line_in(item).substr(0, item.value_bytes); }

/// Sets each byte of the value to `letter`.
inline void fill_value(Item& item, char letter) { item.fill(0, std::string(item.value_bytes, letter)); }

/// Returns `bytes` that repeat after a prime number of bytes, so that exchanged pieces are noticed.
inline std::string text_of(std::size_t bytes, unsigned seed = 1) {
  constexpr std::size_t period = 65'521;
  std::string text(std::min(bytes, period), ' ');
  std::uint32_t state = seed * 2654435761U + 1;
  for (char& letter : text) {
    state = state * 1664525 + 1013904223;
    letter = static_cast<char>('a' + (state >> 24) % 26);
  }
  while (text.size() < bytes) text.append(text, 0, std::min(text.size(), bytes - text.size()));  // whole periods
  return text;
}

}  // namespace neap::memcached::test
