// SPDX-License-Identifier: BSL-1.0
// What the BPF programs hand to user space: one ring of raw entries for each CPU, in memory that both map.
//
// A hook in the kernel must cost little, so it only copies cumulative counters. User space makes the differences and Neap's log records
// from them later, in batches. An entry has 64 bytes, one cache line.
//
// Protocol: a hook reserves an entry by an atomic addition to `head`, fills it, and writes `ns` last. A hard interrupt may arrive between
// these steps and reserve the next entry. So the reader stops at the first entry whose `ns` is 0. It clears `ns` after it has copied an
// entry, then moves `tail`. A hook that finds the ring full counts `lost`. The counters are cumulative, so no frame is lost with an entry.
#pragma once

#ifdef __bpf__
typedef __u8 raw_u8;
typedef __u16 raw_u16;
typedef __u32 raw_u32;
typedef __u64 raw_u64;
#else
#include <stdint.h>
typedef uint8_t raw_u8;
typedef uint16_t raw_u16;
typedef uint32_t raw_u32;
typedef uint64_t raw_u64;
#endif

enum {
  RAW_ENTRIES_MAX = 16384,  // 1 MiB for each CPU: 160 ms at 100,000 interrupts a second
  RAW_RESERVE = 8,          // entries that hooks which interrupt each other may take beyond the check of the fill level
  RAW_PENDING = 16,         // queues of one CPU whose next poll is accounted for
  RAW_IRQS_MAX = 8192,
  RAW_SAMPLE_VALUES = 6,
  // A read executes about 150 instructions, so not all counters are in each sample.
  RAW_FREQUENT_COUNTERS = 5,  // the first five, up to the package's energy, are in each sample
  RAW_SAMPLED_COUNTERS = 9,   // memory's energy and the cores' residencies are in every tenth; the rest is read at start and stop only
  RAW_SAMPLES_BETWEEN = 10,
  RAW_COUNTERS = 13,  // the first 13 bits of a record's flags (docs/log-format.md)
  RAW_COUNTERS_STRIDE = 16,
  RAW_NO_QUEUE = 0xFFFF,
  RAW_IDLE_STATES_MAX = 10,
};

enum RawKind {
  RAW_INTERRUPT = 1,  // an interrupt of a queue's vector
  RAW_POLL = 2,       // a NAPI poll without a fresh interrupt
  RAW_IDLE = 3,       // one sleep, if the caller asked for sleeps
  RAW_SAMPLE = 4,     // values of counters; the entry precedes the RAW_INTERRUPT with the same `ns`
  RAW_SLEEPS = 5,     // the number of sleeps; user space makes it
};

struct RawEntry {
  raw_u64 ns;  // CLOCK_MONOTONIC; of RAW_IDLE: end of the sleep
  raw_u8 kind;
  raw_u8 state;    // number of the last idle state; of RAW_SAMPLE: number of the first counter
  raw_u16 queue;   // of RAW_IDLE: queue of the interrupt that ended the sleep, or RAW_NO_QUEUE; of RAW_SAMPLE: a bit for each valid value
  raw_u32 sleeps;  // of this CPU, cumulative
  union {
    struct {
      raw_u64 idle_ns;                                     // of this CPU, cumulative; of RAW_IDLE: begin of the sleep
      raw_u64 rx_packets, rx_bytes, tx_packets, tx_bytes;  // of the queue, cumulative
      raw_u32 ring_id;                                     // differs between two rings that a queue number has had
      raw_u16 itr;                                         // of the queue, in the card's unit of a quarter of a microsecond
      raw_u16 is_stale;                                    // 1: `sleeps` was not read for this entry
    };
    raw_u64 values[RAW_SAMPLE_VALUES];
  };
};

struct RawPending {
  raw_u64 vector;     // address of the queue's ixgbe_q_vector
  raw_u64 accounted;  // 1: the next poll has its record already, by an interrupt or by a poll that used its whole budget
};

// The argument of the program neap_sleeps.
struct RawSleepsOf {
  raw_u32 cpu;
};

struct RawRing {
  raw_u64 head;
  raw_u64 lost;
  raw_u64 asleep_since_ns;  // 0: not asleep
  raw_u64 idle_ns;
  raw_u64 next_sample_ns;
  raw_u32 sleeps;
  raw_u32 state;
  raw_u64 usable;     // fill level at which the ring counts as full; user space writes it
  raw_u64 polled_ns;  // of cpuidle's state that does not sleep, cumulative
  struct RawPending pending[RAW_PENDING];
  raw_u64 tail;              // user space writes it
  raw_u64 are_polls_hooked;  // user space writes it before it attaches the hook for polls
  raw_u64 samples;           // in this run
  raw_u64 reserved2[5];
  struct RawEntry entries[RAW_ENTRIES_MAX];
};

// One for each interrupt number. User space sets `ours`; the hook fills the rest at the first interrupt.
struct RawVector {
  raw_u64 vector;              // address of the ixgbe_q_vector; 0: not filled
  raw_u64 rx_stats, tx_stats;  // addresses of packets and bytes; 0: no such ring
  raw_u32 ring_id;
  raw_u16 queue;
  raw_u16 itr;
  raw_u32 ours;
  raw_u32 several;  // the vector has several rings of one direction
};
