// SPDX-License-Identifier: BSL-1.0
// Applies the power functions to the running CPU, for the functions of machine.hpp.
#pragma once

#include <cstdint>

#include "kernel/power.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/sleep.hpp"

namespace neap::x86::power {

/// `find_abilities` finds the CPU's abilities and reports them. It MUST be called once, on core 0, when its APIC id is known.
/// `start_this_core` MUST be called on each core as it starts, including core 0; cores may call it at the same time.
void find_abilities(const FindOptions& options);
void start_this_core(unsigned core);
/// Called on core 0 for each running core in ascending order, including core 0: assigns the core to the package of its APIC id.
void place_core(unsigned core, std::uint32_t apic_id);
/// A parked core, which will not run events, calls `park_this_core`, then sleeps by `plan_parked`. After all of these calls, core 0 calls
/// `report_parked`.
void park_this_core();
[[nodiscard]] SleepPlan plan_parked() noexcept;
void report_parked(unsigned parked);

[[nodiscard]] CpuAccess& cpu_access() noexcept;

/// The plan for a sleep in `asked`, as `SleepWays::plan`.
[[nodiscard]] const SleepPlan& plan_sleep(IdleState asked, bool watched) noexcept;

}  // namespace neap::x86::power
