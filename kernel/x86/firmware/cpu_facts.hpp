// SPDX-License-Identifier: BSL-1.0
// CPU identity, microcode revision and SMI count: facts that a report of a measurement needs.
//
// A system management interrupt stops a core for tens or hundreds of microseconds and leaves no trace in our logs. The CPU counts it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernel/x86/power/cpu_access.hpp"

namespace neap::x86::cpu_facts {

struct Identity {
  std::array<char, 49> name{};  ///< the brand string without surrounding blanks; empty if there is none
  std::uint16_t family = 0, model = 0, stepping = 0;
  bool intel = false, amd = false, hypervisor = false;
};
[[nodiscard]] Identity identify(power::CpuAccess& cpu) noexcept;

/// Revision of the loaded microcode (SDM 3A, 10.11.7.1; AMD: low half of the same MSR). Returns nothing if the revision is implausible.
[[nodiscard]] std::optional<std::uint32_t> microcode(power::CpuAccess& cpu) noexcept;

/// True if the timer's TSC-deadline mode may fail once IA32_TSC_ADJUST was written, which every core does when it starts. Later microcode
/// fixes this erratum. Models, steppings and revisions are from Linux (arch/x86/kernel/apic/apic.c, deadline_match).
[[nodiscard]] bool deadline_may_fail(const Identity& identity, std::uint32_t microcode) noexcept;

/// Number of system management interrupts of this core since reset (SDM 4, MSR_SMI_COUNT, 34h). Returns nothing on CPUs not made by Intel,
/// on models before Nehalem, and under a hypervisor, where the MSR reads as zero.
[[nodiscard]] std::optional<std::uint32_t> system_management_interrupts(power::CpuAccess& cpu) noexcept;

}  // namespace neap::x86::cpu_facts
