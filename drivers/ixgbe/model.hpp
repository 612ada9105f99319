// SPDX-License-Identifier: BSL-1.0
// The differences between the card's models.
//
// X540 and X550 have the 82599's rings, filters and interrupts, so all per-frame code is the same. They differ at start-up: in the way to a
// link, in the guard of shared resources, and in sizes. Each model has a row here, which the driver chooses once by the PCI device id.
//
// The numbers are those of Linux's driver, which runs on all three.
#pragma once

#include <cstdint>

namespace neap::ixgbe {

/// The bit that, together with SWSM.smbi, guards SW_FW_SYNC (semaphore.hpp).
enum class SyncGuard : std::uint8_t {
  swesmbi,  ///< in SWSM; taken by writing a one
  regsmp,   ///< in SW_FW_SYNC itself; taken by reading a zero
};

enum class Medium : std::uint8_t {
  sfp,   ///< an SFP+ cage
  phy,   ///< a 10GBASE-T PHY, which negotiates the link by itself
  fixed  ///< others (backplane, CX4), which keep the link mode of their EEPROM
};

struct Model {
  const char* name;
  std::uint32_t receive_buffer_kib;
  unsigned rss_entries;  ///< of RETA and ERETA together
  SyncGuard guard;
  bool speeds_between;            ///< LINKS can report 2.5 and 5 Gb/s
  bool cache_hints;               ///< has DCA
  bool eeprom_registers;          ///< the EEPROM is read by EERD; otherwise by the firmware, which the driver does not ask
  std::uint16_t eeprom_unsummed;  ///< bit i: the EEPROM's checksum leaves out the section of pointer i
};

constexpr Model model_82599{.name = "82599",
                            .receive_buffer_kib = 512,
                            .rss_entries = 128,
                            .guard = SyncGuard::swesmbi,
                            .speeds_between = false,
                            .cache_hints = true,
                            .eeprom_registers = true,
                            .eeprom_unsummed = 0};
/// The sections of the PHY and of the option ROM (pointers 4 and 5) have checksums of their own.
constexpr Model model_x540{.name = "X540",
                           .receive_buffer_kib = 384,
                           .rss_entries = 128,
                           .guard = SyncGuard::regsmp,
                           .speeds_between = false,
                           .cache_hints = true,
                           .eeprom_registers = true,
                           .eeprom_unsummed = 1U << 4 | 1U << 5};
constexpr Model model_x550{.name = "X550",
                           .receive_buffer_kib = 384,
                           .rss_entries = 512,
                           .guard = SyncGuard::regsmp,
                           .speeds_between = true,
                           .cache_hints = false,
                           .eeprom_registers = false,
                           .eeprom_unsummed = 0};

}  // namespace neap::ixgbe
