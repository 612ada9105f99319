// SPDX-License-Identifier: BSL-1.0
// Numbers as memcached reads them.
//
// memcached uses C's strtoul family. White space and a sign may precede the digits, and white space ends the number. An unsigned number may
// have a minus sign if the result modulo 2^64, read as a signed number, is not negative. Clients rely on some of these rules (values padded
// by spaces after a decr), so this file has the same rules, without locales.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

constexpr std::size_t number_bytes_max = 20;  ///< the decimal digits of 2^64 - 1

namespace detail {
/// "00" to "99".
constexpr auto digit_pairs = [] {
  std::array<char, 200> pairs{};
  for (unsigned number = 0; number < 100; ++number) {
    pairs[2 * number] = static_cast<char>('0' + number / 10);
    pairs[2 * number + 1] = static_cast<char>('0' + number % 10);
  }
  return pairs;
}();
/// The numbers 0 to 999 as text.
struct ShortNumber {
  char digits[3];
  std::uint8_t count;
};
constexpr auto short_numbers = [] {
  std::array<ShortNumber, 1000> numbers{};
  for (unsigned number = 0; number < numbers.size(); ++number) {
    ShortNumber& entry = numbers[number];
    for (unsigned power = number < 10 ? 1 : number < 100 ? 10 : 100; power != 0; power /= 10) {
      entry.digits[entry.count++] = static_cast<char>('0' + number / power % 10);
    }
  }
  return numbers;
}();
constexpr auto powers_of_ten = [] {
  std::array<std::uint64_t, number_bytes_max> powers{1};
  for (std::size_t at = 1; at < powers.size(); ++at) powers[at] = powers[at - 1] * 10;
  return powers;
}();
/// As `put_number`, for any number.
[[gnu::noinline]] inline char* put_any_number(char* to, std::uint64_t value) noexcept {
  // The number of digits from the number of bits: 1233 / 4096 is just above log10(2).
  const auto estimate = static_cast<std::size_t>(std::bit_width(value) * 1233 >> 12);
  const std::size_t digits = estimate + (value >= powers_of_ten[estimate]);
  char* at = to + digits;
  for (; value >= 100; value /= 100) std::memcpy(at -= 2, &digit_pairs[2 * (value % 100)], 2);
  if (value >= 10) {
    std::memcpy(to, &digit_pairs[2 * value], 2);
  } else {
    *to = static_cast<char>('0' + value);
  }
  return to + digits;
}
}  // namespace detail

/// Writes a decimal number of up to `number_bytes_max` bytes, and returns its end. MAY write up to 4 bytes for a shorter number. Nearly all
/// numbers in a reply are flags or the length of a small value, which a table of 4 KB has as text.
[[gnu::always_inline]] inline char* put_number(char* to, std::uint64_t value) noexcept {
  if (value < detail::short_numbers.size()) [[likely]] {
    const detail::ShortNumber& number = detail::short_numbers[value];
    std::memcpy(to, &number, sizeof number);
    return to + number.count;
  }
  return detail::put_any_number(to, value);
}

}  // namespace neap::memcached
