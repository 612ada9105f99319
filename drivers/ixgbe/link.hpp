// SPDX-License-Identifier: BSL-1.0
// The Ethernet link.
//
// No function here waits for a link, because a link may come up at any time after power-up. `start_link` prepares the card for a link, and
// the LSC interrupt reports changes of the link.
#pragma once

#include <cstdint>

#include "drivers/ixgbe/model.hpp"
#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

struct LinkStatus {
  bool up = false;
  std::uint32_t megabits = 0;  ///< 0 when down or unknown
};

/// 82599 datasheet 4.6.4: with an SFP+ cage, turns the laser on, loads the module's settings, selects SFI at 10 Gb/s and restarts the link.
/// Cards without a cage keep the link mode of their EEPROM. A PHY is woken; it negotiates by itself. The console shows a missing or unknown
/// module or PHY. That is no error, because a module may be plugged in later.
[[nodiscard]] task<Result<void>> start_link(Registers registers, const Model& model, Medium medium);

/// Reads LINKS (8.2.3.22.20).
[[nodiscard]] LinkStatus read_link(Registers registers, const Model& model) noexcept;

}  // namespace neap::ixgbe
