// SPDX-License-Identifier: BSL-1.0
// Naming the event that ran too long.
//
// One event that takes a second stops everything of its core for that second: frames, timers, other cores' calls. Nothing else would say
// which one it was. So, if `watchdog=` asks for it, every event's time is taken, and one over the limit is named at its end by its own
// core. An end may never come. So another core names it while it lasts, and interrupts the event's core for a moment to look.
//
// Cores that are awake look four times in a limit. When they sleep, cores 0 and 1 are guards: the first event after a pause wakes them, and
// each then sets its alarm for half a limit later, again and again while another core is in an event. So an event is named at most 1.5
// limits after it began, unless both guards are in such events themselves while all others sleep. Each guard wakes at most four times in a
// limit, and a machine in which all cores sleep has no alarm. Off, the watchdog costs each event a test.
//
// On one core an event that never ends is not named: events run with interrupts closed, so only an NMI could look (docs/caveats.md).
#pragma once

#include <chrono>
#include <cstdint>

#include "kernel/counter.hpp"

namespace neap {
class Arguments;
}

namespace neap::watchdog {

/// Whether time is taken; constant once cores run.
extern constinit bool on;

/// Asks for `watchdog=`, and sets it. Core 0, before the others start.
void configure(Arguments& arguments);
/// The same from code (tests); 0: off.
void configure(std::chrono::nanoseconds limit) noexcept;

/// This core begins an event whose code is at `code`; the one before, if it was not closed by `idle`, ends here.
void begin(std::uintptr_t code) noexcept;
/// This core found nothing to do.
void idle() noexcept;
/// When this core must be awake to look at others, as of its last `idle`; `machine::alarm_none`: never.
[[nodiscard]] std::uint64_t next_look_ns() noexcept;

/// Events over the limit that were named at their end, on all cores.
[[nodiscard]] std::uint64_t named() noexcept;

}  // namespace neap::watchdog
