// SPDX-License-Identifier: BSL-1.0
// Page tables: nothing writable is executable, nothing executable is writable, on either of a page's addresses.
//
// One set of tables serves all cores, so a mapping made on one core is valid on all. Mappings are only ever added: no address that was
// mapped is unmapped or changed later, so no core must be told to forget one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/error.hpp"

namespace neap::x86::paging {

enum class Access : std::uint8_t { read, read_write, read_execute };
enum class Cache : std::uint8_t { write_back, uncached };

/// Builds the tables for RAM and image and makes core 0 use them. False: no memory for them.
[[nodiscard]] bool initialise();

/// The root that every core loads, physical.
[[nodiscard]] std::uint64_t root();

/// Maps a core's stacks, each on its own pages with nothing mapped around them. Returns false when there is no memory.
[[nodiscard]] bool map_stacks(unsigned core);

/// Whether `address` lies in a slot's unmapped part; if so, `core` says whose.
[[nodiscard]] bool is_stack_guard(std::uint64_t address, unsigned& core);

/// Gives physical memory that is not in the direct map (device registers, firmware tables) an address. Any alignment; the same place asked
/// for twice is mapped once. Errors: `full` (512 mappings), `out_of_memory`, `invalid` (beyond what a page table entry can hold).
[[nodiscard]] Result<volatile std::byte*> map(std::uint64_t physical, std::uint64_t bytes, Access access, Cache cache);

/// Whether reading all of [address, address + bytes) cannot fault. For backtraces, which follow what may be garbage.
[[nodiscard]] bool is_mapped(std::uint64_t address, std::uint64_t bytes);

}  // namespace neap::x86::paging
