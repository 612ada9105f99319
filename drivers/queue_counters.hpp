// SPDX-License-Identifier: BSL-1.0
// The counters that the queues of every driver have.
//
// A reader of reports should find the same counter of each card by the same name behind the driver's own word: "ixgbe.pair.interrupts" and
// "virtio.pair.interrupts". So these structs, each with the table of its counters' names, exist once. A driver derives from a struct to add
// counters of its own, with a table `names` for these. A counter that is missing in the tables is never reported.
//
// Each counter has one writer, the queue's core, and any core may read it. So reading the counters does not interrupt the writers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kernel/counter.hpp"
#include "kernel/log.hpp"

namespace neap {

constexpr NamedCount<log::Traffic, Counter> traffic_counts[] = {
    {"rx.descriptors", &log::Traffic::rx_descriptors}, {"rx.frames", &log::Traffic::rx_frames}, {"rx.bytes", &log::Traffic::rx_bytes},
    {"tx.descriptors", &log::Traffic::tx_descriptors}, {"tx.frames", &log::Traffic::tx_frames}, {"tx.bytes", &log::Traffic::tx_bytes},
};

/// Counters of a receive queue. `log::Traffic` counts all received frames, also those that the queue then drops.
struct ReceiveQueueCounters {
  Counter pool_empty;  ///< refills for which the pool had fewer buffers than a batch
  static constexpr NamedCount<ReceiveQueueCounters, Counter> names[] = {{"rx.pool_empty", &ReceiveQueueCounters::pool_empty}};
};

/// Counters of a transmit queue. `log::Traffic` counts outgoing frames when they are queued; a TSO frame counts as its segments.
struct TransmitQueueCounters {
  Counter refused_full, refused_invalid;
  Counter lost;   ///< frames that were queued and not sent, because the queue was stopped or the card has failed
  Counter hangs;  ///< watchdog periods in which the card made no progress
  static constexpr NamedCount<TransmitQueueCounters, Counter> names[] = {
      {"tx.refused_full", &TransmitQueueCounters::refused_full},
      {"tx.refused_invalid", &TransmitQueueCounters::refused_invalid},
      {"tx.lost", &TransmitQueueCounters::lost},
      {"tx.hangs", &TransmitQueueCounters::hangs},
  };
};

struct QueuePairCounters {
  Counter interrupts;
  Counter empty_interrupts;  ///< interrupts that found neither frames nor completions
  Counter budget_exits;
  Counter idle_finds;  ///< checks before sleep that found work
  static constexpr NamedCount<QueuePairCounters, Counter> names[] = {
      {"pair.interrupts", &QueuePairCounters::interrupts},
      {"pair.empty_interrupts", &QueuePairCounters::empty_interrupts},
      {"pair.budget_exits", &QueuePairCounters::budget_exits},
      {"pair.idle_finds", &QueuePairCounters::idle_finds},
  };
};

/// Counters of the card, written by the core that opened it.
struct NetCardCounters {
  Counter link_changes;
  static constexpr NamedCount<NetCardCounters, Counter> names[] = {{"card.link_changes", &NetCardCounters::link_changes}};
};

/// Emits `value_of(count)` for each row of `table`, whose names follow `driver` and a dot.
template <class Struct, std::size_t rows, class ValueOf>
void emit_counts(std::string_view driver, const NamedCount<Struct, Counter> (&table)[rows], const Emit& emit, ValueOf value_of) {
  for (const auto& [name, count] : table) emit(std::string(driver) + '.' + std::string(name), value_of(count));
}

}  // namespace neap
