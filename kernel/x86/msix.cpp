// SPDX-License-Identifier: BSL-1.0
// MSI-X: a table in the device with one message for each entry. A message is a write to the address of a core's APIC (PCI 3.0, 6.8.2; SDM
// 3A, 11.11).
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/pci.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/pci_config.hpp"

namespace neap::pci {

namespace {

constexpr std::uint8_t msix_capability = 0x11;
constexpr std::uint16_t message_control = 2, table_place = 4;
constexpr std::uint32_t control_entries_mask = 0x7ff, control_mask_all = 1 << 14, control_enable = 1 << 15;
constexpr std::uint32_t place_bar_mask = 0x7;

struct Entry {
  std::uint32_t address_low, address_high, data, control;
};
static_assert(sizeof(Entry) == 16);
constexpr std::uint32_t entry_masked = 1, apic_address = 0xfee00000;
constexpr unsigned apic_id_shift = 12;
constexpr std::uint32_t apic_id_limit = 255;  // 8 bits, 255 is the broadcast; larger ids need interrupt remapping, which we do not set up

struct Table {
  volatile Entry* entries;
  unsigned count;
  std::uint16_t control_at;
};

Result<Table> find_table(const Device& device) {
  const auto at = device.find_capability(msix_capability);
  if (at == 0) return failure(ErrorCode::unsupported, "the device has no MSI-X");
  const auto place = device.read_config(static_cast<std::uint16_t>(at + table_place), 4);
  const auto bar = device.map_bar(place & place_bar_mask);
  if (!bar) return std::unexpected(bar.error());
  const auto offset = place & ~place_bar_mask;
  const auto count = device.msix_vectors();
  if (offset + std::size_t{count} * sizeof(Entry) > bar->size()) {
    return failure(ErrorCode::device, "the MSI-X table does not fit into its BAR", offset);
  }
  return Table{.entries = reinterpret_cast<volatile Entry*>(bar->data() + offset),
               .count = count,
               .control_at = static_cast<std::uint16_t>(at + message_control)};
}

// All entries are masked before the first message can be sent, because the table's content after power-on is unspecified.
void turn_on(const Device& device, const Table& table) {
  const auto control = device.read_config(table.control_at, 2);
  if (control & control_enable) return;
  // The table is in a BAR, so it is accessible only while the device decodes memory.
  device.write_config(config::command, 2, device.read_config(config::command, 2) | config::command_memory | config::command_interrupt_off);
  device.write_config(table.control_at, 2, control | control_enable | control_mask_all);
  for (unsigned i = 0; i < table.count; ++i) table.entries[i].control = entry_masked;
  device.write_config(table.control_at, 2, (control | control_enable) & ~control_mask_all);
}

}  // namespace

unsigned Device::msix_vectors() const noexcept {
  const auto at = find_capability(msix_capability);
  return at == 0 ? 0 : (read_config(static_cast<std::uint16_t>(at + message_control), 2) & control_entries_mask) + 1;
}

Result<void> Device::route_msix(unsigned entry, unsigned core, std::uint8_t vector) const {
  if (core >= machine::core_count()) return failure(ErrorCode::invalid, "no such core", core);
  if (vector < machine::vector_first || vector > machine::vector_last)
    return failure(ErrorCode::invalid, "not a vector for devices", vector);
  const auto apic_id = x86::apic_id_of(core);
  if (apic_id >= apic_id_limit) return failure(ErrorCode::unsupported, "a core with an APIC id above 254 cannot take MSI-X", apic_id);
  const auto table = find_table(*this);
  if (!table) return std::unexpected(table.error());
  if (entry >= table->count) return failure(ErrorCode::invalid, "no such MSI-X entry", entry);
  require(table->control_at != 0, "route_msix: no capability", entry);
  turn_on(*this, *table);
  volatile auto& place = table->entries[entry];
  place.control = entry_masked;  // an entry MUST NOT change while a message may be sent
  place.address_low = apic_address | apic_id << apic_id_shift;
  place.address_high = 0;
  place.data = vector;
  place.control = 0;
  (void)place.control;  // the read flushes the write to the device
  return {};
}

}  // namespace neap::pci
