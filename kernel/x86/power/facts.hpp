// SPDX-License-Identifier: BSL-1.0
// Finds the facts about CPU and firmware that logs name (kernel/machine_facts.hpp).
#pragma once

#include "kernel/machine_facts.hpp"
#include "kernel/power.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/models.hpp"
#include "kernel/x86/power/sleep.hpp"

namespace neap::x86::power {

/// The deepest C-state of a package that `code` (bits 2:0 of MSR_PKG_CST_CONFIG_CONTROL) allows: a name that logs use.
[[nodiscard]] const char* package_limit_name(PackageLimits meaning, unsigned code) noexcept;

/// MUST be called before Neap changes a setting of the CPU.
[[nodiscard]] MachineFacts find_facts(CpuAccess& cpu, const PowerAbilities& abilities, const SleepWays& ways) noexcept;

}  // namespace neap::x86::power
