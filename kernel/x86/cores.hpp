// SPDX-License-Identifier: BSL-1.0
// Starting the other cores, and which is which.
#pragma once

#include <cstdint>

namespace neap::x86 {

/// Core 0: which APIC it is. After ACPI and APIC are up.
void initialise_first_core();

/// The APIC id of a running core.
[[nodiscard]] std::uint32_t apic_id_of(unsigned core);

/// What this core's TSC lacks to core 0's; 0 wherever the hardware keeps them together.
[[nodiscard]] std::uint64_t this_core_tsc_offset();

/// Thread-local storage of core 0, before anything uses it. The pointer alone again after segments were loaded, which may clear it.
void use_first_core_tls();
void use_first_core_tls_pointer();

}  // namespace neap::x86
