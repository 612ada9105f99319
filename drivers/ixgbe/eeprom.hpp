// SPDX-License-Identifier: BSL-1.0
// The card's EEPROM: words of 16 bits that the maker wrote (82599 datasheet chapter 6).
#pragma once

#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

/// Reads word `address` through EERD (8.2.3.2.2). Errors: `timeout`, `closed`.
[[nodiscard]] task<Result<std::uint16_t>> read_eeprom(Registers registers, std::uint16_t address);

}  // namespace neap::ixgbe
