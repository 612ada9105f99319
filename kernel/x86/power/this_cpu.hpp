// SPDX-License-Identifier: BSL-1.0
// The power knowledge, joined to the CPU that runs: the functions of machine.hpp stand on this.
#pragma once

#include "kernel/power.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/sleep.hpp"

namespace neap::x86::power {

/// Once, on core 0, when its APIC id is known: finds what there is and says it. `assume_mwait`: the command line says that MWAIT sleeps.
/// Then each core as it starts, core 0 too.
void find_abilities(bool assume_mwait);
void start_this_core(unsigned core);

/// The CPU that runs the caller.
[[nodiscard]] CpuAccess& cpu_access() noexcept;

[[nodiscard]] SleepPlan plan_sleep(IdleState asked, bool watched) noexcept;

}  // namespace neap::x86::power
