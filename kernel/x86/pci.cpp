// SPDX-License-Identifier: BSL-1.0
#include "kernel/pci.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernel/console.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/firmware/pci_addresses.hpp"
#include "kernel/x86/firmware/pcie.hpp"
#include "kernel/x86/paging.hpp"
#include "kernel/x86/pci.hpp"
#include "kernel/x86/pci_config.hpp"

namespace neap::pci {

namespace {

constexpr std::size_t devices_max = 512;
constinit std::array<Device, devices_max> found{};
constinit std::size_t found_count = 0, refused = 0;
constexpr unsigned functions_per_device = 8;

bool add_function(Address at) {
  const auto vendor = static_cast<std::uint16_t>(config::read(at, config::vendor_id, 2));
  if (vendor == config::no_device) return false;
  if (found_count == devices_max) {
    ++refused;
    return true;
  }
  const auto classes = config::read(at, config::class_register, 4);
  found[found_count++] = {.address = at,
                          .vendor_id = vendor,
                          .device_id = static_cast<std::uint16_t>(config::read(at, config::device_id, 2)),
                          .class_code = static_cast<std::uint8_t>(classes >> 24),
                          .subclass = static_cast<std::uint8_t>(classes >> 16),
                          .revision = static_cast<std::uint8_t>(classes)};
  return true;
}

// Scans every bus, not only those behind known bridges: large machines have root buses that only AML announces. Nearly all slots are empty.
void scan_bus(std::uint16_t segment, std::uint8_t bus) {
  for (std::uint32_t slots = config::occupied_slots(segment, bus); slots != 0; slots &= slots - 1) {
    Address at{.segment = segment, .bus = bus, .device = static_cast<std::uint8_t>(std::countr_zero(slots)), .function = 0};
    if (!add_function(at)) continue;
    if (!(config::read(at, config::header_type, 1) & config::header_multifunction)) continue;
    for (at.function = 1; at.function < functions_per_device; ++at.function) add_function(at);
  }
}

// The address and size of a base address register (PCI 3.0, 6.2.5.1).
struct Bar {
  std::uint64_t address, bytes;
};

constexpr std::uint32_t bar_is_port = 1, bar_type_mask = 0b110, bar_type_64 = 0b100;
constexpr std::uint64_t bar_address_mask = ~std::uint64_t{0xf};

std::uint16_t bar_offset(unsigned index) {
  require(index < config::bars, "pci: no such base address register", index);
  return static_cast<std::uint16_t>(config::bar_first + index * 4);
}

// Sizes of BARs that were measured. Measuring disables the device for a moment, so it is only done during set-up.
constinit std::array<std::array<std::uint64_t, config::bars>, devices_max> sizes{};

// The size is read back after all ones were written. The device must not decode that address meanwhile.
std::uint64_t measure_bar(const Device& device, unsigned index, bool is_64) {
  const auto low = device.read_config(bar_offset(index), 4);
  const auto command = device.read_config(config::command, 2);
  device.write_config(config::command, 2, command & ~std::uint32_t{config::command_memory});
  device.write_config(bar_offset(index), 4, 0xffffffff);
  std::uint64_t mask = device.read_config(bar_offset(index), 4) & bar_address_mask;
  device.write_config(bar_offset(index), 4, low);
  if (is_64) {
    const auto high = device.read_config(bar_offset(index + 1), 4);
    device.write_config(bar_offset(index + 1), 4, 0xffffffff);
    mask |= std::uint64_t{device.read_config(bar_offset(index + 1), 4)} << 32;
    device.write_config(bar_offset(index + 1), 4, high);
  } else if (mask != 0) {
    mask |= std::uint64_t{0xffffffff} << 32;
  }
  device.write_config(config::command, 2, command);
  return mask == 0 ? 0 : ~mask + 1;
}

std::uint64_t address_in(const Device& device, unsigned index, std::uint32_t low, bool is_64) {
  const std::uint64_t high = is_64 ? device.read_config(bar_offset(index + 1), 4) : 0;
  return (high << 32 | low) & bar_address_mask;
}

// The end of the addresses that `assign_bar` has given; 0: none yet.
constinit std::uint64_t assigned_end = 0;

// True if firmware gave no device an address. The answer is kept, because it changes when this file gives one.
bool firmware_assigns_nothing() {
  if (assigned_end != 0) return true;
  return std::ranges::none_of(devices(), [](const Device& device) {
    if ((device.read_config(config::header_type, 1) & config::header_kind_mask) != 0) return true;  // its bridge has a window
    if (device.read_config(config::command, 2) & config::command_memory) return true;
    for (unsigned index = 0; index < config::bars; ++index) {
      const auto low = device.read_config(bar_offset(index), 4);
      if ((low & bar_is_port) == 0 && (low & bar_address_mask) != 0) return true;
    }
    return false;
  });
}

// Gives a BAR an address behind the RAM, and returns it; 0 if there is none. Only for machines whose firmware gives no device an address,
// and for devices on bus 0, because no bridge has to pass these addresses on. Called during set-up, on one core.
std::uint64_t assign_bar(const Device& device, unsigned index, bool is_64, std::uint64_t bytes) {
  namespace addresses = x86::pci_addresses;
  if (device.address.segment != 0 || device.address.bus != 0 || bytes == 0 || !firmware_assigns_nothing()) return 0;
  std::array<addresses::Range, 64> taken{};
  std::array<addresses::Range, 64> ram{};
  std::size_t taken_count = 0, ram_count = 0;
  const auto add = [](auto& list, std::size_t& count, std::uint64_t first, std::uint64_t end) {
    if (count == list.size()) return false;
    list[count++] = {.first = first, .end = end};
    return true;
  };
  bool all = true;
  for (const auto& range : x86::boot_info().available) all = add(ram, ram_count, range.first, range.end) && all;
  for (const auto& range : x86::boot_info().unavailable) all = add(taken, taken_count, range.first, range.end) && all;
  for (const auto& window : x86::acpi::tables().pci) {
    all = add(taken, taken_count, window.base, window.base + ((std::uint64_t{window.last_bus} + 1) << 20)) && all;
  }
  if (!all || x86::boot_info().cut) return 0;  // an unknown range could be hit
  const std::uint64_t from = assigned_end != 0 ? assigned_end : addresses::behind_ram({ram.data(), ram_count});
  const std::uint64_t bar_bytes = std::max<std::uint64_t>(bytes, 4096);  // a page of its own, because pages are mapped
  const std::uint64_t address = addresses::place({taken.data(), taken_count}, from, bar_bytes);
  if (address == 0) return 0;
  assigned_end = address + bar_bytes;
  const auto low = device.read_config(bar_offset(index), 4);
  device.write_config(bar_offset(index), 4, static_cast<std::uint32_t>(address) | (low & ~static_cast<std::uint32_t>(bar_address_mask)));
  if (is_64) device.write_config(bar_offset(index + 1), 4, static_cast<std::uint32_t>(address >> 32));
  return address_in(device, index, device.read_config(bar_offset(index), 4), is_64) == address ? address : 0;
}

// A result with address 0 or 0 bytes means: not a memory BAR, or it has no address.
Bar read_bar(const Device& device, unsigned index) {
  constexpr std::uint8_t plain_device = 0;
  if (index >= config::bars || (device.read_config(config::header_type, 1) & config::header_kind_mask) != plain_device) return {};
  const auto low = device.read_config(bar_offset(index), 4);
  if (low & bar_is_port) return {};
  const bool is_64 = (low & bar_type_mask) == bar_type_64;
  if (is_64 && index + 1 == config::bars) return {};
  const auto at = std::ranges::find(devices(), device.address, &Device::address);
  std::uint64_t unlisted = 0;
  auto& bytes = at == devices().end() ? unlisted : sizes[static_cast<std::size_t>(at - devices().begin())][index];
  if (bytes == 0) bytes = measure_bar(device, index, is_64);
  const std::uint64_t address = address_in(device, index, low, is_64);
  return {.address = address != 0 ? address : assign_bar(device, index, is_64, bytes), .bytes = bytes};
}

}  // namespace

std::span<const Device> devices() noexcept { return {found.data(), found_count}; }
std::uint32_t Device::read_config(std::uint16_t offset, unsigned bytes) const noexcept { return config::read(address, offset, bytes); }

void Device::write_config(std::uint16_t offset, unsigned bytes, std::uint32_t value) const noexcept {
  config::write(address, offset, bytes, value);
}

std::uint16_t Device::find_capability(std::uint8_t id, std::uint16_t after) const noexcept {
  if (!(read_config(config::status, 2) & config::status_capabilities)) return 0;
  constexpr unsigned capabilities_max = 48;
  constexpr std::uint8_t pointer_mask = 0xfc, header_end = 0x40;
  auto at = static_cast<std::uint8_t>(read_config(config::capabilities, 1) & pointer_mask);
  for (unsigned i = 0; i < capabilities_max && at >= header_end; ++i) {
    const auto head = read_config(at, 2);
    if ((head & 0xff) == id && after == 0) return at;
    if (at == after) after = 0;
    at = static_cast<std::uint8_t>(head >> 8 & pointer_mask);
  }
  return 0;
}

Result<std::span<volatile std::byte>> Device::map_bar(unsigned index) const {
  const auto bar = read_bar(*this, index);
  if (bar.address == 0 || bar.bytes == 0)
    return failure(ErrorCode::not_found, "no memory BAR with this index, or it has no address", index);
  const auto mapped = x86::paging::map(bar.address, bar.bytes, x86::paging::Access::read_write, x86::paging::Cache::uncached);
  if (!mapped) return std::unexpected(mapped.error());
  return std::span(*mapped, static_cast<std::size_t>(bar.bytes));
}

void Device::enable(bool on) const noexcept {
  const std::uint32_t both = config::command_memory | config::command_bus_master;
  const auto before = read_config(config::command, 2);
  // Interrupts use only MSI-X; the legacy line stays off.
  write_config(config::command, 2, (on ? before | both : before & ~both) | config::command_interrupt_off);
}

void Device::enable_registers() const noexcept {
  write_config(config::command, 2, read_config(config::command, 2) | config::command_memory | config::command_interrupt_off);
}

void Device::settle_link(std::string_view name, std::uint64_t wanted_mbps) const noexcept {
  const auto at = find_capability(x86::pcie::capability_id);
  if (at == 0) return;
  const auto place = [at](std::uint16_t offset) { return static_cast<std::uint16_t>(at + offset); };
  // The upstream port of the device is the bridge whose secondary bus (PCI-to-PCI Bridge 1.2, 3.2.5.4) is the device's bus.
  constexpr std::uint16_t secondary_bus = 0x19;
  constexpr std::uint8_t bridge_header = 1;
  for (const auto& port : devices()) {
    if (port.address.segment != address.segment || port.class_code != 6) continue;
    if ((port.read_config(config::header_type, 1) & config::header_kind_mask) != bridge_header) continue;
    const auto port_at = port.find_capability(x86::pcie::capability_id);
    if (port_at == 0 || port.read_config(secondary_bus, 1) != address.bus) continue;
    const auto own = static_cast<std::uint16_t>(read_config(place(x86::pcie::device_control), 2));
    const auto above = port.read_config(static_cast<std::uint16_t>(port_at + x86::pcie::device_control), 2);
    const auto matched = x86::pcie::payload_matched(own, static_cast<std::uint16_t>(above));
    if (matched == own) continue;
    write_config(place(x86::pcie::device_control), 2, matched);
    print(name, ": firmware left a larger PCIe payload than the port above accepts: reduced");
  }
  const auto link = x86::pcie::decode({.device_capabilities = read_config(place(x86::pcie::device_capabilities), 4),
                                       .device_control = static_cast<std::uint16_t>(read_config(place(x86::pcie::device_control), 2)),
                                       .link_control = static_cast<std::uint16_t>(read_config(place(x86::pcie::link_control), 2)),
                                       .link_status = static_cast<std::uint16_t>(read_config(place(x86::pcie::link_status), 2))});
  Line line;
  line << name << ": PCIe ";
  x86::pcie::describe(link, line);
  const auto mbps = x86::pcie::megabits_per_second(link);
  if (mbps != 0 && mbps < wanted_mbps) line << "; too slow for the card: " << mbps << " Mbit/s, try another slot";
  if (link.sleeps_l0s || link.sleeps_l1) line << "; ASPM adds microseconds of latency: turn it off in the BIOS";
  line.print();
}

}  // namespace neap::pci

namespace neap::x86 {

void scan_pci() {
  using namespace neap::pci;
  config::map_windows();
  // ACPI lists windows of memory that map the configuration space of some buses. The other buses of segment 0 are reached by I/O ports.
  const auto in_a_window = [](unsigned bus) {
    return std::ranges::any_of(
        acpi::tables().pci, [bus](const auto& window) { return window.segment == 0 && bus >= window.first_bus && bus <= window.last_bus; });
  };
  for (unsigned bus = 0; bus < 256; ++bus) {
    if (!in_a_window(bus)) scan_bus(0, static_cast<std::uint8_t>(bus));
  }
  for (const auto& window : acpi::tables().pci) {
    for (unsigned bus = window.first_bus; bus <= window.last_bus; ++bus) scan_bus(window.segment, static_cast<std::uint8_t>(bus));
  }
  if (refused != 0) print("neap: ", refused, " PCI functions beyond ", devices_max, " are not listed");
}

}  // namespace neap::x86
