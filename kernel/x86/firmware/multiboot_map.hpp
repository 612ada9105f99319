// SPDX-License-Identifier: BSL-1.0
// Reads the memory maps of Multiboot 1 and 2 entry by entry.
//
// An invalid length ends the list. It does not stop the boot, because no error message could be printed yet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/x86/firmware/acpi_tables.hpp"

namespace neap::x86::multiboot {

/// Calls `visit(first, bytes, type)` for each entry. Multiboot 1, 3.3: an entry's size precedes it and does not count the size field.
template <typename Visit>
void for_each_range_1(const acpi::Bytes& map, Visit visit) {
  constexpr std::size_t size_bytes = 4, entry_bytes = 20;
  for (std::size_t at = 0; at + size_bytes + entry_bytes <= map.size();) {
    visit(map.read<std::uint64_t>(at + 4), map.read<std::uint64_t>(at + 12), map.read<std::uint32_t>(at + 20));
    const std::size_t next = at + size_bytes + map.read<std::uint32_t>(at);
    if (next < at + size_bytes + entry_bytes) return;
    at = next;
  }
}

/// Calls `visit` for each entry of a Multiboot 2 map, whose beginning states the length of an entry (3.6.8).
template <typename Visit>
void for_each_range_2(const acpi::Bytes& body, Visit visit) {
  constexpr std::size_t head_bytes = 8, entry_bytes_min = 20;
  const std::size_t entry_bytes = body.read<std::uint32_t>(0);
  if (entry_bytes < entry_bytes_min) return;
  for (std::size_t at = head_bytes; at + entry_bytes <= body.size(); at += entry_bytes) {
    visit(body.read<std::uint64_t>(at), body.read<std::uint64_t>(at + 8), body.read<std::uint32_t>(at + 16));
  }
}

}  // namespace neap::x86::multiboot
