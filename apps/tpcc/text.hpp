// SPDX-License-Identifier: BSL-1.0
// Character columns of a fixed maximum length.
//
// A row is copied as whole words, so a column has no memory of its own. Shorter values are padded with zero bytes. Values therefore compare
// like SQL's strings when their bytes are compared as unsigned numbers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace neap::tpcc {

template <std::size_t Bytes>
struct Text {
  char bytes[Bytes];

  Text() = default;
  /// Cuts `text` at the column's length.
  explicit Text(std::string_view text) noexcept { assign(text); }

  void assign(std::string_view text) noexcept {
    const std::size_t count = std::min(text.size(), Bytes);
    if (count != 0) std::memcpy(bytes, text.data(), count);  // an empty view may have no address
    std::memset(bytes + count, 0, Bytes - count);
  }
  /// The value without its padding.
  [[nodiscard]] std::string_view view() const noexcept {
    const void* const end = std::memchr(bytes, 0, Bytes);
    return {bytes, end == nullptr ? Bytes : static_cast<std::size_t>(static_cast<const char*>(end) - bytes)};
  }
  bool operator==(const Text& other) const noexcept { return std::memcmp(bytes, other.bytes, Bytes) == 0; }
};

using Name = Text<16>;  ///< C_FIRST, C_LAST

/// Returns the words of an index key that order names as their bytes do.
[[nodiscard]] inline std::array<std::uint64_t, 2> key_words(const Name& name) noexcept {
  std::array<std::uint64_t, 2> words;
  std::memcpy(words.data(), name.bytes, sizeof name.bytes);
  for (std::uint64_t& word : words) word = std::byteswap(word);
  return words;
}

}  // namespace neap::tpcc
