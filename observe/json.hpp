// SPDX-License-Identifier: BSL-1.0
// JSON text in ASCII, written member by member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace neap::observe {

/// Composes one object. All calls may throw `bad_alloc`.
class Json {
 public:
  void text(std::string_view name, std::string_view value) {
    begin(name);
    quote(value);
  }
  void number(std::string_view name, std::uint64_t value) {
    begin(name);
    text_ += std::to_string(value);
  }
  void number_or_null(std::string_view name, std::optional<std::uint64_t> value) {
    begin(name);
    text_ += value ? std::to_string(*value) : "null";
  }
  void boolean(std::string_view name, bool value) {
    begin(name);
    text_ += value ? "true" : "false";
  }
  template <typename Names>
  void list(std::string_view name, const Names& names) {
    begin(name);
    text_ += '[';
    bool first = true;
    for (const std::string_view value : names) {
      if (!std::exchange(first, false)) text_ += ',';
      quote(value);
    }
    text_ += ']';
  }
  void open(std::string_view name) {
    begin(name);
    text_ += '{';
  }
  void close() { text_ += '}'; }
  void open_list(std::string_view name) {
    begin(name);
    text_ += '[';
  }
  /// Begins an object in a list; `close` ends it.
  void open_element() {
    separate();
    text_ += '{';
  }
  void close_list() { text_ += ']'; }
  // Elements of a list that `open_list` has begun.
  void text_element(std::string_view value) {
    separate();
    quote(value);
  }
  void number_element(std::uint64_t value) {
    separate();
    text_ += std::to_string(value);
  }
  void boolean_element(bool value) {
    separate();
    text_ += value ? "true" : "false";
  }
  /// As `text`, but `bytes()` is at most `end` afterwards: a longer value is cut and then ends in `...`. Adds nothing if there is no room.
  void text_up_to(std::size_t end, std::string_view name, std::string_view value) {
    constexpr std::string_view mark = "...";
    const std::size_t before = text_.size();
    begin(name);
    const std::size_t value_begins = text_.size();
    quote(value);
    if (bytes() <= end) return;
    const std::size_t cut = bytes() - end + mark.size();  // bytes of the quoted value that must go
    if (text_.size() - value_begins - 2 < cut) {
      text_.resize(before);
      return;
    }
    text_.resize(text_.size() - 1 - cut);
    // An escape is a backslash and a letter. If the cut divides one, an odd number of backslashes is left at the end.
    std::size_t backslashes = 0;
    while (text_[text_.size() - 1 - backslashes] == '\\') ++backslashes;
    if (backslashes % 2 != 0) text_.pop_back();
    text_ += mark;
    text_ += '"';
  }
  /// Calls `add`, which adds members. Takes them back if `bytes()` exceeds `end` then.
  template <typename Add>
  void up_to(std::size_t end, Add add) {
    const std::size_t before = text_.size();
    add();
    if (bytes() > end) text_.resize(before);
  }

  /// The length of the object, were it complete now.
  [[nodiscard]] std::size_t bytes() const noexcept { return text_.size() + 1; }
  /// Returns the complete object.
  [[nodiscard]] std::string take() {
    text_ += '}';
    return std::move(text_);
  }

 private:
  void separate() {
    if (!text_.ends_with('{') && !text_.ends_with('[')) text_ += ',';
  }
  void begin(std::string_view name) {
    separate();
    quote(name);
    text_ += ':';
  }
  void quote(std::string_view value) {
    text_ += '"';
    for (const char letter : value) {
      if (letter == '"' || letter == '\\') text_ += '\\';
      text_ += letter < ' ' || letter > '~' ? '?' : letter;
    }
    text_ += '"';
  }
  std::string text_ = "{";
};

}  // namespace neap::observe
