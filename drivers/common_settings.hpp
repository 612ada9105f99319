// SPDX-License-Identifier: BSL-1.0
// The rows of settings that several cards have (kernel/policy_rows.hpp).
//
// A setting that means the same on each card has one name, one number in logs and one sentence of help. So its row is here once, and a
// driver's table takes it from here. A value that differs between cards, such as the largest one, is an argument.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel/policy_rows.hpp"

namespace neap::card_setting {

/// Rows of card settings. `log_number` identifies the setting in logs (drivers/ixgbe/settings.cpp has the list of numbers).
[[nodiscard]] constexpr policy::Row number(unsigned log_number, std::string_view name, std::uint32_t min, std::uint32_t max,
                                           std::string_view help) noexcept {
  return {.setting = policy::Setting(log_number),
          .name = name,
          .scope = policy::Scope::card,
          .value_min = min,
          .value_max = max,
          .unit = "descriptors",
          .help = help};
}
[[nodiscard]] constexpr policy::Row on_off(unsigned log_number, std::string_view name, std::string_view help,
                                           bool initial = false) noexcept {
  return {.setting = policy::Setting(log_number),
          .name = name,
          .value_name = "SWITCH",
          .kind = policy::Kind::on_off,
          .scope = policy::Scope::card,
          .initial = initial ? 1U : 0U,
          .help = help};
}

/// `max`: the most descriptors that one event of the driver can take.
[[nodiscard]] constexpr policy::Row budget_row(std::uint32_t max) noexcept {
  policy::Row row = number(8, "rx_budget", 1, max, "Receive descriptors that one event may take.");
  row.initial = 64;
  return row;
}
constexpr policy::Row coalescing_row = on_off(13, "rsc", "Receive side coalescing: the card joins a connection's segments.", true);
constexpr policy::Row promiscuous_row = on_off(14, "promiscuous", "The card receives frames to other addresses too.");

/// The settings themselves, for a driver's `change` and `value_of`.
constexpr policy::Setting budget = budget_row(1).setting, coalescing = coalescing_row.setting, promiscuous = promiscuous_row.setting;

}  // namespace neap::card_setting
