// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/acpi.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/memory.hpp"
#include "kernel/x86/paging.hpp"

namespace neap::x86::acpi {

namespace {

constexpr std::size_t header_bytes = 36;
constexpr std::uint32_t table_bytes_max = 4 << 20;
constexpr std::size_t tables_max = 256;
constexpr std::size_t windows_max = 16;

constinit Tables found{};
constinit std::array<Core, machine::cores_max> cores{};
constinit std::size_t core_count = 0;
constinit std::size_t cores_refused = 0;
constinit std::array<PciWindow, windows_max> windows{};
constinit std::size_t window_count = 0;

// Bytes of a table, with reads that cannot leave it: beyond the end everything is 0.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const std::byte* first, std::size_t count) : bytes_(first, count) {}
  template <typename T>
  [[nodiscard]] T read(std::size_t offset) const {
    T value{};
    if (offset <= bytes_.size() && bytes_.size() - offset >= sizeof value) std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> span() const { return bytes_; }
  [[nodiscard]] Bytes part(std::size_t offset, std::size_t count) const {
    if (offset > bytes_.size()) return {};
    return {bytes_.data() + offset, std::min(count, bytes_.size() - offset)};
  }
  [[nodiscard]] bool sums_to_zero() const {
    std::uint8_t sum = 0;
    for (const auto byte : bytes_) sum = static_cast<std::uint8_t>(sum + static_cast<std::uint8_t>(byte));
    return sum == 0;
  }
  [[nodiscard]] std::string_view text(std::size_t offset, std::size_t count) const {
    const auto piece = part(offset, count);
    return {reinterpret_cast<const char*>(piece.bytes_.data()), piece.size()};
  }

 private:
  std::span<const std::byte> bytes_;
};

Bytes map_bytes(std::uint64_t physical, std::size_t count) {
  const auto mapped = paging::map(physical, count, paging::Access::read, paging::Cache::write_back);
  if (!mapped) return {};
  return {const_cast<const std::byte*>(*mapped), count};
}

// A whole table with a good checksum, or nothing.
Bytes map_table(std::uint64_t physical) {
  if (physical == 0) return {};
  const auto header = map_bytes(physical, header_bytes);
  const auto length = header.read<std::uint32_t>(4);
  if (length < header_bytes || length > table_bytes_max) return {};
  const auto table = map_bytes(physical, length);
  if (table.sums_to_zero()) return table;
  print("neap: ACPI table ", header.text(0, 4), " has a bad checksum, ignored");
  return {};
}

// 5.2.5.1: without UEFI's help, on a 16-byte boundary in the first KiB of the EBDA or in the BIOS's read-only area.
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

void add_core(std::uint32_t apic_id, std::uint32_t flags) {
  constexpr std::uint32_t enabled = 1;
  if (!(flags & enabled)) return;
  for (std::size_t i = 0; i < core_count; ++i) {
    if (cores[i].apic_id == apic_id) return;  // the same core as xAPIC and as x2APIC entry
  }
  if (core_count == cores.size()) {
    ++cores_refused;
    return;
  }
  cores[core_count++] = {.apic_id = apic_id, .node = 0};
}

// 5.2.12
void read_madt(const Bytes& madt) {
  found.local_apic = madt.read<std::uint32_t>(36);
  found.legacy_devices = madt.read<std::uint32_t>(40) & 1;
  enum : std::uint8_t { local_apic = 0, local_apic_address = 5, local_x2apic = 9 };
  for (std::size_t at = 44; at + 2 <= madt.size();) {
    const auto type = madt.read<std::uint8_t>(at);
    const auto length = madt.read<std::uint8_t>(at + 1);
    if (length < 2) break;
    if (type == local_apic) add_core(madt.read<std::uint8_t>(at + 3), madt.read<std::uint32_t>(at + 4));
    if (type == local_apic_address) found.local_apic = madt.read<std::uint64_t>(at + 4);
    if (type == local_x2apic) add_core(madt.read<std::uint32_t>(at + 4), madt.read<std::uint32_t>(at + 8));
    at += length;
  }
  found.cores = {cores.data(), core_count};
  if (cores_refused != 0) print("neap: ", cores_refused, " cores beyond ", machine::cores_max, " are not used");
}

void read_mcfg(const Bytes& mcfg) {
  for (std::size_t at = 44; at + 16 <= mcfg.size() && window_count < windows_max; at += 16) {
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

// 5.2.16. Kept until the MADT is read too.
void read_srat(const Bytes& srat) {
  enum : std::uint8_t { core_affinity = 0, memory_affinity = 1, core_x2apic_affinity = 2 };
  constexpr std::uint32_t enabled = 1;
  const auto place = [](std::uint32_t apic_id, std::uint32_t node) {
    for (std::size_t i = 0; i < core_count; ++i) {
      if (cores[i].apic_id == apic_id) cores[i].node = node;
    }
  };
  for (std::size_t at = 48; at + 2 <= srat.size();) {
    const auto type = srat.read<std::uint8_t>(at);
    const auto length = srat.read<std::uint8_t>(at + 1);
    if (length < 2) break;
    if (type == core_affinity && srat.read<std::uint32_t>(at + 4) & enabled) {
      const auto node = srat.read<std::uint8_t>(at + 2) | (srat.read<std::uint32_t>(at + 8) & 0xffffff00);
      place(srat.read<std::uint8_t>(at + 3), node);
    } else if (type == core_x2apic_affinity && srat.read<std::uint32_t>(at + 12) & enabled) {
      place(srat.read<std::uint32_t>(at + 8), srat.read<std::uint32_t>(at + 4));
    } else if (type == memory_affinity && srat.read<std::uint32_t>(at + 28) & enabled) {
      const auto first = srat.read<std::uint64_t>(at + 8);
      memory::set_node(first, first + srat.read<std::uint64_t>(at + 16), srat.read<std::uint32_t>(at + 2));
    }
    at += length;
  }
}

// `Name (_S5_, Package () {type_a, type_b, ...})`: 20.2.5.1, 20.2.5.4, 20.2.3.
bool find_soft_off(const Bytes& aml) {
  constexpr std::uint8_t name_op = 0x08, package_op = 0x12, byte_prefix = 0x0a, zero_op = 0x00, one_op = 0x01;
  const auto all = aml.text(0, aml.size());
  for (auto at = all.find("_S5_"); at != all.npos; at = all.find("_S5_", at + 1)) {
    const bool named = at >= 1 && (aml.read<std::uint8_t>(at - 1) == name_op ||
                                   (at >= 2 && all[at - 1] == '\\' && aml.read<std::uint8_t>(at - 2) == name_op));
    if (!named || aml.read<std::uint8_t>(at + 4) != package_op) continue;
    auto next = at + 5;
    next += 1 + (aml.read<std::uint8_t>(next) >> 6);  // package length: the top bits say how many more bytes it has
    const auto elements = aml.read<std::uint8_t>(next++);
    const auto element = [&](std::uint8_t& value) {
      const auto code = aml.read<std::uint8_t>(next++);
      if (code == zero_op || code == one_op) {
        value = code;
        return true;
      }
      if (code != byte_prefix) return false;
      value = aml.read<std::uint8_t>(next++);
      return true;
    };
    if (elements < 1 || !element(found.soft_off_type_a)) continue;
    if (elements < 2 || !element(found.soft_off_type_b)) found.soft_off_type_b = 0;
    return true;
  }
  return false;
}

// The 64-bit description of a register if there is one, else the 32-bit port number (5.2.9).
Register fadt_register(const Bytes& fadt, std::size_t port_offset, std::size_t general_offset) {
  const auto space = fadt.read<std::uint8_t>(general_offset);
  const auto address = fadt.read<std::uint64_t>(general_offset + 4);
  if (address != 0 && space <= 1) return {.space = static_cast<Register::Space>(space), .address = address};
  return {.space = Register::Space::port, .address = fadt.read<std::uint32_t>(port_offset)};
}

void read_fadt(const Bytes& fadt) {
  constexpr std::uint32_t timer_is_32_bits = 1 << 8, reset_supported = 1 << 10;
  const auto flags = fadt.read<std::uint32_t>(112);
  found.smi_command_port = static_cast<std::uint16_t>(fadt.read<std::uint32_t>(48));
  found.acpi_enable_value = fadt.read<std::uint8_t>(52);
  found.power_control_a = fadt_register(fadt, 64, 172);
  found.power_control_b = fadt_register(fadt, 68, 184);
  found.power_timer = fadt_register(fadt, 76, 208);
  found.power_timer_32_bits = flags & timer_is_32_bits;
  found.century_register = fadt.read<std::uint8_t>(108);
  if (flags & reset_supported) {
    found.reset = {.space = static_cast<Register::Space>(fadt.read<std::uint8_t>(116)), .address = fadt.read<std::uint64_t>(120)};
    found.reset_value = fadt.read<std::uint8_t>(128);
    if (fadt.read<std::uint8_t>(116) > 1) found.reset.address = 0;  // in PCI configuration space: the other ways will do
  }
  const auto dsdt64 = fadt.read<std::uint64_t>(140);
  const auto dsdt = map_table(dsdt64 != 0 ? dsdt64 : fadt.read<std::uint32_t>(40));
  found.soft_off_known = find_soft_off(dsdt);
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

  Bytes srat;
  std::size_t count = 0;
  for (std::size_t at = header_bytes; at + pointer_bytes <= directory.size() && count < tables_max; at += pointer_bytes, ++count) {
    const auto table = map_table(pointer_bytes == 8 ? directory.read<std::uint64_t>(at) : directory.read<std::uint32_t>(at));
    const auto name = table.text(0, 4);
    if (name == "APIC") read_madt(table);
    if (name == "MCFG") read_mcfg(table);
    if (name == "FACP") read_fadt(table);
    if (name == "DMAR") found.remapping = remapping::find_units(table.span());
    if (name == "SSDT" && !found.soft_off_known) found.soft_off_known = find_soft_off(table);
    if (name == "SRAT") srat = table;
  }
  if (srat.size() != 0) read_srat(srat);  // names cores that the MADT lists
  if (core_count == 0) print("neap: ACPI lists no cores: only the one that booted is used");
}

const Tables& tables() { return found; }

}  // namespace neap::x86::acpi
