// SPDX-License-Identifier: BSL-1.0
// A core's local APIC: its interrupts, its timer, messages to other cores (SDM 3A, chapter 11).
//
// x2APIC is preferred: its registers are MSRs, an inter-core interrupt is one write without waiting, and ids have 32 bits. A CPU without
// x2APIC has the same registers in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neap::x86::apic {

// Vectors of the kernel itself, above those that `interrupts.hpp` allocates.
constexpr std::uint8_t vector_alarm = 0xf0, vector_wake = 0xf1, vector_error = 0xfe, vector_spurious = 0xff;

/// Chooses between x2APIC and registers in memory, and masks the 8259 interrupt controllers. Called on core 0. False: there is no APIC.
[[nodiscard]] bool initialise();

/// Turns this core's APIC on with local interrupts masked. The first core also receives the interrupts of the machine's NMI line.
void enable_this_core(bool first);

[[nodiscard]] std::uint32_t this_id();
[[nodiscard]] bool is_x2apic();
/// The address at which each core finds its own APIC's registers; null with x2APIC.
[[nodiscard]] const volatile std::byte* registers_in_memory();

void end_of_interrupt();
void send(std::uint32_t apic_id, std::uint8_t vector);
/// Sends an INIT or a start-up message (SDM 3A, 9.4.4). `page` is the physical page number, below 256, at which the core starts.
void send_init(std::uint32_t apic_id);
void send_startup(std::uint32_t apic_id, std::uint8_t page);
/// Sends a non-maskable interrupt. The target MUST be a core that was started. Any other core has no handler, so the NMI would reset the
/// machine.
void send_nmi(std::uint32_t apic_id);

enum class TimerMode : std::uint8_t { one_shot, tsc_deadline };
void set_timer(TimerMode mode, std::uint8_t vector, bool masked);
/// One-shot: counts down from `ticks` at the timer's rate; 0 stops it.
void start_timer(std::uint32_t ticks);
[[nodiscard]] std::uint32_t timer_left();

/// The handler of the APIC's error interrupt. Prints the error register at the first error (bits: SDM 3A, 11.5.3).
void error_arrived();

}  // namespace neap::x86::apic
