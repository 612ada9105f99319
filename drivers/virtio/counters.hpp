// SPDX-License-Identifier: BSL-1.0
// The driver's counters, besides those that each driver has (drivers/queue_counters.hpp).
#pragma once

#include "drivers/queue_counters.hpp"

namespace neap::virtio {

struct ReceiveCounters : ReceiveQueueCounters {
  Counter dropped_short;  ///< frames shorter than the header of Ethernet
  Counter merged;         ///< frames in several buffers
  Counter notifications;
  static constexpr NamedCount<ReceiveCounters, Counter> names[] = {
      {"rx.dropped_short", &ReceiveCounters::dropped_short},
      {"rx.merged", &ReceiveCounters::merged},
      {"rx.notifications", &ReceiveCounters::notifications},
  };
};

struct TransmitCounters : TransmitQueueCounters {
  Counter notifications;
  static constexpr NamedCount<TransmitCounters, Counter> names[] = {{"tx.notifications", &TransmitCounters::notifications}};
};

struct PairCounters : QueuePairCounters {
  Counter wrong_entries;  ///< impossible entries of a used ring; the first one closes the device
  static constexpr NamedCount<PairCounters, Counter> names[] = {{"pair.wrong_entries", &PairCounters::wrong_entries}};
};

struct CardCounters : NetCardCounters {
  Counter config_interrupts, commands;
  Counter refused_commands;  ///< commands that the device refused, or did not answer in time
  Counter failures;          ///< times that the device failed and was closed
  static constexpr NamedCount<CardCounters, Counter> names[] = {
      {"card.config_interrupts", &CardCounters::config_interrupts},
      {"card.commands", &CardCounters::commands},
      {"card.refused_commands", &CardCounters::refused_commands},
      {"card.failures", &CardCounters::failures},
  };
};

}  // namespace neap::virtio
