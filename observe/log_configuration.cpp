// SPDX-License-Identifier: BSL-1.0
#include "observe/log_configuration.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"

namespace neap::observe {
namespace {

/// Lower-case hexadecimal digits, at least `digits_min` of them.
std::string hex_digits(std::uint64_t value, std::size_t digits_min) {
  std::string text = hexadecimal(value).substr(2);
  if (text.size() < digits_min) text.insert(0, digits_min - text.size(), '0');
  return text;
}

void add_build(Json& json, const BootFacts& boot) {
  if (const std::string commit = commit_text(boot.commit); !commit.empty()) json.text("commit", commit);
  // As `neap_build`: the kind of build, a comma, the compiler.
  const std::size_t comma = boot.build.find(", ");
  if (const std::string_view kind = boot.build.substr(0, comma); !kind.empty()) json.text("build", bounded(kind));
  if (comma != boot.build.npos) json.text("compiler", bounded(boot.build.substr(comma + 2)));
}

void add_cpu(Json& json, const MachineFacts& facts) {
  if (facts.microcode) json.text("microcode", hexadecimal(*facts.microcode));
  if (facts.signature) json.text("cpu_signature", signature_text(*facts.signature));
}

void add_limits(Json& json, const MachineFacts& facts) {
  if (facts.c_state_limit == nullptr && !facts.turbo_off && !facts.power_limit_mw) return;
  json.open("limits");
  if (facts.c_state_limit != nullptr) json.text("c_state", facts.c_state_limit);
  if (facts.c_state_limit_locked) json.boolean("c_state_locked", *facts.c_state_limit_locked);
  if (facts.turbo_off) json.boolean("turbo_off_by_firmware", *facts.turbo_off);
  if (facts.power_limit_mw) json.number("power_limit_mw", *facts.power_limit_mw);
  json.close();
}

void add_frequencies(Json& json, const PowerAbilities& abilities) {
  if (!abilities.pstates || abilities.ratio_khz == 0) return;
  constexpr std::uint32_t khz_per_mhz = 1000;
  json.open("frequencies_mhz");
  json.number("minimum", abilities.ratio_min * abilities.ratio_khz / khz_per_mhz);
  json.number("base", abilities.ratio_max * abilities.ratio_khz / khz_per_mhz);
  json.number("maximum", abilities.ratio_turbo_max * abilities.ratio_khz / khz_per_mhz);
  json.close();
}

void add_c_states(Json& json, const MachineFacts& facts, const PowerAbilities& abilities) {
  if (std::ranges::none_of(facts.mwait_hints, [](const auto& hint) { return hint.has_value(); })) return;
  json.open_list("c_states");
  for (unsigned state = 0; state < c_states; ++state) {
    if (!facts.mwait_hints[state]) continue;
    json.open_element();
    json.text("name", idle_state_names[state]);
    json.text("hint", "0x" + hex_digits(*facts.mwait_hints[state], 2));
    if (abilities.wake_us[state] != 0) {
      json.number("wake_up_us", abilities.wake_us[state]);
      json.text("source", (abilities.wake_us_measured >> state & 1) != 0 ? "measured" : "table");
    }
    json.close();
  }
  json.close_list();
}

void add_card(Json& json, const RunCard& card) {
  json.open("card");
  json.text("name", bounded(card.identity.name));
  json.text("id", "0x" + hex_digits(card.identity.device_id, 4));
  json.number("revision", card.identity.revision);
  json.number("queues", card.queues);
  json.close();
  if (!card.link_at_start) return;
  json.open("link");
  json.boolean("up", card.link_at_start->up);
  if (card.link_at_start->megabits != 0) json.number("mbps", card.link_at_start->megabits);
  json.close();
}

void add_counters(Json& json, std::string_view name, const std::optional<CardCounters>& counters) {
  if (!counters) return;
  json.open(name);
  for (const auto& [counter, value] : *counters) json.number(counter, value);
  json.close();
}

}  // namespace

std::string signature_text(const MachineFacts::Signature& signature) {
  return hex_digits(signature.family, 2) + '-' + hex_digits(signature.model, 2) + '-' + hex_digits(signature.stepping, 2);
}

std::string commit_text(std::string_view name) {
  constexpr std::string_view changed = "-dirty";
  const bool has_changes = name.ends_with(changed);
  if (has_changes) name.remove_suffix(changed.size());
  constexpr std::size_t short_digits = 12, all_digits = 40;
  if (name.size() != short_digits && name.size() != all_digits) return {};
  if (name.find_first_not_of("0123456789abcdef") != name.npos) return {};
  return std::string(name) + (has_changes ? "+" : "");
}

std::string bounded(std::string_view text) {
  constexpr std::string_view mark = "...";
  if (text.size() <= header_text_bytes_max) return std::string(text);
  return std::string(text.substr(0, header_text_bytes_max - mark.size())) + std::string(mark);
}

void add_configuration(Json& json, const BootFacts& boot, const RunCard* card, std::size_t end) {
  const MachineFacts& facts = machine::facts();
  json.up_to(end, [&] { add_build(json, boot); });
  json.up_to(end, [&] { add_cpu(json, facts); });
  json.up_to(end, [&] { add_limits(json, facts); });
  json.up_to(end, [&] { add_frequencies(json, machine::power_abilities()); });
  json.up_to(end, [&] { add_c_states(json, facts, machine::power_abilities()); });
  if (boot.slow > 1) json.up_to(end, [&] { json.number("slow", boot.slow); });
  if (card != nullptr) {
    json.up_to(end, [&] { add_card(json, *card); });
    json.up_to(end, [&] { add_counters(json, "card_counters_start", card->counters_at_start); });
    json.up_to(end, [&] { add_counters(json, "card_counters_stop", card->counters_at_stop); });
  }
  if (!boot.command_line.empty()) json.text_up_to(end, "command_line", boot.command_line);
}

}  // namespace neap::observe
