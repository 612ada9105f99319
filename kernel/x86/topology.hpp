// SPDX-License-Identifier: BSL-1.0
// The package, core and thread of an APIC id (SDM 3A, 9.9 "Detecting Logical Processor Topology").
//
// The id's low bits number the threads of a core, the next ones the cores of a package, the rest the packages. The widths of these fields
// are the same for all ids. So the topology of cores that are not started yet is known.
#pragma once

#include "kernel/x86/power/cpu_access.hpp"

namespace neap::x86 {

struct Topology {
  unsigned thread_bits = 0;    ///< bits of the APIC id that number the threads of a core
  unsigned package_shift = 0;  ///< bits of the APIC id below the package's field
};

[[nodiscard]] Topology find_topology(power::CpuAccess& cpu) noexcept;

}  // namespace neap::x86
