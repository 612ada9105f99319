// SPDX-License-Identifier: BSL-1.0
// The SFP+ module in the card's cage.
//
// A cable and an optic want different settings of the card's analog part. The module says what it is over a two-wire bus (SFF-8472, device
// A0h), and the EEPROM holds a list of settings for each kind (found through word 2Bh), written by the card's maker.
#pragma once

#include <cstdint>

#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

/// The kinds that the EEPROM's list tells apart, for 10 Gb/s.
enum class SfpKind : std::uint8_t {
  direct_attach,  ///< passive copper cable
  optical,        ///< short or long range optic, or active copper cable
};

/// Reads word `address` of the EEPROM through EERD (82599 datasheet 8.2.3.2.2). Errors: `timeout`, `closed`.
[[nodiscard]] task<Result<std::uint16_t>> read_eeprom(Registers registers, std::uint16_t address);

/// The sum over what the EEPROM's checksum covers: `eeprom_checksum` if nothing in it has changed. Errors: `timeout`, `closed`.
[[nodiscard]] task<Result<std::uint16_t>> sum_eeprom(Registers registers);
constexpr std::uint16_t eeprom_checksum = 0xBABA;

/// Asks the module what it is; takes about 3 ms of the core. Errors: `not_found` (no module answers), `unsupported` (no 10 Gb/s module that
/// we know), `timeout` and `closed`.
[[nodiscard]] task<Result<SfpKind>> identify_sfp(Registers registers);

/// Loads the EEPROM's settings for this kind of module. Errors: `not_found` (the EEPROM has none), `timeout`, `closed`.
[[nodiscard]] task<Result<void>> load_sfp_settings(Registers registers, SfpKind kind);

[[nodiscard]] constexpr const char* name_of(SfpKind kind) noexcept {
  return kind == SfpKind::direct_attach ? "direct attach cable" : "optical module";
}

}  // namespace neap::ixgbe
