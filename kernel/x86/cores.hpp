// SPDX-License-Identifier: BSL-1.0
// Starts the other cores, and maps core numbers to APIC ids.
#pragma once

#include <cstdint>

namespace neap::x86 {

/// Determines core 0's APIC id. Needs ACPI and the APIC.
void initialise_first_core();

[[nodiscard]] std::uint32_t apic_id_of(unsigned core);

/// The amount by which this core's TSC is behind core 0's; 0 if the hardware keeps the TSCs equal.
[[nodiscard]] std::uint64_t this_core_tsc_offset();

/// Sets up core 0's thread-local storage; MUST be called before its first use. `use_first_core_tls_pointer` only sets the pointer again,
/// because loading a segment register may clear it.
void use_first_core_tls();
void use_first_core_tls_pointer();

}  // namespace neap::x86
