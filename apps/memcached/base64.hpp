// SPDX-License-Identifier: BSL-1.0
// Base64 (RFC 4648) as memcached's meta commands read it: characters outside the alphabet are skipped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace neap::memcached::base64 {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the length of the text of `bytes`.
constexpr std::size_t text_bytes(std::size_t bytes) noexcept { return (bytes + 2) / 3 * 4; }

/// Writes the text of `bytes` and returns its end.
constexpr char* encode(char* to, std::string_view bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t byte = 0; byte < 3; ++byte) {
      group = group << 8 | (at + byte < bytes.size() ? static_cast<unsigned char>(bytes[at + byte]) : 0U);
    }
    for (std::size_t letter = 0; letter < 4; ++letter) {
      *to++ = at + letter <= bytes.size() ? alphabet[group >> (18 - 6 * letter) & 63] : '=';
    }
  }
  return to;
}

namespace detail {
constexpr std::uint8_t no_digit = 0xff, padding = 0xfe;
constexpr auto digits = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(no_digit);
  for (std::size_t value = 0; value < alphabet.size(); ++value) {
    values[static_cast<unsigned char>(alphabet[value])] = static_cast<std::uint8_t>(value);
  }
  values['='] = padding;
  return values;
}();
}  // namespace detail

/// Writes the decoded bytes, at most three quarters of `text.size()`, and returns their number. Returns 0 if `text` has no digits, or a
/// number of them that is not a multiple of four, or more than two padding characters in a group. A group with padding is the last one.
constexpr std::size_t decode(std::string_view text, char* to) noexcept {
  std::size_t letters = 0;
  for (const char letter : text) letters += detail::digits[static_cast<unsigned char>(letter)] != detail::no_digit;
  if (letters == 0 || letters % 4 != 0) return 0;
  char* const begin = to;
  std::uint32_t group = 0;
  unsigned read = 0, paddings = 0;
  for (const char letter : text) {
    const std::uint8_t digit = detail::digits[static_cast<unsigned char>(letter)];
    if (digit == detail::no_digit) continue;
    if (digit == detail::padding) ++paddings;
    group = group << 6 | (digit == detail::padding ? 0U : digit);
    if (++read % 4 != 0) continue;
    if (paddings > 2) return 0;
    for (unsigned byte = 0; byte < 3 - paddings; ++byte) *to++ = static_cast<char>(group >> (16 - 8 * byte));
    if (paddings != 0) break;
  }
  return static_cast<std::size_t>(to - begin);
}

}  // namespace neap::memcached::base64
