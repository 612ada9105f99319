// SPDX-License-Identifier: BSL-1.0
// Interrupts run their callbacks as events.
//
// A device's interrupt must not run the application's code, because that would need locks everywhere. So the handler only marks its vector,
// by one bit in this core's memory. The event loop takes interrupts between events and then runs the callback as an ordinary event. If a
// vector is raised twice before its callback runs, the callback runs once. (The APIC, too, has one bit for each pending vector.)
#pragma once

#include <cstdint>

#include "kernel/callback.hpp"
#include "kernel/error.hpp"

namespace neap {

/// Takes a free vector of `core` (0x30 to 0xDF). Its interrupts run `callback` as an event there. May be called on any core, from an event
/// or a task. The vector can be raised as soon as the function has returned. Errors: `full` if the core has no free vector.
[[nodiscard]] Result<std::uint8_t> allocate_vector(unsigned core, Callback callback);

/// Frees the vector. The device MUST have stopped raising it; a late interrupt is counted as spurious.
void free_vector(unsigned core, std::uint8_t vector);

/// Called by the machine for each interrupt, on the core that took it, with interrupts disabled.
void interrupt_arrived(std::uint8_t vector) noexcept;
/// Called by the machine when this core's alarm has fired, with interrupts disabled.
void alarm_fired() noexcept;

}  // namespace neap
