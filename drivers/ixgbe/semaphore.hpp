// SPDX-License-Identifier: BSL-1.0
// Whose turn it is: this driver's, the other port's, or the firmware's.
//
// Both ports of a card and its management firmware share EEPROM, PHYs, the SFP+ buses and some MAC registers. SW_FW_SYNC has a bit for each
// owner and resource; it is itself guarded by SWSM (82599 datasheet 10.5.4). An owner that died keeps its bits, so both waits end: what is
// not given back in time is taken over, as the datasheet asks for, and said on the console.
#pragma once

#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

enum class SharedResource : std::uint8_t { eeprom, phy0, phy1, mac };

/// Waits for the turn, 1 s at most. Errors: `closed` (card gone), `timeout` (SWSM cannot be taken).
[[nodiscard]] task<Result<void>> acquire(Registers registers, SharedResource resource);
/// Gives it back. Errors as above.
[[nodiscard]] task<Result<void>> release(Registers registers, SharedResource resource);

}  // namespace neap::ixgbe
