// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/boot_info.hpp"

#include <algorithm>
#include <cstring>

#include "boot/multiboot.h"
#include "kernel/machine.hpp"
#include "kernel/x86/firmware/multiboot_map.hpp"
#include "kernel/x86/layout.hpp"

namespace neap::x86 {

namespace {

constexpr std::size_t ranges_max = 192, command_line_bytes_max = 4096, loader_bytes_max = 64, module_name_bytes_max = 256;
constinit BootInfo info{};
constinit PhysicalRange available[ranges_max]{};
constinit PhysicalRange unavailable[ranges_max]{};
constinit std::size_t available_count = 0, unavailable_count = 0;
constinit char command_line_text[command_line_bytes_max]{};
constinit char loader_text[loader_bytes_max]{};
constinit std::byte rsdp_copy[64]{};
constinit ModulePlace modules[machine::boot_modules_max]{};
constinit char module_names[machine::boot_modules_max][module_name_bytes_max]{};
constinit std::size_t module_count = 0;

const char* boot_pointer(std::uint64_t physical) { return reinterpret_cast<const char*>(direct_map_base + physical); }

// The loader aligns its structures, but this code does not rely on the alignment, because unaligned reads are as fast as aligned ones.
template <typename T>
T read(const char* at, std::size_t offset) {
  T value;
  std::memcpy(&value, at + offset, sizeof value);
  return value;
}

acpi::Bytes bytes_at(const char* from, std::size_t count) { return {reinterpret_cast<const std::byte*>(from), count}; }

void add_range(std::uint64_t first, std::uint64_t bytes, std::uint32_t type) {
  if (bytes == 0) return;
  const PhysicalRange range{.first = first, .end = bytes > ~first ? ~std::uint64_t{0} : first + bytes};
  const bool usable = type == MULTIBOOT_MEMORY_AVAILABLE;
  auto& count = usable ? available_count : unavailable_count;
  if (count == ranges_max) {
    info.cut = true;
    return;
  }
  (usable ? available : unavailable)[count++] = range;
}

std::string_view copy_text(const char* from, std::size_t bytes_max, char* to, std::size_t room) {
  const auto bytes = strnlen(from, bytes_max);
  const auto kept = std::min(bytes, room);
  if (kept < bytes) info.cut = true;
  std::memcpy(to, from, kept);
  return {to, kept};
}

void add_module(std::uint64_t first, std::uint64_t end, const char* name, std::size_t name_bytes_max) {
  if (end <= first) return;
  if (module_count == std::size(modules)) {
    info.cut = true;
    return;
  }
  const auto text = copy_text(name, name_bytes_max, module_names[module_count], module_name_bytes_max);
  modules[module_count++] = {.range = {.first = first, .end = end}, .name = text};
}

// Multiboot 1 loaders put the image's name in front of the boot options; GRUB 2 does not. The name may be a path with spaces, so it ends
// with the first `.elf` if there is one.
std::string_view without_image_name(std::string_view line) {
  if (!info.loader.starts_with("GRUB")) {
    constexpr std::string_view suffix = ".elf";
    std::size_t end = line.size();
    for (auto at = line.find(suffix); at != line.npos; at = line.find(suffix, at + 1)) {
      const auto after = at + suffix.size();
      if (after == line.size() || line[after] == ' ') {
        end = after;
        break;
      }
    }
    if (end == line.size() && !line.ends_with(suffix)) end = std::min(line.find(' '), line.size());
    line.remove_prefix(end);
  }
  const auto first = line.find_first_not_of(' ');
  line.remove_prefix(std::min(first, line.size()));
  while (line.ends_with(' ')) line.remove_suffix(1);
  return line;
}

// True for a text screen of 80 by 25 characters at VGA's address. `at` points to the framebuffer's address. The fields from there on are
// the same in both formats.
bool is_text_screen(const char* at) {
  constexpr std::uint64_t vga_text = 0xb8000;
  return read<std::uint8_t>(at, 21) == MULTIBOOT_FRAMEBUFFER_TEXT && read<std::uint64_t>(at, 0) == vga_text &&
         read<std::uint32_t>(at, 12) == 80 && read<std::uint32_t>(at, 16) >= 25;
}

void read_multiboot1(std::uint32_t information) {
  const auto* at = boot_pointer(information);
  const auto flags = read<std::uint32_t>(at, 0);
  // A loader that reports no framebuffer left the screen in the BIOS's mode.
  info.text_screen = !(flags & MULTIBOOT1_INFO_FRAMEBUFFER) || is_text_screen(at + 88);
  if (flags & MULTIBOOT1_INFO_LOADER_NAME) {
    info.loader = copy_text(boot_pointer(read<std::uint32_t>(at, 64)), loader_bytes_max, loader_text, loader_bytes_max);
  }
  if (flags & MULTIBOOT1_INFO_COMMAND_LINE) {
    const auto* line = boot_pointer(read<std::uint32_t>(at, 16));
    info.command_line = without_image_name(copy_text(line, command_line_bytes_max * 4, command_line_text, command_line_bytes_max));
  }
  if (flags & MULTIBOOT1_INFO_MODULES) {
    const auto count = read<std::uint32_t>(at, 20);
    const auto* module = boot_pointer(read<std::uint32_t>(at, 24));
    for (std::uint32_t i = 0; i < count && !info.cut; ++i, module += 16) {
      const auto name = read<std::uint32_t>(module, 8);
      add_module(read<std::uint32_t>(module, 0), read<std::uint32_t>(module, 4), boot_pointer(name), name == 0 ? 0 : 4096);
    }
  }
  if (flags & MULTIBOOT1_INFO_MEMORY_MAP) {
    multiboot::for_each_range_1(bytes_at(boot_pointer(read<std::uint32_t>(at, 48)), read<std::uint32_t>(at, 44)), add_range);
  } else if (flags & MULTIBOOT1_INFO_MEMORY) {
    constexpr std::uint64_t high_memory = 1 << 20;
    add_range(high_memory, std::uint64_t{read<std::uint32_t>(at, 8)} * 1024, MULTIBOOT_MEMORY_AVAILABLE);
  }
}

void read_multiboot2(std::uint32_t information) {
  const auto* at = boot_pointer(information);
  const auto* const end = at + read<std::uint32_t>(at, 0);
  const char* line = nullptr;
  std::size_t line_bytes = 0;
  bool screen_told = false, uefi = false;
  for (const auto* tag = at + 8; tag + 8 <= end;) {
    const auto type = read<std::uint32_t>(tag, 0);
    const auto bytes = read<std::uint32_t>(tag, 4);
    if (type == MULTIBOOT2_INFO_END || bytes < 8 || bytes > static_cast<std::size_t>(end - tag)) break;
    const auto* const body = tag + 8;
    if (type == MULTIBOOT2_INFO_COMMAND_LINE) {
      line = body;
      line_bytes = bytes - 8;
    } else if (type == MULTIBOOT2_INFO_LOADER_NAME) {
      info.loader = copy_text(body, bytes - 8, loader_text, loader_bytes_max);
    } else if (type == MULTIBOOT2_INFO_MODULE && bytes >= 16) {
      add_module(read<std::uint32_t>(body, 0), read<std::uint32_t>(body, 4), body + 8, bytes - 16);
    } else if (type == MULTIBOOT2_INFO_MEMORY_MAP && bytes >= 16) {
      multiboot::for_each_range_2(bytes_at(body, bytes - 8), add_range);
    } else if (type == MULTIBOOT2_INFO_ACPI_NEW || (type == MULTIBOOT2_INFO_ACPI_OLD && info.rsdp == 0)) {
      // The RSDP in the tag is in the loader's memory, which is not reserved. So the RSDP is copied into the image.
      std::memcpy(rsdp_copy, body, std::min<std::size_t>(bytes - 8, sizeof rsdp_copy));
      info.rsdp = info.image_physical + (address_of(rsdp_copy) - image_base);
    }
    if (type == MULTIBOOT2_INFO_FRAMEBUFFER && bytes >= 30) {
      screen_told = true;
      info.text_screen = is_text_screen(body);
    }
    uefi = uefi || type == MULTIBOOT2_INFO_EFI32 || type == MULTIBOOT2_INFO_EFI64 || type == MULTIBOOT2_INFO_EFI_MEMORY_MAP;
    tag += round_up(bytes, 8);
  }
  if (!screen_told) info.text_screen = !uefi;
  if (line != nullptr) info.command_line = without_image_name(copy_text(line, line_bytes, command_line_text, command_line_bytes_max));
}

}  // namespace

bool capture_boot_info(std::uint32_t magic, std::uint32_t information, std::uint32_t image_physical) {
  info.image_physical = image_physical;
  if (magic == MULTIBOOT1_LOADER_MAGIC) {
    read_multiboot1(information);
  } else if (magic == MULTIBOOT2_LOADER_MAGIC) {
    read_multiboot2(information);
  } else {
    return false;
  }
  info.available = {available, available_count};
  info.unavailable = {unavailable, unavailable_count};
  info.modules = {modules, module_count};
  return true;
}

const BootInfo& boot_info() { return info; }

}  // namespace neap::x86

namespace neap::machine {

std::string_view command_line() noexcept { return x86::boot_info().command_line; }

}  // namespace neap::machine
