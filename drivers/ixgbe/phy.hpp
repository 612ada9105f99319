// SPDX-License-Identifier: BSL-1.0
// The 10GBASE-T PHY of X540 and X550.
//
// The PHY negotiates the link by itself, and LINKS shows the result, so the driver needs one thing of it: power. An earlier driver may have
// left the PHY in low-power mode (Linux does so when it shuts down), and a reset of the card does not end this mode.
#pragma once

#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

/// Finds the PHY on the MDIO bus (82599 datasheet 8.2.3.22.11, IEEE 802.3 clause 45) and ends its low-power mode. The caller MUST own the
/// PHY (semaphore.hpp). Errors: `not_found`, `timeout` (MSCA), `closed`.
[[nodiscard]] task<Result<void>> wake_phy(Registers registers);

}  // namespace neap::ixgbe
