// SPDX-License-Identifier: BSL-1.0
// The SFP+ module in the card's cage.
//
// A cable and an optic need different settings of the card's analog part. The module identifies itself over a two-wire bus (I2CCTL). The
// EEPROM holds the manufacturer's settings for each kind, in a list whose address is in word 2Bh.
#pragma once

#include <cstdint>

#include "drivers/ixgbe/register_access.hpp"
#include "drivers/sfp_module.hpp"

namespace neap::ixgbe {

/// Reads word `address` of the EEPROM through EERD (82599 datasheet 8.2.3.2.2). Errors: `timeout`, `closed`.
[[nodiscard]] task<Result<std::uint16_t>> read_eeprom(Registers registers, std::uint16_t address);

/// Reads the module's kind. Errors: those of `sff_8472::read_kind`, `timeout` and `closed`.
[[nodiscard]] task<Result<SfpKind>> identify_sfp(Registers registers);

/// Loads the EEPROM's settings for this kind of module. Errors: `not_found` (the EEPROM has none), `timeout`, `closed`.
[[nodiscard]] task<Result<void>> load_sfp_settings(Registers registers, SfpKind kind);

}  // namespace neap::ixgbe
