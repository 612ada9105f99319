// SPDX-License-Identifier: BSL-1.0
// Makes log entries from the raw entries of the BPF programs.
//
// Raw entries have cumulative counters, a record has the growth since the core's previous record. A queue's interrupts may move to another
// CPU, and the rings of two CPUs are read one after the other. So the last value of a queue is kept for the whole machine, and a value that
// is not above it adds nothing. Thus the sum over all cores always equals the queue's own growth. Only the core to which frames of one
// batch are attributed may differ from the truth, and only in a batch in which the queue moved.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "entries.h"
#include "raw.h"

enum { QUEUES_MAX = 256, SAMPLES_HELD_MAX = 3 };

struct QueueCounts {
  uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
};

struct QueueState {
  struct QueueCounts last;
  uint32_t ring_id, previous_ring_id;
  uint32_t cpu;         // that had the queue's last raw entry
  uint64_t interrupts;  // in this run
  bool is_seen;
};

/// Shared by the cores of a run.
struct Machine {
  struct QueueState queues[QUEUES_MAX];
  uint64_t cpu_tsc_hz;  // of counters that count TSC ticks; 0: unknown
  uint32_t generation;
  uint64_t unknown_queues;  // raw entries of queues beyond QUEUES_MAX
};

/// Values of counters, as perf events have them.
struct CounterValues {
  uint32_t valid;  // a bit for each counter
  uint64_t values[COUNTERS];
};

/// Takes one finished entry of 64 bytes.
typedef void (*EntrySink)(void* context, const void* entry);

struct RecordMaker {
  struct Machine* machine;
  uint32_t core, package, run;
  EntrySink sink;
  void* context;
  uint64_t begin_ns, end_ns, last_ns;  // raw entries after end_ns are ignored
  uint64_t sleeps, idle_ns;            // last values that were read, cumulative
  uint64_t sleeps_expected;            // `sleeps`, and one for each later entry whose time asleep has grown
  uint64_t sleeps_recorded;
  struct QueueCounts growth;  // not yet in a record
  uint64_t idle_growth_ns, sleeps_growth;
  uint8_t idle_state;
  uint64_t own_rx_packets[QUEUES_MAX];     // of this core's last raw entry of each queue
  struct RawEntry held[SAMPLES_HELD_MAX];  // samples that precede their record
  uint32_t held_count;
};

/// Sets the values from which a queue's growth counts, as `ethtool -S` reports them at the start of the run.
void machine_set_base(struct Machine* machine, uint32_t queue, const struct QueueCounts* counts);

/// Writes the start record, its samples and its anchor. `sleeps`, `idle_ns`: of this core at `ns`, cumulative.
void maker_start(struct RecordMaker* maker, uint64_t ns, uint64_t wall_clock_ns, uint64_t sleeps, uint64_t idle_ns,
                 const struct CounterValues* counters);
/// Takes the next raw entry of this core. Entries from before the start, or after `end_ns`, are ignored.
void maker_take(struct RecordMaker* maker, const struct RawEntry* raw);
/// Adds what a queue has counted since its last raw entry. MUST precede maker_stop of the core that it is attributed to.
void maker_add_rest(struct RecordMaker* maker, uint32_t queue, const struct QueueCounts* counts);
/// Writes the stop record, its samples and its anchor.
void maker_stop(struct RecordMaker* maker, uint64_t ns, uint64_t wall_clock_ns, uint64_t sleeps, uint64_t idle_ns,
                const struct CounterValues* counters);
/// Writes a policy record and the Settings entry that follows it. The caller fills the entry's values.
void maker_change(struct RecordMaker* maker, uint64_t ns, struct SettingsEntry* settings);
/// Writes a Settings entry of the start (`kind` KIND_SETTINGS), or one setting's value (KIND_CONFIGURED).
void maker_settings(struct RecordMaker* maker, uint64_t ns, struct SettingsEntry* settings, uint8_t kind);
void maker_mark(struct RecordMaker* maker, uint64_t ns, uint8_t what);
