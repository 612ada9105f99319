// SPDX-License-Identifier: BSL-1.0
// From an interrupt to an event.
//
// A device's interrupt must not run the application's code: that would need locks everywhere. So the handler does nothing but mark its
// vector (one bit of this core's own word), and the event loop runs the callback as an ordinary event once the window is closed. Interrupts
// that arrive twice before that are one event, as they are one bit in the APIC.
#pragma once

#include <cstdint>

#include "kernel/callback.hpp"
#include "kernel/error.hpp"

namespace neap {

/// Takes a free vector of `core` (0x30 to 0xDF) whose interrupts run `callback` as an event there. Errors: `full` when the core has none
/// left. May be called on any core, from an event or a task; complete when it returns.
[[nodiscard]] Result<std::uint8_t> allocate_vector(unsigned core, Callback callback);

/// Gives the vector back. The device must have stopped raising it; a late interrupt is counted as spurious.
void free_vector(unsigned core, std::uint8_t vector);

/// Called by the machine for each interrupt on the core that took it, interrupts closed.
void interrupt_arrived(std::uint8_t vector) noexcept;
/// The same for the core's own alarm.
void alarm_went_off() noexcept;

}  // namespace neap
