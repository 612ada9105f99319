// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/acpi_tables.hpp"

namespace neap::x86::acpi {

namespace {

void add_core(Madt& madt, std::uint32_t apic_id, std::uint32_t flags) {
  constexpr std::uint32_t enabled = 1;
  if (!(flags & enabled)) return;
  for (std::size_t i = 0; i < madt.core_count; ++i) {
    if (madt.cores[i].apic_id == apic_id) return;  // the same core, listed as xAPIC and as x2APIC
  }
  if (madt.core_count == madt.cores.size()) {
    ++madt.cores_refused;
    return;
  }
  madt.cores[madt.core_count++] = {.apic_id = apic_id, .node = 0};
}

/// Calls `visit(type, entry)` for each entry from `at` on. An entry begins with its type and its length.
template <typename Visit>
void for_each_entry(const Bytes& table, std::size_t at, Visit visit) {
  while (at + 2 <= table.size()) {
    const auto length = table.read<std::uint8_t>(at + 1);
    if (length < 2 || length > table.size() - at) return;
    visit(table.read<std::uint8_t>(at), table.part(at, length));
    at += length;
  }
}

// --- Nodes -------------------------------------------------------------------------------------------------------------------------------
enum : std::uint8_t { core_affinity = 0, memory_affinity = 1, core_x2apic_affinity = 2 };

struct Affinity {
  bool enabled = false;
  std::uint32_t domain = 0;
};

Affinity affinity_of(std::uint8_t type, const Bytes& entry) {
  constexpr std::uint32_t enabled = 1;
  switch (type) {
    case core_affinity:
      return {(entry.read<std::uint32_t>(4) & enabled) != 0, entry.read<std::uint8_t>(2) | (entry.read<std::uint32_t>(8) & 0xffffff00)};
    case core_x2apic_affinity:
      return {(entry.read<std::uint32_t>(12) & enabled) != 0, entry.read<std::uint32_t>(4)};
    case memory_affinity:
      return {(entry.read<std::uint32_t>(28) & enabled) != 0, entry.read<std::uint32_t>(2)};
    default:
      return {};
  }
}

// Keeps the domains in ascending order.
void add_domain(Nodes& nodes, std::uint32_t domain) {
  auto* const end = nodes.domains.begin() + nodes.count;
  auto* const place = std::lower_bound(nodes.domains.begin(), end, domain);
  if (place != end && *place == domain) return;
  if (nodes.count == nodes.domains.size()) {
    ++nodes.refused;
    return;
  }
  std::copy_backward(place, end, end + 1);
  *place = domain;
  ++nodes.count;
}

std::uint32_t node_of_domain(const Nodes& nodes, std::uint32_t domain) {
  const auto* const end = nodes.domains.begin() + nodes.count;
  const auto* const place = std::lower_bound(nodes.domains.begin(), end, domain);
  return place != end && *place == domain ? static_cast<std::uint32_t>(place - nodes.domains.begin()) : 0;
}

// --- Power -------------------------------------------------------------------------------------------------------------------------------

// Returns the 64-bit description of a register if present, otherwise the 32-bit port number (5.2.9).
Register fadt_register(const Bytes& fadt, std::size_t port_offset, std::size_t general_offset) {
  const auto space = fadt.read<std::uint8_t>(general_offset);
  const auto address = fadt.read<std::uint64_t>(general_offset + 4);
  if (address != 0 && space <= 1) return {.space = static_cast<Register::Space>(space), .address = address};
  return {.space = Register::Space::port, .address = fadt.read<std::uint32_t>(port_offset)};
}

constexpr std::size_t first_affinity = 48;  // 5.2.16

}  // namespace

void read_madt(const Bytes& table, Madt& madt) {
  enum : std::uint8_t { local_apic = 0, local_apic_address = 5, local_x2apic = 9 };
  madt.local_apic = table.read<std::uint32_t>(36);
  madt.legacy_devices = table.read<std::uint32_t>(40) & 1;
  for_each_entry(table, 44, [&](std::uint8_t type, const Bytes& entry) {
    if (type == local_apic) add_core(madt, entry.read<std::uint8_t>(3), entry.read<std::uint32_t>(4));
    if (type == local_apic_address) madt.local_apic = entry.read<std::uint64_t>(4);
    if (type == local_x2apic) add_core(madt, entry.read<std::uint32_t>(4), entry.read<std::uint32_t>(8));
  });
}

void read_srat(const Bytes& table, std::span<Core> cores, Nodes& nodes) {
  for_each_entry(table, first_affinity, [&](std::uint8_t type, const Bytes& entry) {
    if (const auto affinity = affinity_of(type, entry); affinity.enabled) add_domain(nodes, affinity.domain);
  });
  for_each_entry(table, first_affinity, [&](std::uint8_t type, const Bytes& entry) {
    const auto affinity = affinity_of(type, entry);
    if (!affinity.enabled) return;
    const auto node = node_of_domain(nodes, affinity.domain);
    if (type != memory_affinity) {
      const auto apic_id = type == core_affinity ? entry.read<std::uint8_t>(3) : entry.read<std::uint32_t>(8);
      for (Core& core : cores) {
        if (core.apic_id == apic_id) core.node = node;
      }
      return;
    }
    const auto first = entry.read<std::uint64_t>(8), bytes = entry.read<std::uint64_t>(16);
    if (bytes == 0) return;
    if (nodes.memory_count == nodes.memory.size()) {
      ++nodes.refused;
      return;
    }
    nodes.memory[nodes.memory_count++] = {.first = first, .end = bytes > ~first ? ~std::uint64_t{0} : first + bytes, .node = node};
  });
}

void read_slit(const Bytes& table, Nodes& nodes) {
  constexpr std::size_t matrix = 44;
  const auto localities = table.read<std::uint64_t>(36);
  for (std::size_t from = 0; from < nodes.count; ++from) {
    for (std::size_t to = 0; to < nodes.count; ++to) {
      if (nodes.domains[from] >= localities || nodes.domains[to] >= localities || localities > table.size()) continue;
      nodes.distances[from][to] = table.read<std::uint8_t>(matrix + nodes.domains[from] * localities + nodes.domains[to]);
    }
  }
}

unsigned Nodes::distance(unsigned from, unsigned to) const {
  constexpr unsigned own = 10, other = 20, distance_min = 10;  // 5.2.17: below 10 is reserved
  if (from == to) return own;
  if (from >= count || to >= count || distances[from][to] < distance_min) return other;
  return distances[from][to];
}

Fadt read_fadt(const Bytes& fadt) {
  Fadt found{};
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
    if (fadt.read<std::uint8_t>(116) > 1) found.reset.address = 0;  // a register in PCI configuration space is not used
  }
  const auto dsdt64 = fadt.read<std::uint64_t>(140);
  found.dsdt = dsdt64 != 0 ? dsdt64 : fadt.read<std::uint32_t>(40);
  return found;
}

// Searches for `Name (_S5_, Package () {type_a, type_b, ...})` (encoding: 20.2.5.1, 20.2.5.4, 20.2.3).
SoftOff find_soft_off(const Bytes& aml) {
  constexpr std::uint8_t name_op = 0x08, package_op = 0x12, byte_prefix = 0x0a, zero_op = 0x00, one_op = 0x01;
  const auto all = aml.text(0, aml.size());
  for (auto at = all.find("_S5_"); at != all.npos; at = all.find("_S5_", at + 1)) {
    const bool named = at >= 1 && (aml.read<std::uint8_t>(at - 1) == name_op ||
                                   (at >= 2 && all[at - 1] == '\\' && aml.read<std::uint8_t>(at - 2) == name_op));
    if (!named || aml.read<std::uint8_t>(at + 4) != package_op) continue;
    auto next = at + 5;
    next += 1 + (aml.read<std::uint8_t>(next) >> 6);  // package length: the top two bits give the number of further bytes
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
    SoftOff found;
    if (elements < 1 || !element(found.soft_off_type_a)) continue;
    if (elements < 2 || !element(found.soft_off_type_b)) found.soft_off_type_b = 0;
    found.soft_off_known = true;
    return found;
  }
  return {};
}

}  // namespace neap::x86::acpi
