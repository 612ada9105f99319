// SPDX-License-Identifier: BSL-1.0
// Checks the form of replies of memcached's protocols, for fuzzers.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace neap::memcached::fuzz {

/// A word or number at `at` of the blank-separated words of `line`; no value if there is none.
inline std::optional<std::string_view> word(std::string_view line, std::size_t at) {
  for (;; --at) {
    const std::size_t end = line.find(' ');
    if (at == 0) return line.substr(0, end);
    if (end == std::string_view::npos) return {};
    line.remove_prefix(end + 1);
  }
}

inline std::optional<std::size_t> number(std::optional<std::string_view> text) {
  std::size_t value = 0;
  if (!text || text->empty() || std::from_chars(text->data(), text->data() + text->size(), value).ptr != text->data() + text->size())
    return {};
  return value;
}

/// True if a line without a value may begin with `first`, its first word.
inline bool begins_a_line(std::string_view first) {
  static constexpr std::string_view words =
      " STORED NOT_STORED EXISTS NOT_FOUND DELETED TOUCHED END OK RESET VERSION STAT ERROR ERROR: CLIENT_ERROR SERVER_ERROR HD EN NS EX NF "
      "MN ME mg PREFIX ITEM BADCLASS MEMLIMIT_TOO_SMALL MEMLIMIT_ADJUST_FAILED WATCHER_TOO_MANY key= ts= skipped= ";
  const std::string known =
      " " + std::string(first.substr(0, first.find('=') + 1)) + (first.contains('=') ? " " : std::string(first) + " ");
  if (words.contains(known)) return true;
  return number(first).has_value();  // of incr and decr
}

/// Returns the position of the first byte that is not part of a well-formed reply of the text protocol; `text.size()` if all are.
inline std::size_t malformed_text(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) return at;
    std::string_view line = text.substr(at, end - at);
    const bool with_return = line.ends_with('\r');
    if (with_return) line.remove_suffix(1);
    const bool is_value = line.starts_with("VALUE "), is_meta_value = line.starts_with("VA ");
    if (!is_value && !is_meta_value) {
      // The lines of dumps and watchers end with LF alone, as in memcached.
      if (!with_return && !line.starts_with("key=") && !line.starts_with("ts=") && !line.starts_with("skipped=")) return at;
      if (!begins_a_line(*word(line, 0))) return at;
      at = end + 1;
      continue;
    }
    const auto bytes = number(word(line, is_value ? 3 : 1));
    if (!with_return || !bytes || text.size() - end - 1 < *bytes + 2 || text.substr(end + 1 + *bytes, 2) != "\r\n") return at;
    at = end + 1 + *bytes + 2;
  }
  return at;
}

/// As `malformed_text`, for the binary protocol.
inline std::size_t malformed_binary(std::string_view text) {
  constexpr std::size_t header_bytes = 24;
  const auto byte = [text](std::size_t at) { return std::size_t{static_cast<unsigned char>(text[at])}; };
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at < header_bytes || byte(at) != 0x81 || byte(at + 5) != 0) return at;
    const std::size_t key = byte(at + 2) << 8 | byte(at + 3), extras = byte(at + 4), status = byte(at + 6) << 8 | byte(at + 7);
    const std::size_t body = byte(at + 8) << 24 | byte(at + 9) << 16 | byte(at + 10) << 8 | byte(at + 11);
    const bool known = status <= 0x06 || status == 0x20 || status == 0x81 || status == 0x82;
    if (!known || key + extras > body || text.size() - at - header_bytes < body) return at;
    at += header_bytes + body;
  }
  return at;
}

}  // namespace neap::memcached::fuzz
