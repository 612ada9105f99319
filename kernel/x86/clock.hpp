// SPDX-License-Identifier: BSL-1.0
// The time-stamp counter as the clock, the local APIC's timer as the alarm.
//
// Reading the time must cost a few cycles and need no lock, and all cores must agree on it: so the clock is the TSC, times a fixed-point
// factor. Its rate is what the CPU or the hypervisor states; where neither does, it is measured against a timer of known rate, in at most
// 10 ms.
#pragma once

#include <cstdint>

namespace neap::x86 {

/// Nanoseconds from the TSC at a rate that is guessed until it is known; for the bounds of waits before and during a panic, never for more.
[[nodiscard]] std::uint64_t rough_ns();

/// Busy waiting, for chipset set-up alone.
void wait_ns(std::uint64_t duration_ns);

/// The moment that `now_ns` counts from.
void mark_boot();

/// Finds the rates of TSC and APIC timer and reads the wall clock. Needs ACPI and core 0's APIC.
void initialise_clock();

/// Ready this core's alarm; after its APIC is on.
void initialise_alarm();

/// The alarm's interrupt: if it came early the rest of the time is armed again.
void alarm_arrived();

}  // namespace neap::x86
