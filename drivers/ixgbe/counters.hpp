// SPDX-License-Identifier: BSL-1.0
// The driver's counters, besides those that each driver has (drivers/queue_counters.hpp).
#pragma once

#include "drivers/queue_counters.hpp"

namespace neap::ixgbe {

struct ReceiveCounters : ReceiveQueueCounters {
  Counter dropped_errors;    ///< frames with an error that the MAC found, or with an impossible length
  Counter dropped_untagged;  ///< frames without the tag that the setting `vlan` requires
  Counter dropped_overlong;  ///< frames with more pieces than the largest allowed frame needs
  Counter tail_writes;
  static constexpr NamedCount<ReceiveCounters, Counter> names[] = {
      {"rx.dropped_errors", &ReceiveCounters::dropped_errors},
      {"rx.dropped_untagged", &ReceiveCounters::dropped_untagged},
      {"rx.dropped_overlong", &ReceiveCounters::dropped_overlong},
      {"rx.tail_writes", &ReceiveCounters::tail_writes},
  };
};

struct TransmitCounters : TransmitQueueCounters {
  Counter contexts, tail_writes;
  Counter wrong_heads;  ///< write-backs of a head outside of the descriptors in flight
  static constexpr NamedCount<TransmitCounters, Counter> names[] = {
      {"tx.contexts", &TransmitCounters::contexts},
      {"tx.tail_writes", &TransmitCounters::tail_writes},
      {"tx.wrong_heads", &TransmitCounters::wrong_heads},
  };
};

struct CardCounters : NetCardCounters {
  Counter other_interrupts;
  Counter memory_errors;  ///< errors that the card's ECC logic could not correct
  Counter dma_errors;     ///< accesses in which the card could not reach memory
  Counter resets;         ///< resets after a memory or DMA error, or after a queue did not stop or start
  Counter gone;           ///< checks that found the card gone
  static constexpr NamedCount<CardCounters, Counter> names[] = {
      {"card.other_interrupts", &CardCounters::other_interrupts},
      {"card.memory_errors", &CardCounters::memory_errors},
      {"card.dma_errors", &CardCounters::dma_errors},
      {"card.resets", &CardCounters::resets},
      {"card.gone", &CardCounters::gone},
  };
};

}  // namespace neap::ixgbe
