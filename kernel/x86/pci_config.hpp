// SPDX-License-Identifier: BSL-1.0
// Reads and writes PCI configuration space.
//
// In a window of ACPI's MCFG table each function's 4 KiB are accessed like memory (PCIe 6.0, 7.2.2). Without a window, two I/O ports are
// used. They reach 256 bytes of each function in segment 0, and only one core at a time may use them (PCI 3.0, 3.2.2.3.2).
#pragma once

#include <cstdint>

#include "kernel/pci.hpp"

namespace neap::pci::config {

// Offsets in the type 0 header (PCI 3.0, 6.1).
constexpr std::uint16_t vendor_id = 0x00, device_id = 0x02, command = 0x04, status = 0x06, class_register = 0x08, header_type = 0x0e,
                        bar_first = 0x10, capabilities = 0x34;
constexpr std::uint16_t command_memory = 1 << 1, command_bus_master = 1 << 2, command_interrupt_off = 1 << 10;
constexpr std::uint16_t status_capabilities = 1 << 4;
constexpr std::uint8_t header_multifunction = 0x80, header_kind_mask = 0x7f;
constexpr unsigned bars = 6;
constexpr unsigned devices_per_bus = 32;
constexpr std::uint16_t no_device = 0xffff;  // vendor id of an empty slot

/// Maps the windows that ACPI lists. A window that cannot be mapped is not used. MUST be called once, before the first access.
void map_windows() noexcept;

/// Returns a bit for each slot of the bus in which a device is, slot 0 in the lowest bit.
[[nodiscard]] std::uint32_t occupied_slots(std::uint16_t segment, std::uint8_t bus) noexcept;
/// Accesses 1, 2 or 4 bytes. `offset` MUST be a multiple of the size. Reads give all ones where no device responds.
[[nodiscard]] std::uint32_t read(Address address, std::uint16_t offset, unsigned bytes) noexcept;
void write(Address address, std::uint16_t offset, unsigned bytes, std::uint32_t value) noexcept;

}  // namespace neap::pci::config
