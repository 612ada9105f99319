// SPDX-License-Identifier: BSL-1.0
// Prints the names of events that run too long.
//
// An event that takes a second stops everything else of its core for that second: frames, timers, remote calls. To identify such an event,
// the option `watchdog=` sets a limit for the time of an event. When an event over the limit ends, its core prints the event's name.
// Because the event may never end, another core also interrupts the event's core briefly and prints the name.
//
// A core that is awake checks the other cores four times in the time of one limit. Cores 0 and 1 are guards: they also wake from sleep to
// check. The first event after a time without checks wakes them, and each sets its alarm for half a limit later. A guard sets its alarm
// again as long as another core runs an event. So an event is named at most 1.5 limits after it began, unless both guards run long events
// while all other cores sleep. A guard wakes at most four times in a limit, and while all cores sleep no alarm is set. A disabled watchdog
// costs each event the test of one flag.
//
// On a machine with a single core, an event that never ends is not reported. Events run with interrupts disabled, so only an NMI could
// detect such an event (docs/caveats.md).
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

/// This core begins an event whose code is at `code`. The previous event ends here, unless `idle` was called after it.
void begin(std::uintptr_t code) noexcept;
/// This core found no work: its last event has ended.
void idle() noexcept;
/// The time at which this core must wake to check the others, computed by its last call of `idle`; `machine::alarm_none`: never.
[[nodiscard]] std::uint64_t next_look_ns() noexcept;

/// The number of events over the limit whose names were printed at their end, on all cores.
[[nodiscard]] std::uint64_t named() noexcept;

}  // namespace neap::watchdog
