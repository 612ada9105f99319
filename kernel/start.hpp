// SPDX-License-Identifier: BSL-1.0
// Where the machine ends and the portable kernel begins.
//
// On bare metal `kernel/x86/start.cpp` makes the machine usable, hands its memory over by
// `memory::initialise_pages(machine::usable_memory())`, runs the static constructors (they may allocate), and calls this. The kernel then
// starts the other cores, prints its first line and runs the application.
#pragma once

namespace neap {

/// Called once, on core 0, on its own stack, interrupts closed, every function of machine.hpp and pci.hpp usable.
[[noreturn]] void run_kernel() noexcept;

}  // namespace neap
