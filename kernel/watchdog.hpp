// SPDX-License-Identifier: BSL-1.0
// Naming the event that ran too long.
//
// One event that takes a second stops everything of its core for that second: frames, timers, other cores' calls. Nothing else would say
// which one it was. So, if `watchdog=` asks for it, every event's time is taken, and one over the limit is named: at its end by its own
// core, and, since an end may never come, once while it lasts by another core that is awake, which interrupts it for a moment to look. A
// machine in which every other core sleeps is not woken for that. Off, it costs each event a test.
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

/// Events over the limit that were named at their end, on all cores.
[[nodiscard]] std::uint64_t named() noexcept;

}  // namespace neap::watchdog
