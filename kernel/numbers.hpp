// SPDX-License-Identifier: BSL-1.0
// Parsing of numbers in the command line, in control commands and in addresses.
//
// All code uses these functions, so the same text is accepted everywhere. Blanks, signs and numbers that do not fit are refused.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace neap {

constexpr std::uint64_t number_max = ~std::uint64_t{0};

/// Parses and removes the digits at the front of `text`. If there are none, or they exceed 64 bits, returns nothing and changes nothing.
[[nodiscard]] inline std::optional<std::uint64_t> take_digits(std::string_view& text, int base = 10) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// As `take_digits`; digits after 0x are hexadecimal.
[[nodiscard]] inline std::optional<std::uint64_t> take_number(std::string_view& text) noexcept {
  if (!text.starts_with("0x") && !text.starts_with("0X")) return take_digits(text);
  std::string_view digits = text.substr(2);
  const auto value = take_digits(digits, 16);
  if (value) text = digits;
  return value;
}

/// Parses the whole text as a decimal number. Returns nothing if the text is no number or the number exceeds `max`.
[[nodiscard]] inline std::optional<std::uint64_t> parse_digits(std::string_view text, std::uint64_t max = number_max) noexcept {
  const auto value = take_digits(text);
  return text.empty() && value && *value <= max ? value : std::nullopt;
}

/// As `parse_digits`; digits after 0x are hexadecimal.
[[nodiscard]] inline std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t max = number_max) noexcept {
  const auto value = take_number(text);
  return text.empty() && value && *value <= max ? value : std::nullopt;
}

/// Returns `value` as text: "0x1800".
[[nodiscard]] inline std::string hexadecimal(std::uint64_t value) {
  char digits[16];
  return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof digits, value, 16).ptr);
}

}  // namespace neap
