// SPDX-License-Identifier: BSL-1.0
// Values of the kernel's own settings, as text and as numbers. Kernel-internal.
#pragma once

#include <string>

#include "kernel/policy_rows.hpp"
#include "kernel/power.hpp"

namespace neap::policy {

constexpr std::uint32_t poll_budget_us_max = 1'000'000;
constexpr std::uint32_t adaptive_poll_us_max = 10'000;
constexpr std::uint8_t turbo_never_set = 2;

/// The accepted values of `idle` on this CPU, for example "halt poll deepest".
[[nodiscard]] std::string accepted_idle_states(const PowerAbilities& abilities);

}  // namespace neap::policy
