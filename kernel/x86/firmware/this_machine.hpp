// SPDX-License-Identifier: BSL-1.0
// Checks firmware's settings once at boot. Defects are reported. They are corrected only if Neap could not work with them.
#pragma once

namespace neap::x86::firmware {

/// Called on core 0, after ACPI and the clock, and before any device is used. Prints the CPU and its microcode, checks that all RAM is
/// cacheable, and turns DMA and interrupt remapping off.
void check_machine();

/// Called on each further core as it starts. Reports MTRRs that differ from core 0's.
void check_core(unsigned core);

}  // namespace neap::x86::firmware
