// SPDX-License-Identifier: BSL-1.0
#include "kernel/policy_values.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "kernel/numbers.hpp"

namespace neap::policy {

namespace {

using Parsed = std::expected<Value, Refusal>;

/// What was typed, fit for a line of an answer.
std::string quoted(std::string_view text) {
  constexpr std::size_t shown_bytes_max = 32;
  std::string shown(text.substr(0, shown_bytes_max));
  std::replace_if(shown.begin(), shown.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return '"' + shown + (text.size() > shown_bytes_max ? "...\"" : "\"");
}

std::unexpected<Refusal> wrong(Setting setting, std::string_view text, std::string_view accepted) {
  return refuse(ErrorCode::invalid, setting, quoted(text) + " is not accepted; accepted here: " + std::string(accepted));
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

/// Digits, and after a point at most as many more as `scale` (a power of ten) has zeros; the number times `scale`. Nothing else.
std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t scale) {
  constexpr std::uint64_t whole_most = 1'000'000'000'000;
  const auto whole = take_digits(text);
  if (!whole || *whole > whole_most) return std::nullopt;
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

/// 35 W for 35000, 35.125 W for 35125.
std::string thousandths(std::uint64_t value) {
  std::string text = std::to_string(value / 1000);
  if (value % 1000 == 0) return text;
  std::string rest = std::to_string(1000 + value % 1000).substr(1);
  while (rest.back() == '0') rest.pop_back();
  return text + '.' + rest;
}

bool has(const PowerAbilities& abilities, unsigned state) { return (abilities.idle_states >> state & 1) != 0; }

std::string why_no_state(const PowerAbilities& abilities, IdleState state) {
  const std::string name = idle_state_names[static_cast<unsigned>(state)];
  if (!abilities.mwait_sleeps) return name + " needs an MWAIT that sleeps";
  if (state == IdleState::monitor) return "monitor needs a MONITOR that sees every write, and this CPU's may miss one (erratum)";
  const bool deeper_than_c1e = state >= IdleState::c3 && state <= IdleState::c7;
  if (abilities.timer_stops && deeper_than_c1e) return name + " would stop this CPU's APIC timer (no ARAT in CPUID leaf 6)";
  return "this CPU has no " + name;
}

Parsed parse_idle(std::string_view text, const PowerAbilities& abilities) {
  Value value;
  if (text == "deepest") {
    value.idle = abilities.deepest;
    return value;
  }
  const auto* const name = std::find(idle_state_names.begin(), idle_state_names.end(), text);
  if (name == idle_state_names.end()) return wrong(Setting::idle, text, accepted_idle_states(abilities));
  value.idle = static_cast<IdleState>(name - idle_state_names.begin());
  if (has(abilities, static_cast<unsigned>(value.idle))) return value;
  return refuse(ErrorCode::unsupported, Setting::idle,
                why_no_state(abilities, value.idle) + "; accepted here: " + accepted_idle_states(abilities));
}

Parsed parse_time(Setting setting, std::string_view text, std::uint32_t most_us, std::string_view accepted) {
  std::string_view digits = text;
  const std::uint64_t unit_us = take_suffix(digits, "us") || !take_suffix(digits, "ms") ? 1 : 1000;
  const auto number = parse_decimal(digits, 1);
  if (!number || *number * unit_us > most_us) return wrong(setting, text, accepted);
  Value value;
  value.number = static_cast<std::uint32_t>(*number * unit_us);
  return value;
}

std::optional<std::uint64_t> parse_ratio(std::string_view text, std::uint32_t step_khz) {
  if (text.starts_with("0x") || text.starts_with("0X")) {
    // IA32_PERF_CTL has nothing but the ratio on the CPUs that we can tell anything.
    const auto raw = parse_number(text);
    if (!raw || (*raw & ~std::uint64_t{0xff00}) != 0) return std::nullopt;
    return *raw >> 8;
  }
  std::string_view digits = text;
  const bool mhz = take_suffix(digits, "MHz");
  if (!mhz && !take_suffix(digits, "GHz")) return parse_decimal(text, 1);
  const auto khz = parse_decimal(digits, mhz ? 1000 : 1'000'000);
  if (!khz || step_khz == 0) return std::nullopt;
  return (*khz + step_khz / 2) / step_khz;
}

Parsed parse_pstate(std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.performance) return refuse(ErrorCode::unsupported, Setting::pstate, "no P-states can be set on this CPU");
  Value value;
  if (text == "off") return value;
  const auto ratio = parse_ratio(text, abilities.ratio_khz);
  const std::uint64_t most = std::max(abilities.ratio_max, abilities.ratio_turbo_max);
  if (!ratio || *ratio < abilities.ratio_min || *ratio > most) {
    const auto mhz = [&](std::uint64_t of) { return std::to_string(of * abilities.ratio_khz / 1000); };
    return wrong(Setting::pstate, text,
                 "a ratio of " + std::to_string(abilities.ratio_min) + " to " + std::to_string(most) + ", " + mhz(abilities.ratio_min) +
                     "MHz to " + mhz(most) + "MHz, " + hexadecimal(std::uint64_t{abilities.ratio_min} << 8) + " to " +
                     hexadecimal(most << 8) + ", off");
  }
  value.performance = *ratio << 8;
  return value;
}

// As Linux calls them (Documentation/admin-guide/pm/intel_pstate.rst, "energy_performance_preference").
struct NamedPreference {
  std::string_view name;
  std::uint32_t value;
};
constexpr NamedPreference named_preferences[] = {
    {"performance", 0}, {"balance_performance", 128}, {"balance_power", 192}, {"power", 255}, {"off", machine::firmwares_preference}};

Parsed parse_epp(std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.energy_preference) return refuse(ErrorCode::unsupported, Setting::epp, "no energy preference can be set on this CPU");
  Value value;
  for (const NamedPreference& named : named_preferences) {
    if (text != named.name) continue;
    value.number = named.value;
    return value;
  }
  const auto number = parse_decimal(text, 1);
  if (!number || *number > 255)
    return wrong(Setting::epp, text, "0 (speed) to 255 (saving), performance balance_performance balance_power power off");
  value.number = static_cast<std::uint32_t>(*number);
  return value;
}

Parsed parse_power_limit(std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.power_limit) return refuse(ErrorCode::unsupported, Setting::power_limit, "no power limit can be set on this CPU");
  if (abilities.power_limit_locked) return refuse(ErrorCode::unsupported, Setting::power_limit, "firmware has locked the power limit");
  Value value;
  if (text == "off") return value;
  std::string_view digits = text;
  static_cast<void>(take_suffix(digits, "W"));
  const auto milliwatts = parse_decimal(digits, 1000);
  constexpr std::uint32_t anything_mw = 4'000'000;  // the register ends there: 15 bits of eighths of a watt
  const std::uint32_t least = std::max(abilities.power_limit_least_mw, 1U);
  const std::uint32_t most = abilities.power_limit_most_mw != 0 ? abilities.power_limit_most_mw : anything_mw;
  if (!milliwatts || *milliwatts < least || *milliwatts > most)
    return wrong(Setting::power_limit, text, thousandths(least) + "W to " + thousandths(most) + "W, off");
  value.number = static_cast<std::uint32_t>(*milliwatts);
  return value;
}

Parsed parse_switch(Setting setting, std::string_view text) {
  if (text != "on" && text != "off") return wrong(setting, text, "on off");
  Value value;
  value.number = text == "on" ? 1 : 0;
  return value;
}

Parsed parse_turbo(std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.turbo) return refuse(ErrorCode::unsupported, Setting::turbo, "turbo cannot be set on this CPU");
  return parse_switch(Setting::turbo, text);
}

Parsed parse_preset(std::string_view text) {
  if (text != "study" && text != "default") return wrong(Setting::preset, text, "study default");
  Value value;
  value.number = text == "study" ? 1 : 0;
  return value;
}

Parsed parse_steer(std::string_view text) {
  Value value;
  if (text == "off") return value;
  const bool udp = text.starts_with("udp:");
  const auto port = udp || text.starts_with("tcp:") ? parse_number(text.substr(4), 65535) : std::nullopt;
  if (!port || *port == 0) return wrong(Setting::steer, text, "udp:PORT tcp:PORT off");
  value.number = static_cast<std::uint32_t>(*port) | (udp ? steer_udp : 0);
  return value;
}

Parsed parse_vlan(std::string_view text) {
  constexpr std::uint64_t most = 4094;  // IEEE 802.1Q, 9.6: 0 and 4095 are nobody's
  Value value;
  if (text == "off") return value;
  const auto number = parse_decimal(text, 1);
  if (!number || *number == 0 || *number > most) return wrong(Setting::vlan, text, "1 to 4094, off");
  value.number = static_cast<std::uint32_t>(*number);
  return value;
}

/// By number.
constexpr std::array<std::string_view, 4> flow_control_names{"off", "receive", "transmit", "both"};
static_assert((flow_control_receive | flow_control_transmit) == 3);

Parsed parse_flow_control(std::string_view text) {
  const auto* const name = std::find(flow_control_names.begin(), flow_control_names.end(), text);
  if (name == flow_control_names.end()) return wrong(Setting::flow_control, text, "off receive transmit both");
  Value value;
  value.number = static_cast<std::uint32_t>(name - flow_control_names.begin());
  return value;
}

Parsed parse_segmentation(std::string_view text) {
  const auto* const name = std::find(segmentation_names.begin(), segmentation_names.end(), text);
  if (name == segmentation_names.end()) return wrong(Setting::tso, text, "off copy chain");
  Value value;
  value.number = static_cast<std::uint32_t>(name - segmentation_names.begin());
  return value;
}

/// The card has the last word.
Parsed parse_card_number(Setting setting, std::string_view text) {
  constexpr std::uint64_t most = 1'000'000;
  const auto number = parse_decimal(text, 1);
  if (!number || *number > most) return wrong(setting, text, "a number");
  Value value;
  value.number = static_cast<std::uint32_t>(*number);
  return value;
}

}  // namespace

std::unexpected<Refusal> refuse(ErrorCode code, Setting setting, std::string_view why) {
  return std::unexpected(
      Refusal{.code = code, .why = std::string(setting_names[static_cast<unsigned>(setting)]) + ": " + std::string(why)});
}

std::string accepted_idle_states(const PowerAbilities& abilities) {
  std::string text;
  for (unsigned state = 0; state < idle_states; ++state) {
    if (has(abilities, state)) text += std::string(idle_state_names[state]) + ' ';
  }
  return text + "deepest";
}

Parsed parse(Setting setting, std::string_view text, const PowerAbilities& abilities) {
  constexpr std::uint32_t itr_us_bound = 1'000'000'000;  // the card has the last word
  switch (setting) {
    case Setting::idle:
      return parse_idle(text, abilities);
    case Setting::itr:
      return parse_time(setting, text, itr_us_bound, "a time in us or ms");
    case Setting::pstate:
      return parse_pstate(text, abilities);
    case Setting::epp:
      return parse_epp(text, abilities);
    case Setting::power_limit:
      return parse_power_limit(text, abilities);
    case Setting::turbo:
      return parse_turbo(text, abilities);
    case Setting::poll_budget:
      return parse_time(setting, text, poll_budget_us_max, "0us to 1000000us");
    case Setting::preset:
      return parse_preset(text);
    case Setting::steer:
      return parse_steer(text);
    case Setting::flow_control:
      return parse_flow_control(text);
    case Setting::vlan:
      return parse_vlan(text);
    case Setting::tso:
      return parse_segmentation(text);
    default:
      return is_switch(setting) ? parse_switch(setting, text) : parse_card_number(setting, text);
  }
}

std::string text_of(Setting setting, const Value& value) {
  std::string text = setting_names[static_cast<unsigned>(setting)];
  text += '=';
  switch (setting) {
    case Setting::idle:
      return text + idle_state_names[static_cast<unsigned>(value.idle)];
    case Setting::itr:
    case Setting::poll_budget:
      return text + std::to_string(value.number) + "us";
    case Setting::pstate:
      return text + (value.performance == 0 ? "off" : hexadecimal(value.performance));
    case Setting::epp:
      return text + (value.number == machine::firmwares_preference ? "off" : std::to_string(value.number));
    case Setting::power_limit:
      return text + (value.number == 0 ? "off" : thousandths(value.number) + 'W');
    case Setting::preset:
      return text + (value.number != 0 ? "study" : "default");
    case Setting::steer:
      if (value.number == 0) return text + "off";
      return text + ((value.number & steer_udp) != 0 ? "udp:" : "tcp:") + std::to_string(value.number & ~steer_udp);
    case Setting::vlan:
      return text + (value.number == 0 ? "off" : std::to_string(value.number));
    case Setting::flow_control:
      return text + std::string(flow_control_names[value.number & 3]);
    case Setting::tso:
      return text + segmentation_names[value.number];
    default:
      if (is_switch(setting)) return text + (value.number != 0 ? "on" : "off");
      return text + std::to_string(value.number);
  }
}

}  // namespace neap::policy
