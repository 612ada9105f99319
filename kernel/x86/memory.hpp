// SPDX-License-Identifier: BSL-1.0
// The RAM that Neap uses, and the allocation of its pages before the page allocator exists.
//
// Page tables, the first stacks and firmware tables need pages before the kernel's page allocator exists. The allocator gets its memory
// once. So early pages are cut off the start of one range, and `hand_over` passes the remaining memory to the allocator.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/machine.hpp"

namespace neap::x86::memory {

/// Builds the list of usable ranges, in whole pages: the memory that the boot loader's map lists as available. It omits the first MiB, the
/// image, the area for a panic's text (kept_panic.hpp), and ranges that the map also lists as another type. Returns false if the boot page
/// tables reach no range.
[[nodiscard]] bool initialise();

/// All available RAM of the map above the first MiB, including the image, in ascending order. The direct map covers this memory.
[[nodiscard]] std::span<const machine::MemoryRange> installed();

/// Returns the physical address of a cleared page; 0 if there is none. Before `hand_over` only core 0 may call it, later any core.
[[nodiscard]] std::uint64_t allocate_page();

/// As `allocate_page`, for `count` contiguous pages. MUST be called before `hand_over`.
[[nodiscard]] std::uint64_t allocate_early(std::uint64_t count);

/// A free page below 640 KiB for the start of other cores; 0 if the map has none.
[[nodiscard]] std::uint64_t low_page();

/// Records that the RAM on [first, end) is near the cores of `node`. Called with ACPI's data, before `hand_over`.
void set_node(std::uint64_t first, std::uint64_t end, std::uint32_t node);

/// Ends early allocation. `machine::usable_memory()` is valid after this.
void hand_over();

}  // namespace neap::x86::memory
