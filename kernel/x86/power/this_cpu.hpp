// SPDX-License-Identifier: BSL-1.0
// Applies the power functions to the running CPU. The functions of machine.hpp use this.
#pragma once

#include "kernel/power.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/sleep.hpp"

namespace neap::x86::power {

/// Once, on core 0, when its APIC id is known: finds the abilities and reports them. The second function: on each core as it starts,
/// including core 0.
void find_abilities(FindOptions options);
void start_this_core(unsigned core);
/// On a parked core before it sleeps; `plan_parked` is the state to sleep in. Core 0 reports the parked cores' requests.
void park_this_core();
[[nodiscard]] SleepPlan plan_parked() noexcept;
void report_parked(unsigned parked);

/// The CPU of the calling core.
[[nodiscard]] CpuAccess& cpu_access() noexcept;

[[nodiscard]] SleepPlan plan_sleep(IdleState asked, bool watched) noexcept;

}  // namespace neap::x86::power
