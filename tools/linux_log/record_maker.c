// SPDX-License-Identifier: BSL-1.0
#include "record_maker.h"

#include <string.h>

enum { ITR_UNITS_PER_US = 4 };

static uint64_t later(struct RecordMaker* maker, uint64_t ns) {
  // Hooks that interrupt each other may read the clock in another order than they reserve entries.
  if (ns > maker->last_ns) maker->last_ns = ns;
  return maker->last_ns;
}

static void grow(uint64_t* sum, uint64_t* last, uint64_t value) {
  if (value > *last) {
    *sum += value - *last;
    *last = value;
  }
}

static void take_counts(struct RecordMaker* maker, uint32_t queue, uint32_t ring_id, const struct QueueCounts* counts) {
  if (queue >= QUEUES_MAX) {
    ++maker->machine->unknown_queues;
    return;
  }
  struct QueueState* state = &maker->machine->queues[queue];
  if (ring_id && ring_id != state->ring_id) {
    if (ring_id == state->previous_ring_id) return;  // a late entry of rings that are gone
    // The driver has made new rings, which count from 0. The first ring that is seen continues the base.
    if (state->ring_id) memset(&state->last, 0, sizeof state->last);
    state->previous_ring_id = state->ring_id;
    state->ring_id = ring_id;
  } else if (counts->rx_packets && counts->rx_packets < maker->own_rx_packets[queue]) {
    // Entries of one CPU are in order, so the driver has set the counters back. Zeros may also be a read that failed.
    memset(&state->last, 0, sizeof state->last);
  }
  if (counts->rx_packets) maker->own_rx_packets[queue] = counts->rx_packets;
  state->is_seen = true;
  state->cpu = maker->core;
  grow(&maker->growth.rx_packets, &state->last.rx_packets, counts->rx_packets);
  grow(&maker->growth.rx_bytes, &state->last.rx_bytes, counts->rx_bytes);
  grow(&maker->growth.tx_packets, &state->last.tx_packets, counts->tx_packets);
  grow(&maker->growth.tx_bytes, &state->last.tx_bytes, counts->tx_bytes);
}

static uint32_t take_u32(uint64_t* from) {
  const uint32_t taken = *from > UINT32_MAX ? UINT32_MAX : (uint32_t)*from;
  *from -= taken;
  return taken;
}

static uint64_t ticks_of(const struct Machine* machine, uint64_t tsc_ticks) {
  return machine->cpu_tsc_hz ? (uint64_t)((unsigned __int128)tsc_ticks * TICKS_PER_SECOND / machine->cpu_tsc_hz) : 0;
}

static uint32_t energy_of(uint64_t perf_energy) { return (uint32_t)(perf_energy >> (PERF_ENERGY_EXPONENT - ENERGY_UNIT_EXPONENT)); }

/// Writes the entries that follow a record, for the counters in `counters->valid`.
static void emit_counters(struct RecordMaker* maker, uint64_t tsc, const struct CounterValues* counters) {
  const uint64_t* v = counters->values;
  const uint16_t flags = (uint16_t)counters->valid;
  const struct Machine* machine = maker->machine;
  if (flags & SAMPLE_COUNTERS) {
    const struct SampleEntry sample = {
        .tsc = tsc,
        .kind = KIND_SAMPLE,
        .flags = flags,
        .package_energy = energy_of(v[COUNTER_PACKAGE_ENERGY]),
        .instructions = v[COUNTER_INSTRUCTIONS],
        .cycles = v[COUNTER_CYCLES],
        .reference_cycles = ticks_of(machine, v[COUNTER_REFERENCE_CYCLES]),
        .llc_misses = v[COUNTER_LLC_MISSES],
        .dram_energy = energy_of(v[COUNTER_DRAM_ENERGY]),
        .core_c3 = ticks_of(machine, v[COUNTER_CORE_C3]),
    };
    maker->sink(maker->context, &sample);
  }
  if (flags & RESIDENCY_COUNTERS) {
    const struct ResidencyEntry residency = {
        .tsc = tsc,
        .kind = KIND_RESIDENCY,
        .flags = flags,
        .core_c6 = ticks_of(machine, v[COUNTER_CORE_C6]),
        .core_c7 = ticks_of(machine, v[COUNTER_CORE_C7]),
        .package_c2 = ticks_of(machine, v[COUNTER_PACKAGE_C2]),
        .package_c3 = ticks_of(machine, v[COUNTER_PACKAGE_C3]),
        .package_c6 = ticks_of(machine, v[COUNTER_PACKAGE_C6]),
        .package_c7 = ticks_of(machine, v[COUNTER_PACKAGE_C7]),
    };
    maker->sink(maker->context, &residency);
  }
}

/// Counters in TSC ticks are of no use if the TSC's rate is not known.
static uint16_t usable(const struct Machine* machine, uint32_t valid) {
  const uint32_t in_tsc_ticks = 1u << COUNTER_REFERENCE_CYCLES | 1u << COUNTER_CORE_C3 | RESIDENCY_COUNTERS;
  return (uint16_t)(machine->cpu_tsc_hz ? valid : valid & ~in_tsc_ticks);
}

static void emit_record(struct RecordMaker* maker, uint64_t tsc, uint8_t kind, uint16_t queue, uint16_t itr_us,
                        struct CounterValues* counters) {
  counters->valid = usable(maker->machine, counters->valid);
  const uint64_t idle_ticks = maker->idle_growth_ns;
  maker->idle_growth_ns = 0;
  const struct RecordEntry record = {
      .tsc = tsc,
      .kind = kind,
      .idle_state = maker->idle_state,
      .flags = (uint16_t)counters->valid,
      .generation = maker->machine->generation,
      .rx_frames = take_u32(&maker->growth.rx_packets),
      .rx_bytes = take_u32(&maker->growth.rx_bytes),
      .tx_frames = take_u32(&maker->growth.tx_packets),
      .tx_bytes = take_u32(&maker->growth.tx_bytes),
      .queue = queue,
      .itr_us = itr_us,
      .idle_entries = take_u32(&maker->sleeps_growth),
      .idle_ticks = idle_ticks,
  };
  maker->sink(maker->context, &record);
  emit_counters(maker, tsc, counters);
}

/// `is_stale`: `sleeps` was read for an earlier entry.
static void take_idle(struct RecordMaker* maker, uint64_t sleeps, uint64_t idle_ns, bool is_stale) {
  const uint64_t before_ns = maker->idle_ns;
  grow(&maker->idle_growth_ns, &maker->idle_ns, idle_ns);
  if (!is_stale) {
    // The kernel's ring has the lower 32 bits of the number. An entry that is older than the value of the start adds nothing.
    const int32_t growth = (int32_t)((uint32_t)sleeps - (uint32_t)maker->sleeps);
    if (growth > 0) maker->sleeps += (uint32_t)growth;
    if (growth >= 0) maker->sleeps_expected = maker->sleeps;
  } else if (maker->idle_ns > before_ns) {
    ++maker->sleeps_expected;
  }
  if (maker->sleeps_expected > maker->sleeps_recorded) {
    maker->sleeps_growth += maker->sleeps_expected - maker->sleeps_recorded;
    maker->sleeps_recorded = maker->sleeps_expected;
  }
}

static void emit_anchor(struct RecordMaker* maker, uint64_t tsc, uint64_t wall_clock_ns) {
  const struct AnchorEntry anchor = {
      .tsc = tsc,
      .kind = KIND_ANCHOR,
      .generation = maker->machine->generation,
      .wall_clock_ns = wall_clock_ns,
      .package = maker->package,
      .run = maker->run,
      .sleeps = maker->sleeps,
      .idle_ticks = maker->idle_ns,
  };
  maker->sink(maker->context, &anchor);
}

void machine_set_base(struct Machine* machine, uint32_t queue, const struct QueueCounts* counts) {
  if (queue >= QUEUES_MAX) return;
  machine->queues[queue] = (struct QueueState){.last = *counts};
}

void maker_start(struct RecordMaker* maker, uint64_t ns, uint64_t wall_clock_ns, uint64_t sleeps, uint64_t idle_ns,
                 const struct CounterValues* counters) {
  maker->begin_ns = maker->last_ns = ns;
  maker->end_ns = UINT64_MAX;
  maker->sleeps = maker->sleeps_expected = maker->sleeps_recorded = sleeps;
  maker->idle_ns = idle_ns;
  maker->growth = (struct QueueCounts){0};
  maker->idle_growth_ns = maker->sleeps_growth = 0;
  memset(maker->own_rx_packets, 0, sizeof maker->own_rx_packets);
  maker->held_count = 0;
  struct CounterValues values = *counters;
  emit_record(maker, ns, KIND_START, ANY_QUEUE, 0, &values);
  emit_anchor(maker, ns, wall_clock_ns);
}

static void take_held(struct RecordMaker* maker, uint64_t ns, struct CounterValues* into) {
  into->valid = 0;
  memset(into->values, 0, sizeof into->values);
  for (uint32_t i = 0; i < maker->held_count; ++i) {
    const struct RawEntry* held = &maker->held[i];
    if (held->ns != ns) continue;  // the ring was full when its record was due
    for (uint32_t j = 0; j < RAW_SAMPLE_VALUES && held->state + j < COUNTERS; ++j) {
      if (!(held->queue >> j & 1)) continue;
      into->valid |= 1u << (held->state + j);
      into->values[held->state + j] = held->values[j];
    }
  }
  maker->held_count = 0;
}

static void take_sleep(struct RecordMaker* maker, const struct RawEntry* raw) {
  const bool is_interrupt = raw->queue != RAW_NO_QUEUE;
  const struct IdleEntry idle = {
      .tsc = later(maker, raw->ns),
      .kind = KIND_IDLE,
      .idle_state = raw->state,
      .cause = is_interrupt ? CAUSE_INTERRUPT : CAUSE_UNKNOWN,
      .vector = is_interrupt ? (uint8_t)raw->queue : 0,
      .generation = maker->machine->generation,
      .tsc_asleep = raw->idle_ns > maker->begin_ns ? raw->idle_ns : maker->begin_ns,
      .c_state = C_STATE_UNKNOWN,
  };
  maker->sink(maker->context, &idle);
}

void maker_take(struct RecordMaker* maker, const struct RawEntry* raw) {
  if (raw->ns <= maker->begin_ns || raw->ns > maker->end_ns) return;
  if (raw->kind == RAW_SAMPLE) {
    if (maker->held_count < SAMPLES_HELD_MAX) maker->held[maker->held_count++] = *raw;
    return;
  }
  if (raw->kind == RAW_IDLE) {
    take_sleep(maker, raw);
    return;
  }
  if (raw->kind == RAW_SLEEPS) {
    take_idle(maker, raw->sleeps, maker->idle_ns, false);
    return;
  }
  if (raw->kind != RAW_INTERRUPT && raw->kind != RAW_POLL) return;
  const struct QueueCounts counts = {raw->rx_packets, raw->rx_bytes, raw->tx_packets, raw->tx_bytes};
  take_counts(maker, raw->queue, raw->ring_id, &counts);
  take_idle(maker, raw->sleeps, raw->idle_ns, raw->is_stale);
  maker->idle_state = raw->state;
  struct CounterValues values;
  values.valid = 0;
  if (maker->held_count) take_held(maker, raw->ns, &values);
  const bool is_interrupt = raw->kind == RAW_INTERRUPT;
  if (is_interrupt && raw->queue < QUEUES_MAX) ++maker->machine->queues[raw->queue].interrupts;
  emit_record(maker, later(maker, raw->ns), is_interrupt ? KIND_INTERRUPT : KIND_POLL, raw->queue, raw->itr / ITR_UNITS_PER_US, &values);
}

void maker_add_rest(struct RecordMaker* maker, uint32_t queue, const struct QueueCounts* counts) { take_counts(maker, queue, 0, counts); }

void maker_stop(struct RecordMaker* maker, uint64_t ns, uint64_t wall_clock_ns, uint64_t sleeps, uint64_t idle_ns,
                const struct CounterValues* counters) {
  take_idle(maker, sleeps, idle_ns, false);
  struct CounterValues values = *counters;
  const uint64_t tsc = later(maker, ns);
  struct CounterValues none = {0};
  // A count that exceeds its field is continued in the next record.
  const struct QueueCounts* left = &maker->growth;
  while (left->rx_packets > UINT32_MAX || left->rx_bytes > UINT32_MAX || left->tx_packets > UINT32_MAX || left->tx_bytes > UINT32_MAX) {
    emit_record(maker, tsc, KIND_POLL, ANY_QUEUE, 0, &none);
  }
  emit_record(maker, tsc, KIND_STOP, ANY_QUEUE, 0, &values);
  emit_anchor(maker, tsc, wall_clock_ns);
}

void maker_settings(struct RecordMaker* maker, uint64_t ns, struct SettingsEntry* settings, uint8_t kind) {
  settings->tsc = later(maker, ns);
  settings->kind = kind;
  settings->generation = maker->machine->generation;
  maker->sink(maker->context, settings);
}

void maker_change(struct RecordMaker* maker, uint64_t ns, struct SettingsEntry* settings) {
  struct CounterValues none = {0};
  emit_record(maker, later(maker, ns), KIND_POLICY, ANY_QUEUE, 0, &none);
  maker_settings(maker, ns, settings, KIND_SETTINGS);
}

void maker_mark(struct RecordMaker* maker, uint64_t ns, uint8_t what) {
  const struct MarkEntry mark = {.tsc = later(maker, ns), .kind = KIND_MARK, .what = what, .generation = maker->machine->generation};
  maker->sink(maker->context, &mark);
}
