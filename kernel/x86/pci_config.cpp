// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/pci_config.hpp"

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
constexpr std::uint16_t port_offset_end = 256, window_offset_end = 4096;
constinit SpinLock ports;

std::uint32_t all_ones(unsigned bytes) { return bytes == 4 ? 0xffffffff : (1U << bytes * 8) - 1; }

// The address of this register in a window; null if no window covers the bus.
volatile std::byte* find_register(Address at, std::uint16_t offset) {
  for (const auto& window : acpi::tables().pci) {
    if (window.segment != at.segment || at.bus < window.first_bus || at.bus > window.last_bus) continue;
    // The whole window is mapped at once, with large pages. Later calls find the same mapping.
    const auto buses = std::uint64_t{window.last_bus} - window.first_bus + 1;
    const auto mapped = paging::map(window.base + (std::uint64_t{window.first_bus} << 20), buses << 20, paging::Access::read_write,
                                    paging::Cache::uncached);
    if (!mapped) return nullptr;
    return *mapped + (std::uint64_t{static_cast<unsigned>(at.bus - window.first_bus)} << 20 | at.device << 15 | at.function << 12 | offset);
  }
  return nullptr;
}

std::uint32_t port_address(Address at, std::uint16_t offset) {
  return address_enable | at.bus << 16 | at.device << 11 | at.function << 8 | (offset & 0xfc);
}

void check(Address at, std::uint16_t offset, unsigned bytes) {
  require(at.device < 32 && at.function < 8, "PCI configuration access: no such device or function", at.device);
  require((bytes == 1 || bytes == 2 || bytes == 4) && offset % bytes == 0 && offset + bytes <= window_offset_end,
          "PCI configuration access: bad offset or size", offset);
}

}  // namespace

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
