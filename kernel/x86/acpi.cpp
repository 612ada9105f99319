// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/acpi.hpp"

#include <array>
#include <span>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/memory.hpp"
#include "kernel/x86/paging.hpp"

namespace neap::x86::acpi {

namespace {

constexpr std::uint32_t table_bytes_max = 4 << 20;
constexpr std::size_t tables_max = 256;
constinit Tables found{};
constinit Madt madt{};
constinit Nodes nodes{};
constinit std::array<PciWindow, pci_windows_max> windows{};
constinit std::size_t window_count = 0;

Bytes map_bytes(std::uint64_t physical, std::size_t count) {
  const auto mapped = paging::map(physical, count, paging::Access::read, paging::Cache::write_back);
  if (!mapped) return {};
  return {const_cast<const std::byte*>(*mapped), count};
}

// Returns the whole table if its checksum is right, otherwise nothing.
Bytes map_table(std::uint64_t physical) {
  if (physical == 0) return {};
  const auto header = map_bytes(physical, header_bytes);
  const auto length = header.read<std::uint32_t>(4);
  const bool possible = length >= header_bytes && length <= table_bytes_max;
  const auto table = possible ? map_bytes(physical, length) : Bytes{};
  if (possible && table.sums_to_zero()) return table;
  print("neap: the ACPI table at ", hex(physical), " has a bad ", possible ? "checksum" : "length", ", ignored");
  return {};
}

// ACPI 5.2.5.1: without UEFI's information, search on 16-byte boundaries in the first KiB of the EBDA and in the BIOS's read-only area.
std::uint64_t find_root_pointer() {
  if (boot_info().rsdp != 0) return boot_info().rsdp;
  constexpr std::uint64_t ebda_segment_pointer = 0x40e, bios_area = 0xe0000, bios_area_end = 0x100000;
  const auto low = map_bytes(0, bios_area_end);
  const auto ebda = std::uint64_t{low.read<std::uint16_t>(ebda_segment_pointer)} << 4;
  const auto scan = [&](std::uint64_t first, std::uint64_t end) -> std::uint64_t {
    for (auto at = round_up(first, 16); at + 20 <= end; at += 16) {
      if (low.text(at, 8) == "RSD PTR " && low.part(at, 20).sums_to_zero()) return at;
    }
    return 0;
  };
  if (ebda != 0) {
    if (const auto at = scan(ebda, ebda + 1024)) return at;
  }
  return scan(bios_area, bios_area_end);
}

void read_mcfg(const Bytes& mcfg) {
  for (std::size_t at = 44; at + 16 <= mcfg.size() && window_count < pci_windows_max; at += 16) {
    const PciWindow window{.base = mcfg.read<std::uint64_t>(at),
                           .segment = mcfg.read<std::uint16_t>(at + 8),
                           .first_bus = mcfg.read<std::uint8_t>(at + 10),
                           .last_bus = mcfg.read<std::uint8_t>(at + 11)};
    if (const auto* const problem = pcie::window_problem(window, {windows.data(), window_count}, memory::installed())) {
      print("neap: ACPI's PCI window at ", hex(window.base), " for buses ", window.first_bus, " to ", window.last_bus,
            " is not used: ", problem);
      continue;
    }
    windows[window_count++] = window;
  }
  found.pci = {windows.data(), window_count};
}

void use_fadt(const Bytes& table) {
  const Fadt fadt = read_fadt(table);
  static_cast<Fadt&>(found) = fadt;
  if (!found.soft_off_known) static_cast<SoftOff&>(found) = find_soft_off(map_table(fadt.dsdt));
}

void use_nodes() {
  for (const NodeMemory& piece : std::span(nodes.memory).first(nodes.memory_count)) memory::set_node(piece.first, piece.end, piece.node);
  if (nodes.refused != 0) print("neap: ACPI lists more NUMA nodes than supported: ", nodes.refused, " entries are not used");
}

}  // namespace

void initialise() {
  const auto root_at = find_root_pointer();
  if (root_at == 0) {
    print("neap: no ACPI tables: one core, no power-off (under UEFI only Multiboot 2 says where they are)");
    return;
  }
  const auto root = map_bytes(root_at, 36);
  const bool has_xsdt = root.read<std::uint8_t>(15) >= 2 && root.read<std::uint64_t>(24) != 0 && root.sums_to_zero();
  auto directory = has_xsdt ? map_table(root.read<std::uint64_t>(24)) : Bytes{};
  const std::size_t pointer_bytes = directory.size() != 0 ? 8 : 4;
  if (directory.size() == 0) directory = map_table(root.read<std::uint32_t>(16));

  Bytes srat, slit;
  std::size_t count = 0;
  for (std::size_t at = header_bytes; at + pointer_bytes <= directory.size() && count < tables_max; at += pointer_bytes, ++count) {
    const auto table = map_table(pointer_bytes == 8 ? directory.read<std::uint64_t>(at) : directory.read<std::uint32_t>(at));
    const auto name = table.text(0, 4);
    if (name == "APIC" && madt.core_count == 0) read_madt(table, madt);
    if (name == "MCFG") read_mcfg(table);
    if (name == "FACP" && found.dsdt == 0) use_fadt(table);
    if (name == "DMAR") found.remapping = remapping::find_units(table.span());
    if (name == "SSDT" && !found.soft_off_known) static_cast<SoftOff&>(found) = find_soft_off(table);
    if (name == "SRAT" && srat.size() == 0) srat = table;
    if (name == "SLIT" && slit.size() == 0) slit = table;
  }
  read_srat(srat, {madt.cores.data(), madt.core_count}, nodes);  // after the loop, because it needs the MADT's cores
  read_slit(slit, nodes);
  use_nodes();
  found.cores = {madt.cores.data(), madt.core_count};
  found.local_apic = madt.local_apic;
  found.legacy_devices = madt.legacy_devices;
  if (madt.cores_refused != 0) print("neap: ", madt.cores_refused, " cores beyond ", machine::cores_max, " are not used");
  if (madt.core_count == 0) print("neap: ACPI lists no cores: only the one that booted is used");
}

const Tables& tables() { return found; }

}  // namespace neap::x86::acpi

namespace neap::machine {

unsigned node_distance(unsigned from, unsigned to) noexcept { return x86::acpi::nodes.distance(from, to); }

}  // namespace neap::machine
