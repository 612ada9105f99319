// SPDX-License-Identifier: BSL-1.0
// The power knowledge, joined to the CPU that runs: the functions of machine.hpp stand on this.
#pragma once

#include "kernel/power.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/sleep.hpp"

namespace neap::x86::power {

/// Once, on core 0, when its APIC id is known: finds what there is and reports it. Then each core as it starts, core 0 too.
void find_abilities(FindOptions options);
void start_this_core(unsigned core);
/// On a core that is parked, before it sleeps; the state that it may sleep in. Core 0 reports what the parked cores asked for.
void park_this_core();
[[nodiscard]] SleepPlan plan_parked() noexcept;
void report_parked(unsigned parked);

/// The CPU that runs the caller.
[[nodiscard]] CpuAccess& cpu_access() noexcept;

[[nodiscard]] SleepPlan plan_sleep(IdleState asked, bool watched) noexcept;

}  // namespace neap::x86::power
