// SPDX-License-Identifier: BSL-1.0
// A core's local APIC: its interrupts, its timer, messages to other cores (SDM 3A, chapter 11).
//
// x2APIC is what we want: registers are MSRs, an inter-core interrupt is one write without waiting, ids have 32 bits. A CPU without it gets
// the same registers by memory.
#pragma once

#include <cstdint>

namespace neap::x86::apic {

// Vectors of our own, above those that `interrupts.hpp` hands out.
constexpr std::uint8_t vector_alarm = 0xf0;
constexpr std::uint8_t vector_wake = 0xf1;
constexpr std::uint8_t vector_error = 0xfe;
constexpr std::uint8_t vector_spurious = 0xff;

/// Chooses the mode, silences the old interrupt controllers. Core 0. False: no APIC at all.
[[nodiscard]] bool initialise();

/// Turns this core's APIC on, local interrupts masked; except that the machine's NMI line is taken by the first core.
void enable_this_core(bool first);

[[nodiscard]] std::uint32_t this_id();
[[nodiscard]] bool is_x2apic();

void end_of_interrupt();
/// Fixed interrupt `vector` to one core.
void send(std::uint32_t apic_id, std::uint8_t vector);
/// INIT and start-up messages (SDM 3A, 9.4.4). `page` is the physical page number below 256 where the core starts.
void send_init(std::uint32_t apic_id);
void send_startup(std::uint32_t apic_id, std::uint8_t page);
/// Non-maskable; never to a core that was not started: firmware left it without a handler, and it would reset the machine.
void send_nmi(std::uint32_t apic_id);

enum class TimerMode : std::uint8_t { one_shot, tsc_deadline };
void set_timer(TimerMode mode, std::uint8_t vector, bool masked);
/// One-shot: counts down from `ticks` at the timer's rate; 0 stops it.
void start_timer(std::uint32_t ticks);
[[nodiscard]] std::uint32_t timer_left();

/// Errors that the APIC reported (its error register, bits of SDM 3A, 11.5.3), all cores together since boot.
void error_arrived();
[[nodiscard]] unsigned errors_seen();

}  // namespace neap::x86::apic
