// SPDX-License-Identifier: BSL-1.0
// The cores of this machine: their numbers, APIC ids and places. core_start.cpp starts them.
#pragma once

#include <cstdint>
#include <span>

namespace neap::x86 {

/// Determines core 0's APIC id and the list of present cores. Needs ACPI and the APIC.
void initialise_first_core();

/// A core that firmware lists as usable and that the APIC can reach.
struct PresentCore {
  std::uint32_t apic_id;
  unsigned running;  ///< its core number; `machine::cores_max`: it does not run
};
/// All present cores, core 0 first. Only core 0 changes the list, before the application starts.
[[nodiscard]] std::span<PresentCore> present_cores();

/// Called on core 0. `core` is the number of the core with this APIC id from now on.
void give_number(unsigned core, std::uint32_t apic_id);
/// Called on core 0, once, before any other core enters its event loop.
void set_running_cores(unsigned count);
/// Called by a starting core, whose number it is.
void take_number(unsigned core);
void set_tsc_offset(std::uint64_t offset);

[[nodiscard]] std::uint32_t apic_id_of(unsigned core);

/// The amount by which this core's TSC is behind core 0's; 0 if the hardware keeps the TSCs equal.
[[nodiscard]] std::uint64_t this_core_tsc_offset();

/// Sets up core 0's thread-local storage; MUST be called before its first use. `use_first_core_tls_pointer` only sets the pointer again,
/// because loading a segment register may clear it.
void use_first_core_tls();
void use_first_core_tls_pointer();

}  // namespace neap::x86
