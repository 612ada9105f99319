// SPDX-License-Identifier: BSL-1.0
// What a core leaves behind for each interrupt: 64 bytes, one cache line, little-endian.
//
// A record must cost next to nothing, and what costs more (counters in MSRs) is wanted only now and then. So the common record is one
// line, and samples are further lines that follow it; all lines have one size, so a log is an array. These structs are the format: they are
// written as they are, docs/log-format.md describes them byte by byte, and tools/log/ reads them.
//
// Every record closes an interval that the previous one opened: its counts are of the time between the two.
#pragma once

#include <cstdint>

namespace neap::log {

constexpr std::uint32_t format_version = 1;
constexpr std::uint32_t record_bytes = 64;

enum class Kind : std::uint8_t {
  none = 0,
  // Ordinary records (`Record`).
  interrupt = 1,  ///< of the queue's vector, taken before its frames are worked on; empty ones included
  poll = 2,       ///< a look at the ring that found work, without an interrupt
  policy = 3,     ///< closes the interval under the old policy; a `Settings` line with the new one follows
  start = 4,      ///< first record of a run; all counters sampled, an `Anchor` line follows
  stop = 5,       ///< last record of a run; the same
  // Lines that follow an ordinary record.
  sample = 16,     ///< `Sample`: present if the record's flags have any of bits 0 to 6
  residency = 17,  ///< `Residency`: present if the record's flags have any of bits 7 to 12
  settings = 18,   ///< `Settings`: after `policy`, and behind the first `anchor`: what holds when the run begins
  anchor = 19,     ///< `Anchor`: after `start` and `stop`, behind sample and residency
  idle = 32,       ///< `Idle`: one sleep; stands alone, if asked for; none while polling
};

/// Counts since the previous record of the core. What does not fit into a field is carried over to the next record, never lost.
struct Record {
  std::uint64_t tsc;
  std::uint8_t kind;
  std::uint8_t idle_state;   ///< `IdleState` asked for in this interval
  std::uint16_t flags;       ///< counters sampled (namespace `counter`): their lines follow
  std::uint32_t generation;  ///< the last policy change that this core applied before the interval
  std::uint32_t rx_descriptors;
  std::uint32_t rx_frames;
  std::uint32_t rx_bytes;        ///< of frames, without FCS; sent ones without padding
  std::uint32_t tx_descriptors;  ///< ring entries used, context descriptors included
  std::uint32_t tx_frames;
  std::uint32_t tx_bytes;
  std::uint16_t control_rx_frames;  ///< of the above: those of control connections and log streams
  std::uint16_t control_tx_frames;
  std::uint32_t control_rx_bytes;
  std::uint32_t control_tx_bytes;
  std::uint32_t idle_entries;  ///< sleeps (in `poll`: looks that found nothing)
  std::uint64_t idle_ticks;    ///< TSC ticks asleep (in `poll`: between looks that found nothing)
};

struct Sample {
  std::uint64_t tsc;  ///< of the record it belongs to
  std::uint8_t kind;
  std::uint8_t reserved;
  std::uint16_t flags;
  std::uint32_t package_energy;
  std::uint64_t instructions;
  std::uint64_t cycles;
  std::uint64_t reference_cycles;
  std::uint64_t llc_misses;
  std::uint32_t dram_energy;
  std::uint32_t reserved2;
  std::uint64_t core_c3;
};

struct Residency {
  std::uint64_t tsc;
  std::uint8_t kind;
  std::uint8_t reserved;
  std::uint16_t flags;
  std::uint32_t reserved2;
  std::uint64_t core_c6;
  std::uint64_t core_c7;
  std::uint64_t package_c2;
  std::uint64_t package_c3;
  std::uint64_t package_c6;
  std::uint64_t package_c7;
};

constexpr std::uint8_t nothing_changed = 255;
/// The policy that holds from here on.
struct Settings {
  std::uint64_t tsc;
  std::uint8_t kind;
  std::uint8_t idle_state;
  std::uint8_t changed;  ///< `policy::Setting` that this change set; `nothing_changed`: it stands at the beginning of a run
  std::uint8_t turbo;    ///< 0 off, 1 on, 2 unknown or cannot be set
  std::uint32_t generation;
  std::uint32_t itr_us;  ///< as the card rounds it
  std::uint32_t poll_budget_us;
  std::uint64_t performance;     ///< raw value last written, 0: never set
  std::uint32_t power_limit_mw;  ///< 0: firmware's
  std::uint32_t card_value;      ///< if `changed` is `epp`, `tso` or a setting of the network card: what it was set to; switches: 0, 1.
                                 ///< If it is `pstate`: 0, and in a second record 2 ms later the ratio that the CPU granted
  std::uint8_t reserved[24];
};

struct Anchor {
  std::uint64_t tsc;
  std::uint8_t kind;
  std::uint8_t reserved[3];
  std::uint32_t generation;
  std::uint64_t wall_clock_ns;  ///< since 1970-01-01T00:00Z
  std::uint64_t requests;       ///< that the application counted on this core since boot
  std::uint32_t package;
  std::uint32_t run;         ///< number of this run since boot, from 1
  std::uint64_t sleeps;      ///< of this core since boot
  std::uint64_t idle_ticks;  ///< of this core since boot
  std::uint64_t reserved2;
};

struct Idle {
  std::uint64_t tsc;  ///< awake again
  std::uint8_t kind;
  std::uint8_t idle_state;  ///< asked for
  std::uint8_t cause;       ///< `WakeCause`
  std::uint8_t vector;
  std::uint32_t generation;
  std::uint64_t tsc_asleep;  ///< went to sleep
  std::uint8_t reserved[40];
};

static_assert(sizeof(Record) == record_bytes && sizeof(Sample) == record_bytes && sizeof(Residency) == record_bytes);
static_assert(sizeof(Settings) == record_bytes && sizeof(Anchor) == record_bytes && sizeof(Idle) == record_bytes);

}  // namespace neap::log
