// SPDX-License-Identifier: BSL-1.0
// Naming events that run too long.
//
// An event that takes a second stops everything else of its core for that second: frames, timers, remote calls. Nothing else would show
// which event it was. So `watchdog=` measures the time of every event. At the end of an event over the limit, its own core prints its name.
// Because the event may never end, another core also names it while it lasts, and interrupts the event's core for a moment to find its
// name.
//
// Cores that are awake check the others four times within one limit. When they sleep, cores 0 and 1 are guards. The first event
// after a pause wakes them. Each then sets its alarm for half a limit later, and again while another core is in an event. So an event is
// named at most 1.5 limits after it began, unless both guards are in such events themselves while all others sleep. Each guard wakes at
// most four times in a limit, and a machine in which all cores sleep has no alarm. A disabled watchdog costs each event a test.
//
// On a machine with a single core, an event that never ends is not reported: events run with interrupts closed, so only an NMI could detect
// it (docs/caveats.md).
#pragma once

#include <chrono>
#include <cstdint>

namespace neap {
class Arguments;
}

namespace neap::watchdog {

/// True if events are measured; constant once cores run.
extern constinit bool on;

/// Reads `watchdog=` and applies it. Called by core 0 before the others start.
void configure(Arguments& arguments);
/// Sets the limit (tests); 0: off.
void configure(std::chrono::nanoseconds limit) noexcept;

/// This core begins an event whose code is at `code`. The event before it ends here, unless `idle` has ended it.
void begin(std::uintptr_t code) noexcept;
/// This core found no work: its last event has ended.
void idle() noexcept;
/// When this core must wake to check the others, as of its last `idle`; `machine::alarm_none`: never.
[[nodiscard]] std::uint64_t next_look_ns() noexcept;

/// Events over the limit that were named at their end, on all cores.
[[nodiscard]] std::uint64_t named() noexcept;

}  // namespace neap::watchdog
