// SPDX-License-Identifier: BSL-1.0
// The start of the portable kernel.
//
// On bare metal `kernel/x86/start.cpp` initialises the machine, passes its memory to `memory::initialise_pages(machine::usable_memory())`,
// runs the static constructors (they may allocate), and calls `run_kernel`. The kernel then starts the other cores, prints its first line
// and runs the application.
#pragma once

namespace neap {

/// Called once, on core 0 and its stack, with interrupts disabled. Every function of machine.hpp and pci.hpp is usable.
[[noreturn]] void run_kernel() noexcept;

}  // namespace neap
