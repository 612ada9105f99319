// SPDX-License-Identifier: BSL-1.0
// A line of text that is put together without an allocation.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace neap::memcached {

/// True if `key` is one word of a line. A key from base64, or of the binary protocol, may contain blanks and line ends.
[[nodiscard]] inline bool is_one_word(std::string_view key) noexcept {
  return std::ranges::all_of(key, [](char letter) { return static_cast<unsigned char>(letter) > ' ' && letter != 0x7f; });
}

/// Text beyond the room is dropped, so a caller with a bounded line chooses the room.
template <std::size_t room>
class TextLine {
 public:
  TextLine& put(std::string_view text) noexcept {
    const std::size_t bytes = std::min(text.size(), room - used_);
    std::memcpy(bytes_ + used_, text.data(), bytes);
    used_ += bytes;
    return *this;
  }
  TextLine& number(std::int64_t value) noexcept {
    char digits[20];
    return put({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits)});
  }
  TextLine& number(std::uint64_t value) noexcept {
    char digits[20];
    return put({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits)});
  }
  TextLine& number(unsigned value) noexcept { return number(std::uint64_t{value}); }
  /// Six digits of a fraction.
  TextLine& millionths(std::uint64_t value) noexcept {
    char digits[6];
    for (char* at = digits + sizeof digits; at != digits; value /= 10) *--at = static_cast<char>('0' + value % 10);
    return put({digits, sizeof digits});
  }
  /// A key as part of a URI: all bytes but letters, digits and -._~ as %XX.
  TextLine& uri(std::string_view key) noexcept {
    static constexpr char digits[] = "0123456789ABCDEF";
    for (const char letter : key) {
      const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
                         letter == '-' || letter == '.' || letter == '_' || letter == '~';
      const auto byte = static_cast<unsigned char>(letter);
      const char encoded[] = {'%', digits[byte >> 4], digits[byte & 15]};
      put(plain ? std::string_view(&letter, 1) : std::string_view(encoded, sizeof encoded));
    }
    return *this;
  }
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_, used_}; }

 private:
  std::size_t used_ = 0;
  char bytes_[room];
};

}  // namespace neap::memcached
