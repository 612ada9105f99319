// SPDX-License-Identifier: BSL-1.0
// Addresses for PCI devices to which firmware gave none.
//
// Firmware normally gives each base address register (BAR) an address. The smallest firmware of virtual machines, such as QEMU's qboot,
// gives none and leaves that to the system. This file is the computation alone; pci.cpp reads and writes the registers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace neap::x86::pci_addresses {

struct Range {
  std::uint64_t first;
  std::uint64_t end;  ///< one past the last byte
};

/// The I/O APIC's page and everything above it up to 4 GiB belong to the chipset.
constexpr std::uint64_t limit = 0xfec0'0000;
/// Space of this size behind RAM is left free. Chipsets keep memory for themselves there, which the memory map need not list.
constexpr std::uint64_t alignment_behind_ram = std::uint64_t{16} << 20;

/// Returns the first address behind the RAM below 4 GiB, from which PCI devices may have addresses.
[[nodiscard]] constexpr std::uint64_t behind_ram(std::span<const Range> ram) noexcept {
  std::uint64_t end = 0;
  for (const Range& range : ram) {
    if (range.first < limit) end = std::max(end, range.end);
  }
  return (end + alignment_behind_ram - 1) & ~(alignment_behind_ram - 1);
}

/// Returns the lowest multiple of `bytes` at or above `from` at which `bytes` bytes overlap no range of `taken` and end at or below
/// `limit`; 0 if there is none. `bytes`: the size of a BAR, a power of two, at least 16.
[[nodiscard]] constexpr std::uint64_t place(std::span<const Range> taken, std::uint64_t from, std::uint64_t bytes) noexcept {
  if (bytes == 0 || (bytes & (bytes - 1)) != 0 || bytes > limit || from >= limit) return 0;
  std::uint64_t at = (from + bytes - 1) & ~(bytes - 1);
  for (bool moved = true; moved && at + bytes <= limit;) {
    moved = false;
    for (const Range& range : taken) {
      if (at >= range.end || at + bytes <= range.first) continue;
      if (range.end >= limit) return 0;
      at = (range.end + bytes - 1) & ~(bytes - 1);
      moved = true;
    }
  }
  return at + bytes <= limit ? at : 0;
}

}  // namespace neap::x86::pci_addresses
