// SPDX-License-Identifier: BSL-1.0
// What the driver counts.
//
// Each counter has one writer, the core whose queue it is, and any core may read it. So whoever asks (`stats`) sends nobody there. Beside
// each struct stands its table: a counter that is not in it would be seen by nobody.
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

/// Of a receive queue. What came in is counted in `log::Traffic`, frames that are dropped here included.
struct ReceiveCounters {
  Counter dropped_errors;    ///< frames with an error of the MAC or an impossible length
  Counter dropped_untagged;  ///< frames without a tag where a VLAN is set
  Counter dropped_overlong;  ///< frames over more pieces than the largest frame has
  Counter pool_empty;        ///< refills that found fewer than a batch of buffers
  Counter tail_writes;
};
constexpr NamedCount<ReceiveCounters, Counter> receive_counts[] = {
    {"ixgbe.rx.dropped_errors", &ReceiveCounters::dropped_errors},     {"ixgbe.rx.dropped_untagged", &ReceiveCounters::dropped_untagged},
    {"ixgbe.rx.dropped_overlong", &ReceiveCounters::dropped_overlong}, {"ixgbe.rx.pool_empty", &ReceiveCounters::pool_empty},
    {"ixgbe.rx.tail_writes", &ReceiveCounters::tail_writes},
};

/// Of a transmit queue. What goes out is counted in `log::Traffic` when it is queued, in frames on the wire.
struct TransmitCounters {
  Counter contexts;
  Counter refused_full;
  Counter refused_invalid;
  Counter tail_writes;
  Counter lost;         ///< frames given up when a queue was stopped
  Counter hangs;        ///< times that the card made no progress within the watchdog's period
  Counter wrong_heads;  ///< looks that found a head outside of what the card was told of
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

/// Of a queue pair.
struct PairCounters {
  Counter interrupts;
  Counter empty_interrupts;  ///< found neither frames nor reports
  Counter budget_exits;
  Counter idle_finds;  ///< times that the last look before sleep found work
};
constexpr NamedCount<PairCounters, Counter> pair_counts[] = {
    {"ixgbe.pair.interrupts", &PairCounters::interrupts},
    {"ixgbe.pair.empty_interrupts", &PairCounters::empty_interrupts},
    {"ixgbe.pair.budget_exits", &PairCounters::budget_exits},
    {"ixgbe.pair.idle_finds", &PairCounters::idle_finds},
};

/// Of the card, counted on the core that opened it.
struct CardCounters {
  Counter other_interrupts;
  Counter link_changes;
  Counter memory_errors;  ///< the card's ECC logic gave up
  Counter dma_errors;     ///< the card could not reach memory
  Counter resets;         ///< and was set up anew for one of these, or for a queue that did not stop
  Counter gone;           ///< a read found all ones
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
