// SPDX-License-Identifier: BSL-1.0
// Serial ports: UARTs of the 16550 family, 8N1, by polling.
//
// A serial line is the one witness of a boot that goes wrong, and it must never be what hangs: a machine may have no UART, or one whose
// other end does not drain. So a port is looked for before it is used, and each wait is bounded.
#pragma once

#include <string_view>

#include "kernel/early_options.hpp"

namespace neap::x86::serial {

/// Looks for a UART there and sets it up; false if there is none. At most `EarlyOptions::serial_max` of them. `console.hpp` serialises the
/// calls of all of these.
[[nodiscard]] bool open(const SerialPort& port);

/// Writes `text` to all open ports, newlines as CR LF. A port whose other end takes nothing for 1 s gets what it takes without waiting.
void write(std::string_view text);

/// Waits until the last byte is on the wire, at most 20 ms a port (so that a FIFO of 16 bytes is empty at 9600 baud): before power goes
/// off.
void drain();

/// Characters that were given up because a port took none for too long.
[[nodiscard]] unsigned long long characters_lost();

}  // namespace neap::x86::serial
