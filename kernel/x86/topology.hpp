// SPDX-License-Identifier: BSL-1.0
// Where a thread of execution sits, read off its APIC id (SDM 3A, 9.9 "Detecting Logical Processor Topology").
//
// The id's low bits number the threads of a core, those above the cores of a package, the rest the packages; how many bits each has is the
// same for all. So the places of cores that have not even been started are known.
#pragma once

#include <cstdint>

#include "kernel/x86/power/cpu_access.hpp"

namespace neap::x86 {

struct Topology {
  unsigned thread_bits = 0;    ///< of the APIC id, for the threads of a core
  unsigned package_shift = 0;  ///< how many bits lie below the package's
};

[[nodiscard]] Topology find_topology(power::CpuAccess& cpu) noexcept;

}  // namespace neap::x86
