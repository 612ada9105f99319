// SPDX-License-Identifier: BSL-1.0
// Numbers as people write them: on a command line, over control, in an address.
//
// What one place takes for a number another must not refuse, so all of them read digits here. Nothing is skipped and nothing is guessed:
// no blanks, no sign, no digits that do not fit.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace neap {

constexpr std::uint64_t number_most = ~std::uint64_t{0};

/// The digits at the front of `text`, which are removed from it. Nothing, and `text` as it was, if there are none or too many.
[[nodiscard]] inline std::optional<std::uint64_t> take_digits(std::string_view& text, int base = 10) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// The same, hexadecimal behind 0x.
[[nodiscard]] inline std::optional<std::uint64_t> take_number(std::string_view& text) noexcept {
  if (!text.starts_with("0x") && !text.starts_with("0X")) return take_digits(text);
  std::string_view digits = text.substr(2);
  const auto value = take_digits(digits, 16);
  if (value) text = digits;
  return value;
}

/// Decimal, the whole text; nothing if it is no number or over `most`.
[[nodiscard]] inline std::optional<std::uint64_t> parse_digits(std::string_view text, std::uint64_t most = number_most) noexcept {
  const auto value = take_digits(text);
  return text.empty() && value && *value <= most ? value : std::nullopt;
}

/// The same, or hexadecimal behind 0x.
[[nodiscard]] inline std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t most = number_most) noexcept {
  const auto value = take_number(text);
  return text.empty() && value && *value <= most ? value : std::nullopt;
}

/// "0x1800".
[[nodiscard]] inline std::string hexadecimal(std::uint64_t value) {
  char digits[16];
  return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof digits, value, 16).ptr);
}

}  // namespace neap
