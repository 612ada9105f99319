// SPDX-License-Identifier: BSL-1.0
// Numbers as memcached reads them.
//
// memcached uses C's strtoul family. White space and a sign may precede the digits, and white space ends the number. An unsigned number may
// have a minus sign if the result modulo 2^64, read as a signed number, is not negative. Clients rely on some of these rules (values padded
// by spaces after a decr), so this file has the same rules, without locales.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace neap::memcached {

constexpr bool is_space(char letter) noexcept { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

namespace detail {
struct Digits {
  std::uint64_t magnitude;
  bool negative;
};
constexpr std::optional<Digits> read_digits(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size() && is_space(text[at])) ++at;
  const bool negative = at < text.size() && text[at] == '-';
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  const std::size_t first = at;
  std::uint64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    if (__builtin_mul_overflow(value, std::uint64_t{10}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, static_cast<std::uint64_t>(text[at] - '0'), &value)) return std::nullopt;
  }
  if (at == first || (at < text.size() && !is_space(text[at]))) return std::nullopt;
  return Digits{value, negative};
}
}  // namespace detail

constexpr std::optional<std::uint64_t> read_unsigned(std::string_view text) noexcept {
  const auto digits = detail::read_digits(text);
  if (!digits) return std::nullopt;
  if (!digits->negative) return digits->magnitude;
  const std::uint64_t value = 0 - digits->magnitude;
  if (static_cast<std::int64_t>(value) < 0) return std::nullopt;
  return value;
}

constexpr std::optional<std::int64_t> read_signed(std::string_view text) noexcept {
  const auto digits = detail::read_digits(text);
  if (!digits) return std::nullopt;
  constexpr auto limit = std::uint64_t{1} << 63;
  if (digits->magnitude > (digits->negative ? limit : limit - 1)) return std::nullopt;
  return static_cast<std::int64_t>(digits->negative ? 0 - digits->magnitude : digits->magnitude);
}

}  // namespace neap::memcached
