// SPDX-License-Identifier: BSL-1.0
// Applies the power functions to the running CPU, for the functions of machine.hpp.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/panic.hpp"
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

/// The plans of `SleepWays::plan` for each idle state, without and with a watched line. They never change after `find_abilities`.
extern constinit std::array<std::array<SleepPlan, 2>, idle_states> sleep_plans;
[[nodiscard]] inline const SleepPlan& plan_sleep(IdleState asked, bool watched) noexcept {
  const auto state = static_cast<unsigned>(asked);
  require(state < sleep_plans.size(), "plan_sleep: no such idle state", state);
  const SleepPlan& plan = sleep_plans[state][watched];
  require(!watched || plan.way == Way::watch, "plan_sleep: a line is watched in a state without MWAIT", state);
  return plan;
}

}  // namespace neap::x86::power
