// SPDX-License-Identifier: BSL-1.0
// The way to the other end of the cable.
//
// Nothing here waits for a link: it may come a second after power-up or a week later. `start_link` sets the card up so that it can come;
// the LSC interrupt tells when it did.
#pragma once

#include <cstdint>

#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

struct LinkStatus {
  bool up = false;
  std::uint32_t megabits = 0;  ///< 0 when down or not known
};

/// 82599 datasheet 4.6.4: laser on, module's settings, SFI at 10 Gb/s, start over. `sfp`: the card has an SFP+ cage; others keep the link
/// mode that their EEPROM chose. A module that is missing or strange is said on the console and is no error: one may be plugged in later.
[[nodiscard]] task<Result<void>> start_link(Registers registers, bool sfp);

/// Reads LINKS (8.2.3.22.20).
[[nodiscard]] LinkStatus read_link(Registers registers) noexcept;

}  // namespace neap::ixgbe
