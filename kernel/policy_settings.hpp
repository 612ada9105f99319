// SPDX-License-Identifier: BSL-1.0
// Values of the kernel's own settings, as text and as numbers. Kernel-internal.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernel/log.hpp"
#include "kernel/policy.hpp"
#include "kernel/policy_rows.hpp"
#include "kernel/power.hpp"

namespace neap::policy {

constexpr std::uint32_t poll_budget_us_max = 1'000'000;
constexpr std::uint32_t adaptive_poll_us_max = 10'000;
constexpr std::uint8_t turbo_never_set = 2;

/// The accepted values of `idle` on this CPU, for example "halt poll deepest".
[[nodiscard]] std::string accepted_idle_states(const PowerAbilities& abilities);

/// False also if `card` is null.
[[nodiscard]] bool has_queue(const Device* card, unsigned core) noexcept;

/// Reports the value of each setting that this core, its package and the card in use have, in the order of the table. The value is the one
/// that a Settings entry of the log has. Settings without a value, and those that this machine does not support, are left out.
std::size_t report_configuration(std::span<log::ConfiguredSetting, log::configured_settings_max> out) noexcept;

}  // namespace neap::policy
