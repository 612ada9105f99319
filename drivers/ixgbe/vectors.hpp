// SPDX-License-Identifier: BSL-1.0
// From a queue to an MSI-X message.
//
// Vector i belongs to queue pair i, and so to core i; one more, behind them, belongs to everything else (link, faults). Pairs from 16 on
// only transmit. In this mode a queue's cause clears itself when its message is sent (82599 datasheet 7.3.1.4), so nobody ever reads EICR
// for traffic.
#pragma once

#include "drivers/ixgbe/moderation.hpp"
#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

/// 4.6.6 and 7.3.4: maps the queues 0 to `pairs` - 1 and the other causes, which are not held back. Everything stays masked.
void program_vectors(Registers registers, unsigned pairs);

/// Lets the vectors in `queues` (a bit each) and the other causes through.
void enable_vectors(Registers registers, std::uint64_t queues);

/// Changes the moderation of one vector, with traffic or without; holds from its next interrupt on (8.2.3.5.12).
void program_moderation(Registers registers, unsigned vector, Moderation moderation);

/// Stops messages of a queue pair's vector (EIMC), causes are kept; and lets them through again (EIMS), with a cause raised by software
/// (EICS) if the caller knows of work. 7.3.1.4: a cause that was kept is sent with its enable; who relies on it alone trusts that nobody
/// cleared it.
void mask_vector(Registers registers, unsigned vector);
void unmask_vector(Registers registers, unsigned vector, bool raise);

/// Reads and clears the other causes; those of the queues stay.
[[nodiscard]] reg::Eicr take_other_causes(Registers registers);

}  // namespace neap::ixgbe
