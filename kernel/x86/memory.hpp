// SPDX-License-Identifier: BSL-1.0
// Which RAM is ours, and single pages of it before there is an allocator.
//
// Page tables, the first stacks and firmware tables need pages before the kernel's page allocator can exist, and that wants to be told
// once, exactly, what it owns. So pages are first cut off the start of one range; `hand_over` closes that and names the rest. Later page
// tables come from the allocator like everything else.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/machine.hpp"

namespace neap::x86::memory {

/// Makes the list of usable ranges: what the map calls available, less what it calls otherwise, less the first MiB, less the image, less
/// where a panic is kept; whole pages. False if no range lies where the boot tables reach.
[[nodiscard]] bool initialise();

/// All RAM above the first MiB that the map calls available, the image's included: what the direct map covers. Ascending.
[[nodiscard]] std::span<const machine::MemoryRange> installed();

/// A cleared page, by its physical address; 0 when there is none. Core 0 before `hand_over`, any core after.
[[nodiscard]] std::uint64_t allocate_page();

/// The same, `count` of them in a row, for early use only.
[[nodiscard]] std::uint64_t allocate_early(std::uint64_t count);

/// A free page below 640 KiB for the start of other cores, 0 if the map names none.
[[nodiscard]] std::uint64_t low_page();

/// RAM on [first, end) is near the cores of `node`; from ACPI, before `hand_over`.
void set_node(std::uint64_t first, std::uint64_t end, std::uint32_t node);

/// No early pages from here on. `machine::usable_memory()` is valid after this.
void hand_over();

}  // namespace neap::x86::memory
