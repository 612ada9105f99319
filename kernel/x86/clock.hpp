// SPDX-License-Identifier: BSL-1.0
// The time-stamp counter as the clock, the local APIC's timer as the alarm.
//
// Reading the time must cost a few cycles and no lock, and all cores must agree on it. So the clock is the TSC times a fixed-point factor.
// The CPU or the hypervisor states the TSC's rate. If neither does, the rate is measured against a timer of known rate, in at most 10 ms.
#pragma once

#include <cstdint>

#include "kernel/x86/cpu.hpp"

namespace neap::x86 {

/// The TSC in nanoseconds, by a guessed rate until the true rate is known. MUST be used only to bound waits.
[[nodiscard]] std::uint64_t rough_ns();

/// The limit of a busy wait that begins now, by the same rate as `rough_ns`: `while (!done && !limit.passed()) pause();`
///
/// `passed` calls no function, in no build. A machine that ends waits until the other cores have stopped and QEMU has ended. Calls in these
/// waits would overwrite the function trace's ring (tools/trace.py).
class WaitLimit {
 public:
  explicit WaitLimit(std::uint64_t limit_ns);
  [[nodiscard, gnu::always_inline]] bool passed() const { return read_tsc() - start_tsc_ > ticks_; }

 private:
  std::uint64_t start_tsc_, ticks_;
};

/// A busy wait, only for chipset set-up.
void wait_ns(std::uint64_t duration_ns);

/// Sets the origin of `now_ns`.
void mark_boot();

/// Finds the rates of the TSC and the APIC timer, and reads the wall clock. Needs ACPI and core 0's APIC.
void initialise_clock();

/// Prepares this core's alarm. Its APIC MUST be on.
void initialise_alarm();

/// The alarm's interrupt handler. If the interrupt was early, it sets the alarm again for the remaining time.
void alarm_arrived();

}  // namespace neap::x86
