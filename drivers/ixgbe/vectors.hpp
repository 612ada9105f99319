// SPDX-License-Identifier: BSL-1.0
// Interrupt vectors: from a queue to an MSI-X message.
//
// Vector i belongs to queue pair i and so to core i. One more vector, the last, is for all other causes (link, faults). Pairs from 16 on
// only transmit. With several MSI-X vectors a queue's cause clears itself when its message is sent (82599 datasheet 7.3.1.4), so EICR is
// never read for traffic.
#pragma once

#include "drivers/ixgbe/moderation.hpp"
#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

/// 4.6.6, 7.3.4: maps queues 0 to `pairs` - 1, and the other causes (without moderation), to their vectors. All vectors stay masked.
/// `transmit_interrupt`: as for `program_queue_causes`.
void program_vectors(Registers registers, unsigned pairs, bool transmit_interrupt);

/// Maps the queues of `pairs` pairs to their vectors. Without `transmit_interrupt`, the TX completions of a pair that receives cause no
/// interrupt, because they would wake a core that has no work (queue_pair.hpp). MAY be called while the queues run.
void program_queue_causes(Registers registers, unsigned pairs, bool transmit_interrupt);

/// Unmasks the vectors in `queues` (a bit for each) and the other causes.
void enable_vectors(Registers registers, std::uint64_t queues);

/// Changes the moderation of one vector, with or without traffic. The change is effective from the vector's next interrupt on (8.2.3.5.12).
void program_moderation(Registers registers, unsigned vector, Moderation moderation);

/// Masks (EIMC) or unmasks (EIMS) a queue pair's vector. A masked vector keeps its causes, but they may be cleared before it is unmasked,
/// and then unmasking sends nothing (7.3.1.4). So a caller that has work sets `raise`, which makes software raise a cause (EICS).
void mask_vector(Registers registers, unsigned vector);
void unmask_vector(Registers registers, unsigned vector, bool raise);

/// Reads and clears the other causes, but not the causes of the queues.
[[nodiscard]] reg::Eicr take_other_causes(Registers registers);

}  // namespace neap::ixgbe
