// SPDX-License-Identifier: BSL-1.0
// Parses lines from a stream of bytes, and words from a line.
//
// A client of the control port may send anything: half a line, a megabyte without a line feed, bytes of another protocol. The result is a
// list of valid words or one reason for the refusal. The result does not depend on the segmentation of the stream, and at most one line is
// stored. A fuzzer checks this (fuzz_control.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace neap::observe {

constexpr std::size_t line_bytes_max = 4096;  ///< without the line feed

class LineReader {
 public:
  enum class Outcome : std::uint8_t { incomplete, line, too_long };

  /// Removes bytes from the front of `bytes`, up to and including the next line feed. Outcome `line`: `text()` is the line without its line
  /// feed, until the next call. Outcome `too_long`: the line had more than `line_bytes_max` bytes and was discarded.
  Outcome take(std::string_view& bytes);
  /// Ends the line that has begun, as a line feed does. MUST be called only if `halfway`.
  Outcome end();
  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  /// True if a line has begun and its end has not arrived.
  [[nodiscard]] bool halfway() const noexcept { return !over_ && (!text_.empty() || discarding_); }

 private:
  std::string text_;
  bool over_ = true;         // the next byte begins a line
  bool discarding_ = false;  // the current line is too long
};

/// Splits a line at commas, and removes blanks around the words and a CR at the end. The error is the reason for a refusal.
[[nodiscard]] std::expected<std::vector<std::string_view>, const char*> split_words(std::string_view line);

/// Returns `text` without leading and trailing blanks (space, tab).
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// Returns received text in a form that fits into an answer: printable, at most 40 characters.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace neap::observe
