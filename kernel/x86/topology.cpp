// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/topology.hpp"

#include <algorithm>
#include <bit>

#include "kernel/x86/power/cpu_power.hpp"

namespace neap::x86 {

Topology find_topology(power::CpuAccess& cpu) noexcept {
  Topology found{.thread_bits = 0, .package_shift = power::package_shift(cpu)};
  const std::uint32_t largest = cpu.cpuid(0, 0).eax;
  constexpr std::uint32_t thread_level = 1;
  for (const std::uint32_t leaf : {0x1fU, 0x0bU}) {
    if (largest < leaf) continue;
    const power::CpuidWords first = cpu.cpuid(leaf, 0);
    if (first.ebx == 0) continue;
    if ((first.ecx >> 8 & 0xff) == thread_level) found.thread_bits = first.eax & 31;
    return found;
  }
  // On CPUs without leaf 11, leaf 4 states the number of core ids in a package (EAX 31:26, minus one). The remaining bits of an id number a
  // core's threads.
  if (largest < 4 || cpu.cpuid(4, 0).eax == 0) return found;
  const std::uint32_t last_core = cpu.cpuid(4, 0).eax >> 26;
  const auto core_bits = static_cast<unsigned>(std::bit_width(last_core));
  found.thread_bits = found.package_shift - std::min(core_bits, found.package_shift);
  return found;
}

}  // namespace neap::x86
