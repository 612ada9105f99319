// SPDX-License-Identifier: BSL-1.0
// What firmware left, looked at once at boot, on the machine that runs: said where it matters, changed only where it must be.
#pragma once

namespace neap::x86::firmware {

/// On core 0, with ACPI and the clock there, before any device is used: names the CPU and its microcode, looks whether all RAM is
/// cacheable, turns DMA and interrupt remapping off.
void look_at_machine();

/// On each further core as it starts: its MTRRs must be those of core 0.
void look_at_core(unsigned core);

}  // namespace neap::x86::firmware
