// SPDX-License-Identifier: BSL-1.0
// Page tables. No physical page is both writable and executable, even by two mappings at different addresses.
//
// One set of tables serves all cores, so a mapping made on one core is valid on all. Mappings are only added. No mapped address is unmapped
// or changed later, so no core ever has to flush a translation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/error.hpp"

namespace neap::x86::paging {

enum class Access : std::uint8_t { read, read_write, read_execute };
enum class Cache : std::uint8_t { write_back, uncached };

/// Builds the tables for RAM and image and loads them on core 0. False: no memory for them.
[[nodiscard]] bool initialise();

/// The physical address of the root table that every core loads.
[[nodiscard]] std::uint64_t root();

/// Maps a core's stacks, each on its own pages with unmapped pages around them. False when there is no memory.
[[nodiscard]] bool map_stacks(unsigned core);

/// True if `address` is in an unmapped part of a core's region of stacks; the function then sets `core`.
[[nodiscard]] bool is_stack_guard(std::uint64_t address, unsigned& core);

/// Maps physical memory that is not in the direct map (device registers, firmware tables). Any alignment. If the range is already mapped in
/// the same way, returns that mapping. Errors: `full` (512 mappings), `out_of_memory`, `invalid` (beyond the range of a page table entry).
[[nodiscard]] Result<volatile std::byte*> map(std::uint64_t physical, std::uint64_t bytes, Access access, Cache cache);

/// True if reading all of [address, address + bytes) cannot fault. For backtraces, which follow pointers that may be garbage.
[[nodiscard]] bool is_mapped(std::uint64_t address, std::uint64_t bytes);

}  // namespace neap::x86::paging
