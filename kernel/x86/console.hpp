// SPDX-License-Identifier: BSL-1.0
// The console: every place where lines go, one line after the other.
//
// Lines go to the boot log from the first instruction of C++ on. Where else is known once the command line is, so what was said until then
// is said again to each device as it is opened. It must work to the last line of a panic, on any core: a lock held by a core that was
// stopped is broken. Writing is `machine::console_write`.
#pragma once

#include "kernel/early_options.hpp"

namespace neap::x86::console {

/// Opens what `options` name, and tells it the boot log. A device that is not there is said once, on the others. Core 0, once, while the
/// boot page tables hold.
void open(const EarlyOptions& options);

/// As `open` was given them.
[[nodiscard]] const EarlyOptions& options();

/// The boot page tables have gone; before anything is written.
void use_new_tables();

/// Waits until the last line has left, 80 ms at most: before power goes off.
void drain();

/// From here on nobody waits for a line of another core: they have stopped, perhaps in the middle of one.
void break_lock();

}  // namespace neap::x86::console
