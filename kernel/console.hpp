// SPDX-License-Identifier: BSL-1.0
// Printing a line on the console.
//
// The console shows boot messages and faults. A serial line at 115200 baud takes 87 us a byte, so code that serves requests does not print.
// A line is composed in a fixed buffer, without the heap, so that printing works when memory is exhausted and in a panic.
//
//   print("timer: register ", index, " = ", hex(value), ", no answer for ", waited_ms, " ms");
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernel/machine.hpp"

namespace neap {

struct Hex {
  std::uint64_t value;
};
/// `print` shows the result as `0x` and lower-case hexadecimal digits.
constexpr Hex hex(std::uint64_t value) { return {value}; }

/// Text of bounded length, composed piece by piece. Text that does not fit is cut off; the line then ends with `...`.
class Line {
 public:
  static constexpr std::size_t bytes_max = 512;

  Line& operator<<(std::string_view text) noexcept;
  Line& operator<<(const char* text) noexcept { return *this << std::string_view(text); }
  Line& operator<<(char letter) noexcept { return *this << std::string_view(&letter, 1); }
  Line& operator<<(bool value) noexcept { return *this << std::string_view(value ? "true" : "false"); }
  Line& operator<<(Hex value) noexcept;
  template <std::integral T>
  Line& operator<<(T value) noexcept {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    return *this << std::string_view(digits, static_cast<std::size_t>(end - digits));
  }
  [[nodiscard]] std::string_view text() const noexcept { return {text_, used_}; }
  /// Ends the line with a newline (there is always room for it) and writes it to the console.
  void print() noexcept;

 private:
  char text_[bytes_max + 1];
  std::size_t used_ = 0;
};

/// Writes one line composed of `parts`, and a newline. Lines of different cores do not mix.
template <typename... Parts>
void print(const Parts&... parts) noexcept {
  Line line;
  static_cast<void>((line << ... << parts));
  line.print();
}

}  // namespace neap
