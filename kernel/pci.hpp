// SPDX-License-Identifier: BSL-1.0
// Finding a card and routing its interrupts.
//
// A driver needs four things from PCI: find its device, reach its registers, allow it DMA, and send its MSI-X messages to the right cores.
// Firmware or hot-plug decides where the BAR is. Configuration accesses use the memory window of ACPI's MCFG table, or I/O ports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernel/error.hpp"

namespace neap::pci {

struct Address {
  std::uint16_t segment;
  std::uint8_t bus, device, function;
  friend bool operator==(const Address&, const Address&) = default;
};

/// A device found at boot. Configuration accesses take microseconds, so they are only for set-up and faults.
struct Device {
  Address address;
  std::uint16_t vendor_id, device_id;
  std::uint8_t class_code, subclass, revision;

  [[nodiscard]] std::uint32_t read_config(std::uint16_t offset, unsigned bytes) const noexcept;  ///< 1, 2 or 4 bytes, aligned
  void write_config(std::uint16_t offset, unsigned bytes, std::uint32_t value) const noexcept;
  /// Offset of the first capability with this id, 0 if there is none (PCI 3.0, 6.7; at most 48 are walked). `after`: the offset of one with
  /// the same id, behind which the search starts.
  [[nodiscard]] std::uint16_t find_capability(std::uint8_t id, std::uint16_t after = 0) const noexcept;

  /// Maps memory BAR `index` uncached and returns its registers. Errors: `not_found`, `out_of_memory`.
  [[nodiscard]] Result<std::span<volatile std::byte>> map_bar(unsigned index) const;
  /// As `map_bar`, but returns only `bytes` registers from `offset` on. Errors: `device` if they are not in the BAR.
  [[nodiscard]] Result<std::span<volatile std::byte>> map_bar(unsigned index, std::uint64_t offset, std::uint64_t bytes) const {
    const auto bar = map_bar(index);
    if (!bar) return bar;
    if (offset > bar->size() || bytes > bar->size() - offset)
      return failure(ErrorCode::device, "registers do not fit into their BAR", offset);
    return bar->subspan(offset, bytes);
  }
  /// Turns memory decoding and bus mastering on or off.
  void enable(bool on) const noexcept;
  /// Turns memory decoding on; bus mastering is unchanged.
  void enable_registers() const noexcept;

  /// Prints the state of the card's PCI Express link, after `name`, and its defects: less than `wanted_mbps` in a direction, or ASPM on.
  /// Reduces the card's payload size if it exceeds that of the upstream port, as PCIe requires. Called before the card's first DMA.
  void settle_link(std::string_view name, std::uint64_t wanted_mbps) const noexcept;

  /// Number of MSI-X vectors; 0 without the capability.
  [[nodiscard]] unsigned msix_vectors() const noexcept;
  /// Routes MSI-X message `entry` to `core` as `vector` (from `allocate_vector`) and unmasks it. Turns MSI-X on at the first call.
  [[nodiscard]] Result<void> route_msix(unsigned entry, unsigned core, std::uint8_t vector) const;
};

/// All devices, in bus order; scanned once at boot.
[[nodiscard]] std::span<const Device> devices() noexcept;

}  // namespace neap::pci
