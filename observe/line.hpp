// SPDX-License-Identifier: BSL-1.0
// Lines out of a stream of bytes, and words out of a line.
//
// Whoever reaches the control port may send anything: half a line, a megabyte without an end, bytes of another protocol. What comes out
// of here is either a list of clean words or one reason why not; it does not depend on how the bytes were cut on their way, and at most
// one line is ever kept. Pure functions of the bytes, so that a fuzzer can hold them to it (fuzz_control.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace neap::observe {

constexpr std::size_t line_bytes_max = 4096;  ///< without its end

/// Collects one line at a time.
class LineReader {
 public:
  enum class Outcome : std::uint8_t { incomplete, line, too_long };

  /// Takes bytes from the front of `bytes`, up to and with the next line feed, and removes them. `line`: `text()` is it, without line feed;
  /// `too_long`: it had more than `line_bytes_max` bytes, which are gone. Both hold until the next call.
  Outcome take(std::string_view& bytes);
  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  /// Whether a line has begun whose end has not come.
  [[nodiscard]] bool halfway() const noexcept { return !over_ && (!text_.empty() || discarding_); }

 private:
  std::string text_;
  bool over_ = true;         // the next byte begins a line
  bool discarding_ = false;  // this line is too long
};

/// The words of one line: separated by commas, blanks around them dropped, a CR at the end too. The error is a reason, without "error: ".
[[nodiscard]] std::expected<std::vector<std::string_view>, const char*> split_words(std::string_view line);

/// `text` without blanks (space, tab) around it.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// What somebody sent, fit for an answer: printable, at most 40 characters.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace neap::observe
