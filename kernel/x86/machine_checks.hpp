// SPDX-License-Identifier: BSL-1.0
// Machine checks of this machine: firmware/machine_check.hpp joined to the CPU that runs.
#pragma once

#include "kernel/console.hpp"

namespace neap::x86::machine_checks {

/// Once, on core 0, before the next.
void find();
/// Each core as it starts, parked ones too: reports and clears what the banks hold from before, then turns them on.
void start_this_core(unsigned core);

/// For the exception's handler. True if a bank that this core sees holds an error.
[[nodiscard]] bool any_here();
/// Lets the core take another machine check, which would otherwise stop the machine without a word (SDM 3B, 16.3.1.2).
void leave_exception();
/// Prints all errors that this core sees, and adds the first one to `text`.
void report_here(unsigned core, Line& text);

}  // namespace neap::x86::machine_checks
