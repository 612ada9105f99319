// SPDX-License-Identifier: BSL-1.0
// The driver's counters.
//
// Each counter has one writer, the queue's core, and any core may read it. Each struct is followed by the table of its counters' names. A
// counter that is missing in the table is never reported.
#pragma once

#include "kernel/counter.hpp"
#include "kernel/log.hpp"

namespace neap::virtio {

constexpr NamedCount<log::Traffic, Counter> traffic_counts[] = {
    {"virtio.rx.descriptors", &log::Traffic::rx_descriptors},
    {"virtio.rx.frames", &log::Traffic::rx_frames},
    {"virtio.rx.bytes", &log::Traffic::rx_bytes},
    {"virtio.tx.descriptors", &log::Traffic::tx_descriptors},
    {"virtio.tx.frames", &log::Traffic::tx_frames},
    {"virtio.tx.bytes", &log::Traffic::tx_bytes},
};

struct ReceiveCounters {
  Counter dropped_short;  ///< frames shorter than the header of Ethernet
  Counter merged;         ///< frames in several buffers
  Counter pool_empty;     ///< refills for which the pool had fewer buffers than a batch
  Counter notifications;
};
constexpr NamedCount<ReceiveCounters, Counter> receive_counts[] = {
    {"virtio.rx.dropped_short", &ReceiveCounters::dropped_short},
    {"virtio.rx.merged", &ReceiveCounters::merged},
    {"virtio.rx.pool_empty", &ReceiveCounters::pool_empty},
    {"virtio.rx.notifications", &ReceiveCounters::notifications},
};

struct TransmitCounters {
  Counter refused_full, refused_invalid, notifications;
  Counter lost;   ///< frames that the device held when it failed or was closed
  Counter hangs;  ///< watchdog periods in which the device made no progress
};
constexpr NamedCount<TransmitCounters, Counter> transmit_counts[] = {
    {"virtio.tx.refused_full", &TransmitCounters::refused_full},
    {"virtio.tx.refused_invalid", &TransmitCounters::refused_invalid},
    {"virtio.tx.notifications", &TransmitCounters::notifications},
    {"virtio.tx.lost", &TransmitCounters::lost},
    {"virtio.tx.hangs", &TransmitCounters::hangs},
};

struct PairCounters {
  Counter interrupts;
  Counter empty_interrupts;  ///< interrupts that found neither frames nor completions
  Counter budget_exits;
  Counter idle_finds;     ///< checks before sleep that found work
  Counter wrong_entries;  ///< impossible entries of a used ring; the first one closes the device
};
constexpr NamedCount<PairCounters, Counter> pair_counts[] = {
    {"virtio.pair.interrupts", &PairCounters::interrupts},       {"virtio.pair.empty_interrupts", &PairCounters::empty_interrupts},
    {"virtio.pair.budget_exits", &PairCounters::budget_exits},   {"virtio.pair.idle_finds", &PairCounters::idle_finds},
    {"virtio.pair.wrong_entries", &PairCounters::wrong_entries},
};

/// Counters of the device, written by the core that opened it.
struct CardCounters {
  Counter config_interrupts, link_changes, commands;
  Counter refused_commands;  ///< commands that the device refused, or did not answer in time
  Counter failures;          ///< times that the device failed and was closed
};
constexpr NamedCount<CardCounters, Counter> card_counts[] = {
    {"virtio.card.config_interrupts", &CardCounters::config_interrupts},
    {"virtio.card.link_changes", &CardCounters::link_changes},
    {"virtio.card.commands", &CardCounters::commands},
    {"virtio.card.refused_commands", &CardCounters::refused_commands},
    {"virtio.card.failures", &CardCounters::failures},
};

}  // namespace neap::virtio
