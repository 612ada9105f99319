// SPDX-License-Identifier: BSL-1.0
// Serial ports: UARTs of the 16550 family, 8N1, by polling.
//
// A serial line may be the only output of a failed boot, and it must never block the boot. A machine may have no UART, or one whose
// receiver does not drain. So a port is probed before it is used, and each wait is bounded.
#pragma once

#include <string_view>

#include "kernel/early_options.hpp"

namespace neap::x86::serial {

/// Probes for a UART and sets it up; false if there is none. At most `EarlyOptions::serial_max` ports can be open. `console.hpp` serialises
/// calls of all functions here.
[[nodiscard]] bool open(const SerialPort& port);

/// Writes `text` to all open ports, with newlines as CR LF. A port that accepts nothing for 1 s is written to without waiting from then on.
void write(std::string_view text);

/// Waits until the last byte is sent, at most 20 ms for each port (16 bytes of a FIFO take 17 ms at 9600 baud). Called before power goes
/// off.
void drain();

}  // namespace neap::x86::serial
