// SPDX-License-Identifier: BSL-1.0
// The serial console: COM1, 115200 8N1.
//
// It is the one witness of a boot that goes wrong, so it must work from the first line of C++ to the last of a panic, on any core, and it
// must never be what hangs: a machine may have no UART, or one whose other end does not drain. So each wait is bounded, and a lock held by
// a core that was stopped is broken.
#pragma once

#include <string_view>

namespace neap::x86::serial {

/// Looks for the UART and sets it up. Core 0, first of all.
void initialise();

/// Writes `text`, newlines as CR LF. Waits for the other cores' lines, but at most `line_wait_ms`.
void write(std::string_view text);
constexpr unsigned line_wait_ms = 200;

/// Waits until the last byte is on the wire, at most 20 ms: before power goes off.
void drain();

/// From here on nobody waits for a line of another core: they have stopped, perhaps in the middle of one.
void break_lock();

/// Characters that were given up because the UART took none for too long.
[[nodiscard]] unsigned long long characters_lost();

}  // namespace neap::x86::serial
