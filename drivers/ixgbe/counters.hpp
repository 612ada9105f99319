// SPDX-License-Identifier: BSL-1.0
// The driver's counters.
//
// Each counter has one writer, the queue's core, and any core may read it. So reading the counters does not interrupt the writers. Each
// struct is followed by the table of its counters' names. A counter that is missing in the table is never reported.
#pragma once

#include "kernel/counter.hpp"
#include "kernel/log.hpp"

namespace neap::ixgbe {

constexpr NamedCount<log::Traffic, Counter> traffic_counts[] = {
    {"ixgbe.rx.descriptors", &log::Traffic::rx_descriptors},
    {"ixgbe.rx.frames", &log::Traffic::rx_frames},
    {"ixgbe.rx.bytes", &log::Traffic::rx_bytes},
    {"ixgbe.tx.descriptors", &log::Traffic::tx_descriptors},
    {"ixgbe.tx.frames", &log::Traffic::tx_frames},
    {"ixgbe.tx.bytes", &log::Traffic::tx_bytes},
};

/// Counters of a receive queue. `log::Traffic` counts all received frames, also those that the queue then drops.
struct ReceiveCounters {
  Counter dropped_errors;    ///< frames with an error that the MAC found, or with an impossible length
  Counter dropped_untagged;  ///< frames without the tag that the setting `vlan` requires
  Counter dropped_overlong;  ///< frames with more pieces than the largest allowed frame needs
  Counter pool_empty;        ///< refills for which the pool had fewer buffers than a batch
  Counter tail_writes;
};
constexpr NamedCount<ReceiveCounters, Counter> receive_counts[] = {
    {"ixgbe.rx.dropped_errors", &ReceiveCounters::dropped_errors},     {"ixgbe.rx.dropped_untagged", &ReceiveCounters::dropped_untagged},
    {"ixgbe.rx.dropped_overlong", &ReceiveCounters::dropped_overlong}, {"ixgbe.rx.pool_empty", &ReceiveCounters::pool_empty},
    {"ixgbe.rx.tail_writes", &ReceiveCounters::tail_writes},
};

/// Counters of a transmit queue. `log::Traffic` counts outgoing frames when they are queued; a TSO frame counts as its segments.
struct TransmitCounters {
  Counter contexts, refused_full, refused_invalid, tail_writes;
  Counter lost;         ///< frames dropped when a queue was stopped
  Counter hangs;        ///< watchdog periods in which the card made no progress
  Counter wrong_heads;  ///< write-backs of a head outside of the descriptors in flight
};
constexpr NamedCount<TransmitCounters, Counter> transmit_counts[] = {
    {"ixgbe.tx.contexts", &TransmitCounters::contexts},
    {"ixgbe.tx.refused_full", &TransmitCounters::refused_full},
    {"ixgbe.tx.refused_invalid", &TransmitCounters::refused_invalid},
    {"ixgbe.tx.tail_writes", &TransmitCounters::tail_writes},
    {"ixgbe.tx.lost", &TransmitCounters::lost},
    {"ixgbe.tx.hangs", &TransmitCounters::hangs},
    {"ixgbe.tx.wrong_heads", &TransmitCounters::wrong_heads},
};

struct PairCounters {
  Counter interrupts;
  Counter empty_interrupts;  ///< interrupts that found neither frames nor completions
  Counter budget_exits;
  Counter idle_finds;  ///< checks before sleep that found work
};
constexpr NamedCount<PairCounters, Counter> pair_counts[] = {
    {"ixgbe.pair.interrupts", &PairCounters::interrupts},
    {"ixgbe.pair.empty_interrupts", &PairCounters::empty_interrupts},
    {"ixgbe.pair.budget_exits", &PairCounters::budget_exits},
    {"ixgbe.pair.idle_finds", &PairCounters::idle_finds},
};

/// Counters of the card, written by the core that opened it.
struct CardCounters {
  Counter other_interrupts, link_changes;
  Counter memory_errors;  ///< errors that the card's ECC logic could not correct
  Counter dma_errors;     ///< accesses in which the card could not reach memory
  Counter resets;         ///< resets after a memory or DMA error, or after a queue did not stop or start
  Counter gone;           ///< checks that found the card gone
};
constexpr NamedCount<CardCounters, Counter> card_counts[] = {
    {"ixgbe.card.other_interrupts", &CardCounters::other_interrupts},
    {"ixgbe.card.link_changes", &CardCounters::link_changes},
    {"ixgbe.card.memory_errors", &CardCounters::memory_errors},
    {"ixgbe.card.dma_errors", &CardCounters::dma_errors},
    {"ixgbe.card.resets", &CardCounters::resets},
    {"ixgbe.card.gone", &CardCounters::gone},
};

}  // namespace neap::ixgbe
