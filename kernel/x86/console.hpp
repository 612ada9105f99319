// SPDX-License-Identifier: BSL-1.0
// The console: writes complete lines to every open device.
//
// Lines go to the boot log from the first instruction of C++ on. The devices are known once the boot options are read, so each device is
// sent the earlier lines when it is opened. The console must work on any core until the last line of a panic, so a panic ignores a lock
// that a stopped core holds. Code outside this folder writes by `machine::console_write`.
#pragma once

#include "kernel/early_options.hpp"

namespace neap::x86::console {

/// Opens the devices that `options` names, and writes the boot log to each. A missing device is reported once, on the other devices. Called
/// once, on core 0, while the boot page tables are in use.
void open(const EarlyOptions& options);

[[nodiscard]] const EarlyOptions& options();

/// Moves the devices to the final page tables. MUST be called before the first write after these tables are loaded.
void use_new_tables();

/// Waits until the last line is sent, at most 80 ms. Called before power goes off.
void drain();

/// From now on no core waits for another core's line: the other cores were stopped, perhaps in the middle of a line.
void break_lock();

}  // namespace neap::x86::console
