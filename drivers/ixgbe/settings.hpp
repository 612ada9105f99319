// SPDX-License-Identifier: BSL-1.0
// The card's rows of the table of settings (kernel/policy_rows.hpp), and the member of `QueueOptions` that each row sets.
//
// A new setting is a member of `QueueOptions`, a row in settings.cpp, and the line that programs it. The command line, control, reports and
// logs take names, ranges and defaults from the row. A test compares docs/policy.md with the rows.
#pragma once

#include <span>

#include "drivers/ixgbe/queue_options.hpp"
#include "kernel/policy_rows.hpp"

namespace neap::ixgbe {

struct CardSetting {
  policy::Row row;
  std::uint32_t QueueOptions::* option = nullptr;  ///< null for `preset` and `steer`
  bool while_running = false;                      ///< a change stops no queue
  bool in_preset = true;                           ///< the setting `preset` changes this setting too
};
[[nodiscard]] std::span<const CardSetting> card_settings() noexcept;
/// Returns null if the card has no such setting.
[[nodiscard]] const CardSetting* find_setting(policy::Setting setting) noexcept;

/// Returns only the rows, with their defaults.
[[nodiscard]] std::span<const policy::Row> setting_rows() noexcept;

}  // namespace neap::ixgbe
