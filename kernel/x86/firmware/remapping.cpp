// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/remapping.hpp"

#include <cstring>

namespace neap::x86::remapping {

namespace {

// Registers (11.4) and their bits.
constexpr std::uint32_t version = 0x00, global_command = 0x18, global_status = 0x1c, protected_memory_enable = 0x64;
constexpr std::uint32_t translation = 1U << 31, interrupts = 1U << 25, queued_invalidation = 1U << 26;
// 11.4.4.1: these status bits are commands when they are written back: set root table, set fault log, flush write buffer, set interrupt
// table. All other bits must be written with their present values.
constexpr std::uint32_t one_shot = 1U << 30 | 1U << 29 | 1U << 27 | 1U << 24;
constexpr std::uint32_t protection_on = 1U << 31, protection_status = 1U << 0;
constexpr std::uint32_t all_ones = 0xffffffff;

bool wait_until_clear(Registers& unit, std::uint32_t offset, std::uint32_t bit) noexcept {
  for (unsigned i = 0; i < waits_max; ++i) {
    if (!(unit.read(offset) & bit)) return true;
    unit.pause();
  }
  return false;
}

// Turns off a single bit, because 11.4.4.1 forbids changing two bits by one write.
bool turn_bit_off(Registers& unit, std::uint32_t bit, bool& was_on) noexcept {
  const auto status = unit.read(global_status);
  was_on = status & bit;
  if (!was_on) return true;
  unit.write(global_command, status & ~one_shot & ~bit);
  return wait_until_clear(unit, global_status, bit);
}

}  // namespace

Units find_units(std::span<const std::byte> dmar) noexcept {
  // Header of 36 bytes, host address width, flags, 10 reserved bytes (8.1). Structures follow; each begins with type and length (8.2).
  constexpr std::size_t first_structure = 48, unit_bytes = 16;
  constexpr std::uint16_t hardware_unit = 0;
  constexpr std::uint64_t page_mask = 0xfff;
  Units found;
  for (std::size_t at = first_structure; at + 4 <= dmar.size();) {
    std::uint16_t type = 0, length = 0;
    std::memcpy(&type, dmar.data() + at, sizeof type);
    std::memcpy(&length, dmar.data() + at + 2, sizeof length);
    if (length < 4 || length > dmar.size() - at) break;
    if (type == hardware_unit && length >= unit_bytes) {
      std::uint64_t base = 0;
      std::memcpy(&base, dmar.data() + at + 8, sizeof base);
      if (base == 0 || (base & page_mask) != 0 || found.count == units_max) {
        ++found.refused;
      } else {
        found.bases[found.count++] = base;
      }
    }
    at += length;
  }
  return found;
}

Found turn_off(Registers& unit) noexcept {
  Found found;
  if (unit.read(version) == all_ones) {
    found.absent = true;
    return found;
  }
  // Translation is turned off first: from then on the card's DMA addresses are physical. The invalidation queue serves both translation and
  // interrupt remapping, so it is turned off last (6.5.2 allows that when the queue is unused).
  const bool done = turn_bit_off(unit, translation, found.translation) && turn_bit_off(unit, interrupts, found.interrupts) &&
                    turn_bit_off(unit, queued_invalidation, found.queued_invalidation);
  const auto protection = unit.read(protected_memory_enable);
  found.protected_memory = protection & (protection_on | protection_status);
  bool unprotected = true;
  if (found.protected_memory) {
    unit.write(protected_memory_enable, protection & ~protection_on);
    unprotected = wait_until_clear(unit, protected_memory_enable, protection_status);
  }
  found.stuck = !done || !unprotected;
  return found;
}

}  // namespace neap::x86::remapping
