// SPDX-License-Identifier: BSL-1.0
// The information from the boot loader.
//
// The loader's structures may be anywhere in memory that the kernel will use, in one of two formats. So everything needed is copied out
// before the first page is allocated, and the rest of the kernel sees one format. All sizes are bounded. Truncated input is reported.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernel/machine.hpp"

namespace neap::x86 {

struct PhysicalRange {
  std::uint64_t first;
  std::uint64_t end;  ///< one past the last byte
};

/// A boot module, where the loader put it. `neap::machine::boot_modules` has its bytes.
struct ModulePlace {
  PhysicalRange range;
  std::string_view name;
};

struct BootInfo {
  std::string_view loader;                     ///< the loader's name, may be empty
  std::string_view command_line;               ///< without the image's name
  std::uint64_t rsdp;                          ///< physical address of a copy of ACPI's root pointer; 0 if the loader gave none
  std::uint64_t image_physical;                ///< physical address of the image
  bool text_screen;                            ///< the screen is in VGA text mode, according to the loader or by the BIOS's default
  bool cut;                                    ///< a part of the information did not fit into our tables
  std::span<const PhysicalRange> available;    ///< RAM according to the memory map, in the map's order; not page aligned
  std::span<const PhysicalRange> unavailable;  ///< all other ranges of the map; they override `available` where they overlap
  std::span<const ModulePlace> modules;        ///< at most `machine::boot_modules_max`; further ones set `cut`
};

/// Reads the loader's information; `magic` tells Multiboot 1 from 2. Reads only memory below 4 GiB. False for an unknown magic number.
[[nodiscard]] bool capture_boot_info(std::uint32_t magic, std::uint32_t information, std::uint32_t image_physical);

[[nodiscard]] const BootInfo& boot_info();

}  // namespace neap::x86
