// SPDX-License-Identifier: BSL-1.0
#include "kernel/policy_rows.hpp"

#include <algorithm>

#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"

namespace neap::policy {

namespace {

using Parsed = std::expected<Value, Refusal>;

/// A client's text in quotes, shortened and made printable for one line of an answer.
std::string quoted(std::string_view text) {
  constexpr std::size_t shown_bytes_max = 32;
  std::string shown(text.substr(0, shown_bytes_max));
  std::replace_if(shown.begin(), shown.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return '"' + shown + (text.size() > shown_bytes_max ? "...\"" : "\"");
}

bool in_range(const Row& row, Value value) { return value >= row.value_min && value <= row.value_max; }

Parsed parse_number(const Row& row, std::string_view text) {
  if (row.off && text == "off") return 0;
  const auto number = parse_decimal(text);
  if (!number || !in_range(row, *number)) return refuse_text(row, text, accepted_values(row));
  return *number;
}

Parsed parse_time(const Row& row, std::string_view text) {
  constexpr std::uint64_t us_per_ms = 1000;
  std::uint64_t unit_us = 1;
  std::string_view digits = text;
  if (digits.ends_with("us") || digits.ends_with("ms")) {
    unit_us = digits.ends_with("ms") ? us_per_ms : 1;
    digits.remove_suffix(2);
  }
  const auto number = parse_decimal(digits);
  if (!number || !in_range(row, *number * unit_us)) return refuse_text(row, text, accepted_values(row));
  return *number * unit_us;
}

Parsed parse_choice(const Row& row, std::string_view text) {
  const auto choice = std::ranges::find(row.choices, text);
  if (choice == row.choices.end()) return refuse_text(row, text, accepted_values(row));
  return static_cast<Value>(choice - row.choices.begin());
}

Parsed parse_on_off(const Row& row, std::string_view text) {
  if (text != "on" && text != "off") return refuse_text(row, text, accepted_values(row));
  return text == "on" ? 1 : 0;
}

/// `with_unit`: a number of microseconds is shown with its unit.
std::string value_text(const Row& row, Value value, bool with_unit) {
  switch (row.kind) {
    case Kind::on_off:
      return value != 0 ? "on" : "off";
    case Kind::choice:
      require(value < row.choices.size(), "a setting has a value that is none of its choices", value);
      return std::string(row.choices[value]);
    case Kind::time:
      return std::to_string(value) + (with_unit ? "us" : "");
    case Kind::number:
      return with_unit && row.off && value == 0 ? "off" : std::to_string(value);
    case Kind::custom:
      require(row.print != nullptr, "a setting of kind `custom` has no `print`", static_cast<unsigned>(row.setting));
      return row.print(value);
  }
  return {};
}

std::string printed_value(const Row& row, Value value) { return row.print != nullptr ? row.print(value) : value_text(row, value, true); }

template <typename Matches>
const Row* find_first(Matches matches) noexcept {
  const auto find_in = [&](std::span<const Row> rows) -> const Row* {
    const auto row = std::ranges::find_if(rows, matches);
    return row == rows.end() ? nullptr : &*row;
  };
  const Row* const row = find_in(kernel_rows());
  const Device* const card = device();
  return row == nullptr && card != nullptr ? find_in(card->settings()) : row;
}

}  // namespace

std::vector<const Row*> rows() {
  std::vector<const Row*> all;
  for (const Row& row : kernel_rows()) all.push_back(&row);
  if (const Device* const card = device(); card != nullptr) {
    for (const Row& row : card->settings()) all.push_back(&row);
  }
  return all;
}

const Row* find_row(Setting setting) noexcept {
  return find_first([=](const Row& row) { return row.setting == setting; });
}

const Row* find_row(std::string_view name) noexcept {
  return find_first([=](const Row& row) { return row.name == name; });
}

Parsed parse(const Row& row, std::string_view text, const PowerAbilities& abilities) {
  if (row.parse != nullptr) return row.parse(row, text, abilities);
  switch (row.kind) {
    case Kind::on_off:
      return parse_on_off(row, text);
    case Kind::choice:
      return parse_choice(row, text);
    case Kind::time:
      return parse_time(row, text);
    case Kind::number:
      return parse_number(row, text);
    case Kind::custom:
      break;
  }
  panic("a setting of kind `custom` has no `parse`", static_cast<unsigned>(row.setting));
}

std::string print(const Row& row, Value value) { return std::string(row.name) + '=' + printed_value(row, value); }
std::string report(const Row& row, Value value) { return row.report != nullptr ? row.report(value) : value_text(row, value, false); }

std::string accepted_values(const Row& row) {
  if (!row.accepts.empty()) return std::string(row.accepts);
  std::string text;
  switch (row.kind) {
    case Kind::on_off:
      return "on off";
    case Kind::choice:
      for (const std::string_view choice : row.choices) text += (text.empty() ? "" : " ") + std::string(choice);
      return text;
    case Kind::time:
      return std::to_string(row.value_min) + "us to " + std::to_string(row.value_max) + "us";
    case Kind::number:
      text = std::to_string(row.value_min) + " to " + std::to_string(row.value_max);
      if (!row.unit.empty()) text += ' ' + std::string(row.unit);
      return row.off ? text + ", off" : text;
    case Kind::custom:
      break;
  }
  return text;
}

std::string default_value(const Row& row) {
  return row.initial_text.empty() ? printed_value(row, row.initial) : std::string(row.initial_text);
}

std::string usage(const Row& row) {
  const std::string text = std::string(row.name) + ',' + std::string(row.value_name);
  if (row.scope == Scope::card || row.scope == Scope::machine) return text;
  return text + (row.scope == Scope::named_core ? ",CORE" : "[,CORE]");
}

std::string help(const Row& row) { return std::string(row.help) + " Values: " + accepted_values(row) + '.'; }

std::string log_description(const Row& row) {
  std::string value(row.log_value);
  if (value.empty()) {
    if (row.kind == Kind::on_off) value = "switch";
    if (row.kind == Kind::time) value = ":" + std::string(row.unit);
    if (row.kind == Kind::number && row.off) value = "::0=off";
    if (row.kind == Kind::choice) value = "choice:";
    for (const std::string_view choice : row.choices) value += (value.ends_with(':') ? ":" : "|") + std::string(choice);
  }
  const std::string_view field = row.log_field == Row{}.log_field ? std::string_view() : row.log_field;
  std::string text = std::string(row.name) + ':' + std::string(field) + ':' + value;
  while (text.ends_with(':')) text.pop_back();
  return text;
}

std::unexpected<Refusal> refuse(ErrorCode code, const Row& row, std::string_view why) {
  return std::unexpected(Refusal{.code = code, .why = std::string(row.name) + ": " + std::string(why)});
}

std::unexpected<Refusal> refuse_text(const Row& row, std::string_view text, std::string_view accepted) {
  return refuse(ErrorCode::invalid, row, quoted(text) + " is not accepted; accepted here: " + std::string(accepted));
}

std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t scale) {
  constexpr std::uint64_t whole_max = 1'000'000'000'000;
  const auto whole = take_digits(text);
  if (!whole || *whole > whole_max) return std::nullopt;
  std::uint64_t value = *whole * scale;
  if (text.empty()) return value;
  if (text.front() != '.' || text.size() == 1) return std::nullopt;
  for (const char digit : text.substr(1)) {
    scale /= 10;
    if (digit < '0' || digit > '9' || scale == 0) return std::nullopt;
    value += static_cast<std::uint64_t>(digit - '0') * scale;
  }
  return value;
}

}  // namespace neap::policy
