// SPDX-License-Identifier: BSL-1.0
// What the boot loader knows.
//
// Its structures lie anywhere in memory that we are about to use, in one of two formats. So everything wanted is copied out before the
// first page is taken, and the rest of the kernel sees one form only. All sizes are bounded; a loader that says more is cut, and that is
// said.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace neap::x86 {

struct PhysicalRange {
  std::uint64_t first;
  std::uint64_t end;  ///< one past the last byte
};

struct BootInfo {
  std::string_view loader;                     ///< the loader's name, may be empty
  std::string_view command_line;               ///< without the image's name
  std::uint64_t rsdp;                          ///< physical address of ACPI's root pointer (a copy), 0 when the loader gave none
  std::uint64_t image_physical;                ///< where the image lies
  bool text_screen;                            ///< the loader says, or does not deny, that the screen is in VGA text mode
  bool cut;                                    ///< something did not fit into our tables
  std::span<const PhysicalRange> available;    ///< RAM by the memory map, in its order, whole bytes
  std::span<const PhysicalRange> unavailable;  ///< everything that the map names otherwise: wins where it overlaps
};

/// Reads the loader's information (Multiboot 1 or 2, told by `magic`). Only memory below 4 GiB is touched. Returns false for an unknown
/// magic.
[[nodiscard]] bool capture_boot_info(std::uint32_t magic, std::uint32_t information, std::uint32_t image_physical);

[[nodiscard]] const BootInfo& boot_info();

}  // namespace neap::x86
