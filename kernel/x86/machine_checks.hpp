// SPDX-License-Identifier: BSL-1.0
// Applies the functions of firmware/machine_check.hpp to the running CPU.
#pragma once

#include "kernel/console.hpp"

namespace neap::x86::machine_checks {

/// Finds the error banks. MUST be called once, on core 0, before the functions below.
void find();
/// Called on each core as it starts, even if it will not run events. Reports and clears errors left in the banks, then turns the banks on.
void start_this_core(unsigned core);

/// For the exception handler. True if a bank that this core sees holds an error.
[[nodiscard]] bool any_here();
/// Allows the core to take another machine check. Otherwise a second machine check would silently stop the machine (SDM 3B, 16.3.1.2).
void leave_exception();
/// Prints all errors that this core sees, and appends the first one to `text`.
void report_here(unsigned core, Line& text);

}  // namespace neap::x86::machine_checks
