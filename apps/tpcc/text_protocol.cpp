// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/text_protocol.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

namespace neap::tpcc {
namespace {

constexpr std::string_view error = "ERROR\r\n";
constexpr std::string_view bad_format = "CLIENT_ERROR bad command line format\r\n";
constexpr std::string_view bad_chunk = "CLIENT_ERROR bad data chunk\r\n";
constexpr std::string_view version = "VERSION 1.6.0-neap-tpcc\r\n";

Command refuse(std::string_view answer) noexcept { return {.kind = Command::Kind::refused, .answer = answer}; }
Command answer(std::string_view text) noexcept { return {.kind = Command::Kind::answer, .answer = text}; }

bool is_key(std::string_view word) noexcept {
  return word.size() <= key_bytes_max &&
         std::ranges::all_of(word, [](char letter) { return static_cast<unsigned char>(letter) > ' ' && letter != 0x7f; });
}

template <class Number>
std::optional<Number> read(std::string_view word) noexcept {
  Number number = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (word.empty() || code != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

Command parse_get(std::string_view rest, bool with_unique) noexcept {
  Command command{.kind = Command::Kind::get, .with_unique = with_unique, .keys = rest};
  std::string_view key = take_word(rest);
  if (key.empty()) return refuse(error);
  for (; !key.empty(); key = take_word(rest)) {
    if (!is_key(key)) return refuse(bad_format);
  }
  return command;
}

/// `set KEY FLAGS EXPIRY BYTES [noreply]`
Command parse_set(std::string_view rest) noexcept {
  const std::string_view key = take_word(rest), flags = take_word(rest), expiry = take_word(rest), bytes = take_word(rest);
  if (bytes.empty()) return refuse(error);
  const std::string_view option = take_word(rest);
  if ((!option.empty() && option != "noreply") || !take_word(rest).empty()) return refuse(error);
  const auto length = read<std::int64_t>(bytes);
  if (!is_key(key) || !read<std::uint32_t>(flags) || !read<std::int64_t>(expiry) || !length) return refuse(bad_format);
  if (*length < 0 || *length > std::numeric_limits<std::int32_t>::max()) return refuse(bad_chunk);
  // A long value is refused and still skipped, so that its bytes are not read as commands.
  const bool too_long = static_cast<std::uint64_t>(*length) > value_bytes_max;
  return {.kind = Command::Kind::set,
          .no_reply = !option.empty(),
          .value_bytes = static_cast<std::uint32_t>(*length),
          .answer = too_long ? "SERVER_ERROR object too large for cache\r\n" : "STORED\r\n"};
}

Command parse_stats(std::string_view rest) noexcept {
  const std::string_view what = take_word(rest);
  if (what.empty()) return {.kind = Command::Kind::statistics};
  return refuse(error);
}

Command parse_verbosity(std::string_view rest) noexcept {
  const std::string_view level = take_word(rest), option = take_word(rest);
  if (level.empty()) return refuse(error);
  Command command = answer("OK\r\n");
  command.no_reply = option == "noreply";
  if ((!option.empty() && !command.no_reply) || !take_word(rest).empty()) return refuse(error);
  return read<std::uint32_t>(level) ? command : refuse(bad_format);
}

}  // namespace

std::string_view take_word(std::string_view& line) noexcept {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size());
  return word;
}

Command parse_line(std::string_view line) noexcept {
  std::string_view rest = line;
  const std::string_view name = take_word(rest);
  if (name == "get") return parse_get(rest, false);
  if (name == "gets") return parse_get(rest, true);
  if (name == "set") return parse_set(rest);
  if (name == "stats") return parse_stats(rest);
  if (name == "verbosity") return parse_verbosity(rest);
  if (name == "version" && take_word(rest).empty()) return answer(version);
  if (name == "quit" && take_word(rest).empty()) return {.kind = Command::Kind::quit};
  return refuse(error);
}

}  // namespace neap::tpcc
