// SPDX-License-Identifier: BSL-1.0
// Turns off DMA and interrupt remapping that firmware left on.
//
// Firmware with "DMA protection", or the boot loader, may leave Intel's IOMMU on. Then the card's DMA uses tables that nothing maintains.
// Its MSI-X messages, which Neap does not write in the remappable format, are dropped: the card appears to work, but its interrupts never
// arrive. So each IOMMU that ACPI lists is checked and turned off as specified (Intel VT for Directed I/O, revision 4.1: 8.3 for the table,
// 11.4.4 for commands and status, 11.4.15 for protected memory).
//
// This code accesses registers only through an interface, so that tests can simulate an IOMMU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace neap::x86::remapping {

constexpr std::size_t units_max = 32;

struct Units {
  std::array<std::uint64_t, units_max> bases{};  ///< physical address of each unit's register page
  std::size_t count = 0;
  std::size_t refused = 0;  ///< units beyond `units_max`, or not page aligned
};

/// The units that a DMAR table lists. `dmar` includes the table's header and is not trusted.
[[nodiscard]] Units find_units(std::span<const std::byte> dmar) noexcept;

/// One unit's registers, by offset in its page.
class Registers {
 public:
  [[nodiscard]] virtual std::uint32_t read(std::uint32_t offset) noexcept = 0;
  virtual void write(std::uint32_t offset, std::uint32_t value) noexcept = 0;
  /// Waits at least a microsecond.
  virtual void pause() noexcept = 0;

 protected:
  ~Registers() = default;
};

/// The features that were on, and whether they are off now.
struct Found {
  bool translation = false, interrupts = false, queued_invalidation = false, protected_memory = false;
  bool stuck = false;   ///< a feature stayed on
  bool absent = false;  ///< no device responds at the address
  [[nodiscard]] bool anything() const noexcept { return translation || interrupts || queued_invalidation || protected_memory; }
};

/// Turns off every feature that is on. Each wait ends after `waits_max` pauses.
constexpr unsigned waits_max = 100'000;
[[nodiscard]] Found turn_off(Registers& unit) noexcept;

}  // namespace neap::x86::remapping
