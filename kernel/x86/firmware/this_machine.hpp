// SPDX-License-Identifier: BSL-1.0
// Checks firmware's settings once at boot. Defects are reported. They are corrected only if Neap could not work with them.
#pragma once

namespace neap::x86::firmware {

/// On core 0, after ACPI and the clock, and before any device is used. Prints the CPU and its microcode, checks that all RAM is cacheable,
/// and turns DMA and interrupt remapping off.
void check_machine();

/// On each further core as it starts: its MTRRs must equal those of core 0.
void check_core(unsigned core);

}  // namespace neap::x86::firmware
