// SPDX-License-Identifier: BSL-1.0
#include "kernel/arguments.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"

namespace neap {
namespace {

constexpr std::string_view blanks = " \t\r\n";

std::optional<std::uint64_t> multiply(std::uint64_t value, std::uint64_t by) {
  if (value > number_max / by) return std::nullopt;
  return value * by;
}

std::optional<std::uint64_t> parse_scaled(std::string_view text, bool suffixes) {
  const auto value = take_number(text);
  if (!value) return std::nullopt;
  if (text.empty()) return value;
  if (!suffixes || text.size() != 1) return std::nullopt;
  switch (text.front()) {
    case 'K':
      return multiply(*value, 1ULL << 10);
    case 'M':
      return multiply(*value, 1ULL << 20);
    case 'G':
      return multiply(*value, 1ULL << 30);
    default:
      return std::nullopt;
  }
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    std::uint64_t ns;
  };
  constexpr Unit units[] = {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
  const auto value = take_number(text);
  if (!value) return std::nullopt;
  for (const Unit& unit : units) {
    if (text != unit.name) continue;
    const auto ns = multiply(*value, unit.ns);
    if (!ns || *ns > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return std::chrono::nanoseconds(*ns);
  }
  return std::nullopt;
}

std::string format_bytes(std::uint64_t value) {
  if (value != 0 && value != number_max) {
    if (value % (1ULL << 30) == 0) return std::to_string(value >> 30) + "G";
    if (value % (1ULL << 20) == 0) return std::to_string(value >> 20) + "M";
    if (value % (1ULL << 10) == 0) return std::to_string(value >> 10) + "K";
  }
  return std::to_string(value);
}

std::string format_duration(std::chrono::nanoseconds value) {
  const auto ns = value.count();
  if (ns != 0 && ns % 1'000'000'000 == 0) return std::to_string(ns / 1'000'000'000) + "s";
  if (ns != 0 && ns % 1'000'000 == 0) return std::to_string(ns / 1'000'000) + "ms";
  if (ns != 0 && ns % 1'000 == 0) return std::to_string(ns / 1'000) + "us";
  return std::to_string(ns) + "ns";
}

/// A boot loader may pass any byte. All except printable ASCII are replaced by `?`.
std::string printable(std::string_view text) {
  std::string result(text);
  std::replace_if(result.begin(), result.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return result;
}

void print_lines(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    print(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

Arguments::Arguments(std::string_view command_line) {
  for (;;) {
    const std::size_t begin = command_line.find_first_not_of(blanks);
    if (begin == std::string_view::npos) break;
    command_line.remove_prefix(begin);
    const std::string_view text = command_line.substr(0, command_line.find_first_of(blanks));
    command_line.remove_prefix(text.size());
    const std::size_t equals = text.find('=');
    Word word{.key = printable(text.substr(0, equals))};
    if (equals != std::string_view::npos) {
      word.has_value = true;
      word.value = printable(text.substr(equals + 1));
    }
    word.repeated = std::any_of(words_.begin(), words_.end(), [&](const Word& other) { return other.key == word.key; });
    words_.push_back(std::move(word));
  }
}

/// Records `key` as an accepted key. Returns its value if the command line has one, else null.
const std::string* Arguments::take(std::string_view key, std::string_view otherwise, std::string_view accepts, std::string_view help) {
  require(!key.empty() && key.find_first_of("= \t\r\n") == key.npos, "a key that no word of a command line can have");
  const bool known = std::any_of(keys_.begin(), keys_.end(), [&](const Key& other) { return other.name == key; });
  if (!known) keys_.push_back({std::string(key), std::string(otherwise), std::string(accepts), std::string(help)});
  for (Word& word : words_) {
    if (word.key != key || word.repeated) continue;
    word.taken = true;
    return word.has_value ? &word.value : nullptr;
  }
  return nullptr;
}

bool Arguments::has(std::string_view key) const {
  return std::any_of(words_.begin(), words_.end(), [&](const Word& word) { return word.key == key && word.has_value; });
}

void Arguments::complain(std::string_view key, std::string_view value, std::string why) {
  const bool known =
      std::any_of(complaints_.begin(), complaints_.end(), [&](const Complaint& other) { return other.key == key && other.why == why; });
  if (!known) complaints_.push_back({std::string(key), std::string(value), std::move(why)});
}

std::uint64_t Arguments::scaled(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help, bool suffixes) {
  require(range.min <= range.max, "a range without a value", range.min);
  const auto format = [suffixes](std::uint64_t value) { return suffixes ? format_bytes(value) : std::to_string(value); };
  std::string accepts = suffixes ? "bytes, K, M or G" : "number";
  std::string limits;
  if (range.min != 0 && range.max != number_max) {
    limits = format(range.min) + " to " + format(range.max);
  } else if (range.max != number_max) {
    limits = "at most " + format(range.max);
  } else if (range.min != 0) {
    limits = "at least " + format(range.min);
  }
  if (!limits.empty()) accepts += ", " + limits;
  const std::string* const text = take(key, format(otherwise), accepts, help);
  if (text == nullptr) return otherwise;
  const auto value = parse_scaled(*text, suffixes);
  if (!value) {
    complain(key, *text, suffixes ? "is not a number of bytes (digits, then nothing, K, M or G)" : "is not a number");
    return otherwise;
  }
  if (*value < range.min || *value > range.max) {
    complain(key, *text, "is out of range (" + limits + ")");
    return otherwise;
  }
  return *value;
}

std::uint64_t Arguments::number(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help) {
  return scaled(key, otherwise, range, help, false);
}

std::uint64_t Arguments::bytes(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help) {
  return scaled(key, otherwise, range, help, true);
}

std::chrono::nanoseconds Arguments::duration(std::string_view key, std::chrono::nanoseconds otherwise, std::string_view help) {
  const std::string* const text = take(key, format_duration(otherwise), "number with ns, us, ms or s", help);
  if (text == nullptr) return otherwise;
  const auto value = parse_duration(*text);
  if (!value) complain(key, *text, "is not a duration (digits, then ns, us, ms or s)");
  return value.value_or(otherwise);
}

bool Arguments::flag(std::string_view key, bool otherwise, std::string_view help) {
  return choice(key, {"off", "on"}, otherwise ? 1 : 0, help) == 1;
}

std::string Arguments::text(std::string_view key, std::string_view otherwise, std::string_view help) {
  const std::string* const value = take(key, otherwise, "text", help);
  return value == nullptr ? std::string(otherwise) : *value;
}

std::size_t Arguments::choice(std::string_view key, std::initializer_list<std::string_view> choices, std::size_t otherwise,
                              std::string_view help) {
  require(otherwise < choices.size(), "a default that is not among the choices", otherwise);
  std::string accepts;
  for (const std::string_view choice : choices) {
    if (!accepts.empty()) accepts += " | ";
    accepts += choice;
  }
  const std::string* const text = take(key, *(choices.begin() + otherwise), accepts, help);
  if (text == nullptr) return otherwise;
  const auto found = std::find(choices.begin(), choices.end(), *text);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  complain(key, *text, "is not one of: " + accepts);
  return otherwise;
}

void Arguments::reject(std::string_view key, std::string_view why) {
  const auto word = std::find_if(words_.begin(), words_.end(), [&](const Word& other) { return other.key == key; });
  complain(key, word == words_.end() ? std::string_view() : std::string_view(word->value), std::string(why));
}

void Arguments::refuse(std::string_view key, std::string_view why) {
  for (Word& word : words_) {
    if (word.key != key) continue;
    word.taken = word.has_value = true;
    word.repeated = false;
    complain(key, word.value, std::string(why));
  }
}

void Arguments::mark_secret(std::string_view key) {
  if (!secret(key)) secrets_.emplace_back(key);
}

bool Arguments::secret(std::string_view key) const { return std::find(secrets_.begin(), secrets_.end(), key) != secrets_.end(); }
std::string Arguments::shown_value(std::string_view key, std::string_view value) const { return secret(key) ? "***" : std::string(value); }

std::string Arguments::shown() const {
  std::string line;
  for (const Word& word : words_) {
    if (!line.empty()) line += ' ';
    line += word.key;
    if (word.has_value) line += '=' + shown_value(word.key, word.value);
  }
  return line;
}

std::string Arguments::complaints() const {
  std::string text;
  for (const Complaint& complaint : complaints_) {
    text += complaint.key + '=' + shown_value(complaint.key, complaint.value) + ' ' + complaint.why + '\n';
  }
  for (const Word& word : words_) {
    if (!word.has_value) {
      text += word.key + " has no value (words are key=value)\n";
    } else if (word.repeated) {
      text += word.key + '=' + shown_value(word.key, word.value) + " comes a second time\n";
    } else if (!word.taken) {
      // The value is not shown, because it may be a secret whose key was mistyped.
      text += word.key + "= is not known\n";
    }
  }
  return text;
}

std::string Arguments::accepted() const {
  std::string text;
  for (const Key& key : keys_) {
    text += key.name + "=  " + key.help + " (" + key.accepts;
    if (!key.otherwise.empty()) text += "; default " + shown_value(key.name, key.otherwise);
    text += ")\n";
  }
  return text;
}

void Arguments::finish() const {
  const std::string wrong = complaints();
  if (wrong.empty()) {
    if (!words_.empty()) print("neap: command line: ", shown());
    return;
  }
  print("bad command line:");
  print_lines(wrong);
  print("accepted:");
  print_lines(accepted());
  machine::exit(machine::ExitStatus::bad_command_line);
}

}  // namespace neap
