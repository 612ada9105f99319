// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/pci_config.hpp"

#include <array>
#include <mutex>

#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/paging.hpp"

namespace neap::pci::config {

namespace {

using namespace x86;

constexpr std::uint16_t address_port = 0xcf8, data_port = 0xcfc;
constexpr std::uint32_t address_enable = 0x80000000;
// The parts of an address in a window: PCIe 6.0, table 7-1.
constexpr unsigned bus_shift = 20, device_shift = 15, function_shift = 12;
constexpr std::uint16_t port_offset_end = 256, window_offset_end = 4096;
constinit SpinLock ports;

std::uint32_t all_ones(unsigned bytes) { return bytes == 4 ? 0xffffffff : (1U << bytes * 8) - 1; }

struct MappedWindow {
  std::uint16_t segment;
  std::uint8_t first_bus, last_bus;
  volatile std::byte* at;
};
constinit std::array<MappedWindow, acpi::pci_windows_max> windows{};
constinit std::size_t window_count = 0;

// The address of a bus in a window; null if no window covers the bus.
volatile std::byte* find_bus(std::uint16_t segment, std::uint8_t bus) {
  for (std::size_t i = 0; i < window_count; ++i) {
    const MappedWindow& window = windows[i];
    if (window.segment != segment || bus < window.first_bus || bus > window.last_bus) continue;
    return window.at + (std::uint64_t{static_cast<unsigned>(bus - window.first_bus)} << bus_shift);
  }
  return nullptr;
}

// The address of this register in a window; null if no window covers the bus.
volatile std::byte* find_register(Address at, std::uint16_t offset) {
  volatile std::byte* const bus = find_bus(at.segment, at.bus);
  return bus == nullptr ? nullptr : bus + (at.device << device_shift | at.function << function_shift | offset);
}

std::uint32_t port_address(Address at, std::uint16_t offset) {
  return address_enable | at.bus << 16 | at.device << 11 | at.function << 8 | (offset & 0xfc);
}

void check(Address at, std::uint16_t offset, unsigned bytes) {
  require(at.device < devices_per_bus && at.function < 8, "PCI configuration access: no such device or function", at.device);
  require((bytes == 1 || bytes == 2 || bytes == 4) && offset % bytes == 0 && offset + bytes <= window_offset_end,
          "PCI configuration access: bad offset or size", offset);
}

}  // namespace

void map_windows() noexcept {
  require(window_count == 0, "PCI's windows are mapped once", window_count);
  for (const auto& window : acpi::tables().pci) {
    // The whole window is mapped at once, with large pages.
    const auto buses = std::uint64_t{window.last_bus} - window.first_bus + 1;
    const auto mapped = paging::map(window.base + (std::uint64_t{window.first_bus} << bus_shift), buses << bus_shift,
                                    paging::Access::read_write, paging::Cache::uncached);
    if (!mapped) continue;
    windows[window_count++] = {.segment = window.segment, .first_bus = window.first_bus, .last_bus = window.last_bus, .at = *mapped};
  }
}

std::uint32_t occupied_slots(std::uint16_t segment, std::uint8_t bus) noexcept {
  volatile std::byte* const registers = find_bus(segment, bus);
  std::uint32_t occupied = 0;
  for (std::uint8_t device = 0; device < devices_per_bus; ++device) {
    const auto vendor = registers != nullptr ? *reinterpret_cast<volatile std::uint16_t*>(registers + (device << device_shift) + vendor_id)
                                             : read({.segment = segment, .bus = bus, .device = device, .function = 0}, vendor_id, 2);
    if (vendor != no_device) occupied |= 1U << device;
  }
  return occupied;
}

std::uint32_t read(Address at, std::uint16_t offset, unsigned bytes) noexcept {
  check(at, offset, bytes);
  if (auto* const place = find_register(at, offset)) {
    if (bytes == 1) return *reinterpret_cast<volatile std::uint8_t*>(place);
    if (bytes == 2) return *reinterpret_cast<volatile std::uint16_t*>(place);
    return *reinterpret_cast<volatile std::uint32_t*>(place);
  }
  if (at.segment != 0 || offset >= port_offset_end) return all_ones(bytes);
  const std::lock_guard guard(ports);
  out32(address_port, port_address(at, offset));
  const auto port = static_cast<std::uint16_t>(data_port + offset % 4);
  if (bytes == 1) return in8(port);
  if (bytes == 2) return in16(port);
  return in32(port);
}

void write(Address at, std::uint16_t offset, unsigned bytes, std::uint32_t value) noexcept {
  check(at, offset, bytes);
  if (auto* const place = find_register(at, offset)) {
    if (bytes == 1) {
      *reinterpret_cast<volatile std::uint8_t*>(place) = static_cast<std::uint8_t>(value);
    } else if (bytes == 2) {
      *reinterpret_cast<volatile std::uint16_t*>(place) = static_cast<std::uint16_t>(value);
    } else {
      *reinterpret_cast<volatile std::uint32_t*>(place) = value;
    }
    return;
  }
  if (at.segment != 0 || offset >= port_offset_end) return;
  const std::lock_guard guard(ports);
  out32(address_port, port_address(at, offset));
  const auto port = static_cast<std::uint16_t>(data_port + offset % 4);
  if (bytes == 1) {
    out8(port, static_cast<std::uint8_t>(value));
  } else if (bytes == 2) {
    out16(port, static_cast<std::uint16_t>(value));
  } else {
    out32(port, value);
  }
}

}  // namespace neap::pci::config
