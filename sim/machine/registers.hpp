// SPDX-License-Identifier: BSL-1.0
// The model's answers to RDMSR, WRMSR and CPUID.
//
// The emulator has registers and CPUID leaves of its own. The functions here answer those that the model adds or changes, and return false
// for all others, which the emulator then answers. Numbers and fields: Intel SDM volume 4 (MSRs), 2A (CPUID), 3B chapters 15 and 20.
#pragma once

#include <cstdint>

#include "sim/machine/package.hpp"

namespace neap::model {

/// IA32_TIME_STAMP_COUNTER. A core MUST NOT read it before no other core is behind, as with RDTSC (Machine::may_read_tsc).
constexpr std::uint32_t time_stamp_counter_msr = 0x10;

[[nodiscard]] bool read_msr(Package& package, unsigned core, std::uint32_t number, std::uint64_t& value) noexcept;
[[nodiscard]] bool write_msr(Package& package, unsigned core, std::uint32_t number, std::uint64_t value) noexcept;

/// The value that RDPMC reads for ECX (SDM 2B, RDPMC). False: there is no such counter.
[[nodiscard]] bool read_counter(Package& package, unsigned core, std::uint32_t selector, std::uint64_t& value) noexcept;

struct CpuidWords {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};
/// A leaf of the model's own. It identifies the model machine; with a number in ECX it also writes a snapshot that bears this number. The
/// range belongs to hypervisors, so no CPU has it (SDM 2A, CPUID).
constexpr std::uint32_t model_machine_leaf = 0x4e656170;

/// Replaces or completes the emulator's answer to a leaf.
void change_cpuid(const Package& package, std::uint32_t leaf, CpuidWords& words) noexcept;

}  // namespace neap::model
