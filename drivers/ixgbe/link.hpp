// SPDX-License-Identifier: BSL-1.0
// The Ethernet link.
//
// No function here waits for a link, which may come at any time after power-up. `start_link` sets the card up for it, and the LSC interrupt
// reports its changes.
#pragma once

#include <cstdint>

#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

struct LinkStatus {
  bool up = false;
  std::uint32_t megabits = 0;  ///< 0 when down or unknown
};

/// 82599 datasheet 4.6.4: laser on, module's settings, SFI at 10 Gb/s, restart. `sfp`: the card has an SFP+ cage; other cards keep the link
/// mode of their EEPROM. A missing or unknown module is reported on the console and is no error, because one may be plugged in later.
[[nodiscard]] task<Result<void>> start_link(Registers registers, bool sfp);

/// Reads LINKS (8.2.3.22.20).
[[nodiscard]] LinkStatus read_link(Registers registers) noexcept;

}  // namespace neap::ixgbe
