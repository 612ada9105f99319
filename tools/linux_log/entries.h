// SPDX-License-Identifier: BSL-1.0
// The entries of a log as neap-trace writes them (docs/log-format.md), 64 bytes each.
//
// A log's header describes its entries, so a writer may have its own forms. Linux's Record also has the queue and its present `itr`: here
// several queues may interrupt one core. It has less room for control's frames, which Linux does not count. The other forms are Neap's.
#pragma once

#include <stdint.h>

enum {
  ENTRY_BYTES = 64,
  HEADER_BYTES = 16384,
  TICKS_PER_SECOND = 1000000000,  // a tick is a nanosecond of CLOCK_MONOTONIC: BPF programs cannot read the TSC
  ENERGY_UNIT_EXPONENT = 16,      // energy counts in 2^-16 J; perf counts in 2^-32 J
  PERF_ENERGY_EXPONENT = 32,
  CHANGED_NOTHING = 255,
  ANY_QUEUE = 0xFFFF,
};

enum Kind {
  KIND_INTERRUPT = 1,
  KIND_POLL = 2,
  KIND_POLICY = 3,
  KIND_START = 4,
  KIND_STOP = 5,
  KIND_SAMPLE = 16,
  KIND_RESIDENCY = 17,
  KIND_SETTINGS = 18,
  KIND_ANCHOR = 19,
  KIND_CONFIGURED = 20,
  KIND_IDLE = 32,
  KIND_MARK = 33,
};

enum Counter {
  COUNTER_INSTRUCTIONS,
  COUNTER_CYCLES,
  COUNTER_REFERENCE_CYCLES,
  COUNTER_LLC_MISSES,
  COUNTER_PACKAGE_ENERGY,
  COUNTER_DRAM_ENERGY,
  COUNTER_CORE_C3,
  COUNTER_CORE_C6,
  COUNTER_CORE_C7,
  COUNTER_PACKAGE_C2,
  COUNTER_PACKAGE_C3,
  COUNTER_PACKAGE_C6,
  COUNTER_PACKAGE_C7,
  COUNTERS,
};
enum { SAMPLE_COUNTERS = 0x7F, RESIDENCY_COUNTERS = 0x1F80 };

struct RecordEntry {
  uint64_t tsc;
  uint8_t kind, idle_state;
  uint16_t flags;
  uint32_t generation;
  uint32_t rx_descriptors, rx_frames, rx_bytes;
  uint32_t tx_descriptors, tx_frames, tx_bytes;
  uint8_t control_rx_frames, control_tx_frames;
  uint16_t queue;
  uint8_t control_rx_bytes, control_tx_bytes;
  uint16_t itr_us;
  uint8_t reserved[4];
  uint32_t idle_entries;
  uint64_t idle_ticks;
};
#define RECORD_FORM                                                                                                     \
  "tsc:u64:ticks kind:u8: idle_state:u8: flags:u16: generation:u32: rx_descriptors:u32: rx_frames:u32: rx_bytes:u32:B " \
  "tx_descriptors:u32: tx_frames:u32: tx_bytes:u32:B control_rx_frames:u8: control_tx_frames:u8: queue:u16: "           \
  "control_rx_bytes:u8:B control_tx_bytes:u8:B itr_us:u16:us reserved:u8x4: idle_entries:u32: idle_ticks:u64:ticks"

struct SampleEntry {
  uint64_t tsc;
  uint8_t kind, reserved;
  uint16_t flags;
  uint32_t package_energy;
  uint64_t instructions, cycles, reference_cycles, llc_misses;
  uint32_t dram_energy, reserved2;
  uint64_t core_c3;
};

struct ResidencyEntry {
  uint64_t tsc;
  uint8_t kind, reserved;
  uint16_t flags;
  uint32_t reserved2;
  uint64_t core_c6, core_c7, package_c2, package_c3, package_c6, package_c7;
};

struct SettingsEntry {
  uint64_t tsc;
  uint8_t kind, idle_state, changed, turbo;
  uint32_t generation, itr_us, poll_budget_us;
  uint64_t performance;
  uint32_t power_limit_mw, card_value;
  uint8_t reserved[24];
};

struct AnchorEntry {
  uint64_t tsc;
  uint8_t kind, reserved[3];
  uint32_t generation;
  uint64_t wall_clock_ns, requests;
  uint32_t package, run;
  uint64_t sleeps, idle_ticks, reserved2;
};

struct IdleEntry {
  uint64_t tsc;
  uint8_t kind, idle_state, cause, vector;
  uint32_t generation;
  uint64_t tsc_asleep;
  uint8_t c_state, reserved[39];
};
enum { CAUSE_INTERRUPT = 1, CAUSE_UNKNOWN = 5, C_STATE_UNKNOWN = 0 };

struct MarkEntry {
  uint64_t tsc;
  uint8_t kind, what, reserved[2];
  uint32_t generation;
  uint8_t reserved2[48];
};

_Static_assert(sizeof(struct RecordEntry) == ENTRY_BYTES && sizeof(struct SampleEntry) == ENTRY_BYTES, "an entry has 64 bytes");
_Static_assert(sizeof(struct ResidencyEntry) == ENTRY_BYTES && sizeof(struct SettingsEntry) == ENTRY_BYTES, "an entry has 64 bytes");
_Static_assert(sizeof(struct AnchorEntry) == ENTRY_BYTES && sizeof(struct IdleEntry) == ENTRY_BYTES, "an entry has 64 bytes");
_Static_assert(sizeof(struct MarkEntry) == ENTRY_BYTES, "an entry has 64 bytes");
