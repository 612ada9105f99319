// SPDX-License-Identifier: BSL-1.0
// A lock shared with the card's other port and the firmware.
//
// Both ports of a card and its management firmware share EEPROM, PHYs, the SFP+ buses and some MAC registers. The register SW_FW_SYNC has a
// bit for each owner and resource, and a lock guards it (82599 datasheet 10.5.4): two bits of SWSM, of which X540 and X550 have one in
// SW_FW_SYNC itself (`SyncGuard`). An owner that crashed keeps its
// bits, so the waits for the lock and for SW_FW_SYNC have time limits. After a time-out the driver takes the resource over, as the
// datasheet requires, and the console shows this.
#pragma once

#include "drivers/ixgbe/model.hpp"
#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

enum class SharedResource : std::uint8_t { eeprom, phy0, phy1, mac };

/// Acquires the resource; waits at most 1 s. Errors: `closed` (card gone), `timeout` (the lock cannot be acquired).
[[nodiscard]] task<Result<void>> acquire(Registers registers, SyncGuard guard, SharedResource resource);
/// Releases the resource. Errors: those of `acquire`.
[[nodiscard]] task<Result<void>> release(Registers registers, SyncGuard guard, SharedResource resource);

}  // namespace neap::ixgbe
