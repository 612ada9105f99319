// SPDX-License-Identifier: BSL-1.0
// DMA and interrupts that firmware left remapped.
//
// Firmware with "DMA protection", or a boot loader before us, may hand the machine over with Intel's IOMMU on. Then the card's DMA goes by
// tables that nobody keeps any more, and its MSI-X messages, which we write in the plain form, are dropped: a card that looks alive and is
// deaf. So each unit that ACPI lists is looked at, and what is on is turned off, as the specification says (Intel VT for Directed I/O,
// 4.1: 8.3 for the table, 11.4.4 for commands and status, 11.4.15 for protected memory).
//
// Nothing here touches the machine: registers are behind an interface, so that tests can be the unit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace neap::x86::remapping {

constexpr std::size_t units_max = 32;

struct Units {
  std::array<std::uint64_t, units_max> bases{};  ///< physical, of each unit's register page
  std::size_t count = 0;
  std::size_t refused = 0;  ///< beyond `units_max`, or at no page's start
};

/// The units that a DMAR table lists, whole with its header. Nothing in it is trusted.
[[nodiscard]] Units find_units(std::span<const std::byte> dmar) noexcept;

/// One unit's registers, by offset in its page.
class Registers {
 public:
  [[nodiscard]] virtual std::uint32_t read(std::uint32_t offset) noexcept = 0;
  virtual void write(std::uint32_t offset, std::uint32_t value) noexcept = 0;
  /// Lets some time pass, at least a microsecond.
  virtual void pause() noexcept = 0;

 protected:
  ~Registers() = default;
};

/// What was found on, and whether it is off now.
struct Found {
  bool translation = false, interrupts = false, queued_invalidation = false, protected_memory = false;
  bool stuck = false;   ///< one of them stayed on
  bool absent = false;  ///< nothing answers there
  [[nodiscard]] bool anything() const noexcept { return translation || interrupts || queued_invalidation || protected_memory; }
};

/// Turns off whatever is on. Each wait ends after `waits_max` pauses.
constexpr unsigned waits_max = 100'000;
[[nodiscard]] Found turn_off(Registers& unit) noexcept;

}  // namespace neap::x86::remapping
