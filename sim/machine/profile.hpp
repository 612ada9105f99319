// SPDX-License-Identifier: BSL-1.0
// The instructions of the measured window or between lines of the console, by address, and the cache lines that moved between cores.
//
// A cost is a number of instructions, and a profile says where they are. Each translated instruction calls the profile before it runs, so
// the counts are exact. A repeated string instruction counts once, as a CPU counts it; QEMU's own count has each repetition. Counting
// begins with the window and ends with it; each window begins with 0. It takes no virtual time and does not change the run.
//
// NetPIPE has no window. It prints a line after each size, so its instructions are those between two lines. A system may
// print many lines while it boots. So only the profiles of the last 64 lines stay in memory. They are written at the machine's end.
//
// A line moves if a core accesses a line that another core has written since, or writes a line that another core has read since. That is
// the protocol MESI with caches of unlimited size. The readers of a line are tracked since boot; only moves within a window are counted.
// The card's accesses are not seen. Only plugin.cpp includes this file; the cores run in one thread, so nothing is locked.
#pragma once

#include <cstdint>

namespace neap::model::profile {

enum class Span : std::uint8_t { window, console_line };

/// Counts the instructions of each span and writes them to `path`: those of a window at its end, those of lines at the machine's end. It is
/// a line of text for each address that was executed, with the address (hexadecimal), the number of executions, and the number of lines
/// that these executions moved. MUST be called at installation. A `%` in the file's name stands for the number of the load or of the
/// console's line, so that each of them has a file of its own. With lines there MUST be one. `watches_moves`: false leaves out the moves of
/// lines. Watching all accesses to memory makes a run take twice as long or longer.
void begin(std::uint64_t plugin, const char* path, Span span, bool watches_moves);
/// The experiment's phase has changed; `load` is the number of the load under way. Returns false if the file could not be written.
[[nodiscard]] bool phase_changed(bool in_window, std::uint64_t load);
/// The console's line with this number, from 1, has ended. The instruction that wrote its last character belongs to it.
void console_line_ended(std::uint64_t line);
/// The machine has ended. Returns false if a file could not be written. Further calls do nothing.
[[nodiscard]] bool machine_ended();

}  // namespace neap::model::profile
