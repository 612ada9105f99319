// SPDX-License-Identifier: BSL-1.0
// The entries of a core's log: 64 bytes each, one cache line, little-endian.
//
// A log record holds the data of one event. Writing it must cost next to nothing, but counters in MSRs are expensive to read. So a usual
// record is one entry; only a record with samples of counters has further entries. All entries have one size, so a log is an array.
//
// The rows below define the format. The structs are generated from them, and so are the names, types and units in a log's header
// (observe/log_file.cpp). tools/log/ builds its types from that header. docs/log-format.md shows the rows; tools/log/format_test.py
// compares that page with these rows.
//
// The counts of a record cover the interval from the core's previous record to this one.
#pragma once

#include <cstdint>
#include <string_view>

namespace neap::log {

constexpr std::uint32_t format_version = 1;
constexpr std::uint32_t entry_bytes = 64;

// KIND(number, name, form of the entry, meaning)
#define NEAP_LOG_KINDS(KIND)                                                                                                          \
  KIND(1, interrupt, record, "an interrupt of the queue's vector; written before its frames are processed, empty ones included")      \
  KIND(2, poll, record, "a check of the ring, without an interrupt, that found work")                                                 \
  KIND(3, policy, record, "a change of policy: closes the interval under the old policy; a Settings entry follows")                   \
  KIND(4, start, record, "the first record of a run, with all counters; an Anchor follows, then a Settings entry with `changed` 255") \
  KIND(5, stop, record, "the last record of a run, with all counters; an Anchor follows")                                             \
  KIND(16, sample, sample, "follows a Record whose `flags` have any of bits 0 to 6")                                                  \
  KIND(17, residency, residency, "follows a Record whose `flags` have any of bits 7 to 12")                                           \
  KIND(18, settings, settings, "the policy from here on; follows a `policy` Record, and the first Anchor")                            \
  KIND(19, anchor, anchor, "follows the samples of `start` and of `stop`: wall clock, requests and sleeps so far")                    \
  KIND(20, configured, settings, "one setting and its value; follows the Settings entry of the start, and of a preset")               \
  KIND(21, events, events, "follows a Record whose `flags` have any of bits 13 to 15")                                                \
  KIND(32, idle, idle, "one sleep, if `log_idle=on`; a record of its own")                                                            \
  KIND(33, mark, mark, "a phase of the load begins, as its client reports; a record of its own, on core 0 only")                      \
  KIND(34, collection, collection, "a garbage collection of the application on this core; a record of its own")                       \
  KIND(35, transactions, transactions, "transactions of one type that this core ran since the last such entry; a record of its own")

// FIELD(bits, name, "unit" or ":names of its values from 0 on", meaning), RESERVED(name, bytes)
#define NEAP_LOG_RECORD(FIELD, RESERVED)                                                           \
  FIELD(64, tsc, "ticks", "when it was written")                                                   \
  FIELD(8, kind, "", "see the kinds")                                                              \
  FIELD(8, idle_state, "", "`IdleState` that the core asked for in this interval")                 \
  FIELD(16, flags, "", "counters sampled, a bit each (namespace `counter`); their entries follow") \
  FIELD(32, generation, "", "the last policy change that this core applied before the interval")   \
  FIELD(32, rx_descriptors, "", "")                                                                \
  FIELD(32, rx_frames, "", "")                                                                     \
  FIELD(32, rx_bytes, "B", "without FCS")                                                          \
  FIELD(32, tx_descriptors, "", "ring descriptors used, context descriptors included")             \
  FIELD(32, tx_frames, "", "")                                                                     \
  FIELD(32, tx_bytes, "B", "without FCS and without padding")                                      \
  FIELD(16, control_rx_frames, "", "part of rx_frames: control connections and log streams")       \
  FIELD(16, control_tx_frames, "", "those of tx_frames that are control's")                        \
  FIELD(32, control_rx_bytes, "B", "those of rx_bytes that are control's")                         \
  FIELD(32, control_tx_bytes, "B", "those of tx_bytes that are control's")                         \
  FIELD(32, idle_entries, "", "sleeps; in `poll`: checks of the ring that found nothing")          \
  FIELD(64, idle_ticks, "ticks", "time asleep; while polling: time in checks without work")

#define NEAP_LOG_SAMPLE(FIELD, RESERVED)                         \
  FIELD(64, tsc, "ticks", "of its Record")                       \
  FIELD(8, kind, "", "16")                                       \
  FIELD(8, reserved, "", "0")                                    \
  FIELD(16, flags, "", "of its Record")                          \
  FIELD(32, package_energy, "energy_unit", "wraps")              \
  FIELD(64, instructions, "", "retired")                         \
  FIELD(64, cycles, "", "unhalted, at the core's frequency")     \
  FIELD(64, reference_cycles, "", "unhalted, at the TSC's rate") \
  FIELD(64, llc_misses, "", "of the last-level cache")           \
  FIELD(32, dram_energy, "dram_energy_unit", "wraps")            \
  FIELD(32, reserved2, "", "0")                                  \
  FIELD(64, core_c3, "ticks", "residency")

#define NEAP_LOG_RESIDENCY(FIELD, RESERVED)   \
  FIELD(64, tsc, "ticks", "of its Record")    \
  FIELD(8, kind, "", "17")                    \
  FIELD(8, reserved, "", "0")                 \
  FIELD(16, flags, "", "of its Record")       \
  FIELD(32, reserved2, "", "0")               \
  FIELD(64, core_c6, "ticks", "residency")    \
  FIELD(64, core_c7, "ticks", "residency")    \
  FIELD(64, package_c2, "ticks", "residency") \
  FIELD(64, package_c3, "ticks", "residency") \
  FIELD(64, package_c6, "ticks", "residency") \
  FIELD(64, package_c7, "ticks", "residency")

#define NEAP_LOG_EVENTS(FIELD, RESERVED)                                            \
  FIELD(64, tsc, "ticks", "of its Record")                                          \
  FIELD(8, kind, "", "21")                                                          \
  FIELD(8, reserved, "", "0")                                                       \
  FIELD(16, flags, "", "of its Record")                                             \
  FIELD(32, reserved2, "", "0")                                                     \
  FIELD(64, event1, "", "count of the first chosen event (`events` in the header)") \
  FIELD(64, event2, "", "of the second one")                                        \
  FIELD(64, event3, "", "of the third one")                                         \
  RESERVED(reserved3, 24)

#define NEAP_LOG_SETTINGS(FIELD, RESERVED)                                                                                 \
  FIELD(64, tsc, "ticks", "the policy applies from this time on")                                                          \
  FIELD(8, kind, "", "18")                                                                                                 \
  FIELD(8, idle_state, "", "`IdleState`")                                                                                  \
  FIELD(8, changed, "", "number of the setting that this change set; 255: none, the run begins with this policy")          \
  FIELD(8, turbo, ":off|on|unknown", "unknown also where it cannot be set")                                                \
  FIELD(32, generation, "", "number of this policy change")                                                                \
  FIELD(32, itr_us, "us", "as the card rounds it")                                                                         \
  FIELD(32, poll_budget_us, "us", "")                                                                                      \
  FIELD(64, performance, "", "raw p-state request last written; 0: none")                                                  \
  FIELD(32, power_limit_mw, "mW", "0: the firmware's")                                                                     \
  FIELD(32, card_value, "",                                                                                                \
        "value of a setting without a field of its own; `pstate`: 0, and 2 ms later, in another entry, the granted ratio") \
  RESERVED(reserved, 24)

#define NEAP_LOG_ANCHOR(FIELD, RESERVED)                                          \
  FIELD(64, tsc, "ticks", "of its Record")                                        \
  FIELD(8, kind, "", "19")                                                        \
  RESERVED(reserved, 3)                                                           \
  FIELD(32, generation, "", "")                                                   \
  FIELD(64, wall_clock_ns, "ns", "since 1970-01-01T00:00Z")                       \
  FIELD(64, requests, "", "that the application counted on this core since boot") \
  FIELD(32, package, "", "of this core")                                          \
  FIELD(32, run, "", "number of this run since boot, from 1")                     \
  FIELD(64, sleeps, "", "of this core since boot")                                \
  FIELD(64, idle_ticks, "ticks", "of this core since boot")                       \
  FIELD(64, reserved2, "", "0")

#define NEAP_LOG_IDLE(FIELD, RESERVED)                                                 \
  FIELD(64, tsc, "ticks", "end of the sleep")                                          \
  FIELD(8, kind, "", "32")                                                             \
  FIELD(8, idle_state, "", "`IdleState` that the core asked for")                      \
  FIELD(8, cause, ":not_asleep|interrupt|memory|timer|wake_up|unknown", "`WakeCause`") \
  FIELD(8, vector, "", "of the first interrupt taken, if the cause is one")            \
  FIELD(32, generation, "", "")                                                        \
  FIELD(64, tsc_asleep, "ticks", "begin of the sleep")                                 \
  FIELD(8, c_state, ":unknown|halt|c1|c1e|c3|c6|c7", "requested of the CPU")           \
  RESERVED(reserved, 39)

#define NEAP_LOG_MARK(FIELD, RESERVED)                                                                  \
  FIELD(64, tsc, "ticks", "when it was written")                                                        \
  FIELD(8, kind, "", "33")                                                                              \
  FIELD(8, what, ":preload|warm_up|window|drain|end", "the phase that begins; `end`: the load is over") \
  RESERVED(reserved, 2)                                                                                 \
  FIELD(32, generation, "", "")                                                                         \
  RESERVED(reserved2, 48)

#define NEAP_LOG_COLLECTION(FIELD, RESERVED)                        \
  FIELD(64, tsc, "ticks", "end of the collection")                  \
  FIELD(8, kind, "", "34")                                          \
  RESERVED(reserved, 3)                                             \
  FIELD(32, generation, "", "")                                     \
  FIELD(64, tsc_begin, "ticks", "its begin")                        \
  FIELD(64, bytes_before, "B", "used by the application's objects") \
  FIELD(64, bytes_after, "B", "the same, at the end")               \
  RESERVED(reserved2, 24)

#define NEAP_LOG_TRANSACTIONS(FIELD, RESERVED)                                                  \
  FIELD(64, tsc, "ticks", "end of the interval")                                                \
  FIELD(8, kind, "", "35")                                                                      \
  FIELD(8, type, ":new_order|payment|order_status|delivery|stock_level", "of the transactions") \
  RESERVED(reserved, 2)                                                                         \
  FIELD(32, generation, "", "")                                                                 \
  FIELD(64, tsc_begin, "ticks", "begin of the interval")                                        \
  FIELD(32, committed, "", "")                                                                  \
  FIELD(32, rolled_back, "", "ended as their input demands; a normal answer")                   \
  FIELD(32, failed, "", "nothing was applied: too many conflicts, or no memory")                \
  FIELD(32, retries, "", "attempts that followed a conflict")                                   \
  FIELD(64, ticks, "ticks", "sum of the transactions' times, all attempts included")            \
  FIELD(64, ticks_max, "ticks", "the longest one")                                              \
  RESERVED(reserved2, 8)

enum class Kind : std::uint8_t {
  none = 0,
#define NEAP_LOG_KIND(number, name, form, meaning) name = number,
  NEAP_LOG_KINDS(NEAP_LOG_KIND)
#undef NEAP_LOG_KIND
};

#define NEAP_LOG_FIELD(bits, name, unit, meaning) std::uint##bits##_t name;
#define NEAP_LOG_RESERVED(name, bytes) std::uint8_t name[bytes];
/// The first entry of a record: counts since the core's previous record. A count that exceeds its field is continued in the next record.
struct Record {
  NEAP_LOG_RECORD(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// Counters, raw and cumulative. `Record::flags` tells which of them were sampled; the others are 0.
struct Sample {
  NEAP_LOG_SAMPLE(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// Residencies, raw and cumulative. `Record::flags` tells which were sampled, as for `Sample`.
struct Residency {
  NEAP_LOG_RESIDENCY(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// Counts of the chosen events, raw and cumulative. `Record::flags` tells which were sampled, as for `Sample`.
struct Events {
  NEAP_LOG_EVENTS(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// The settings that apply from this entry on.
struct Settings {
  NEAP_LOG_SETTINGS(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// The wall clock, and the totals of requests and sleeps, at the beginning or the end of a run.
struct Anchor {
  NEAP_LOG_ANCHOR(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
struct Idle {
  NEAP_LOG_IDLE(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// The beginning of a phase of the load.
struct Mark {
  NEAP_LOG_MARK(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// A garbage collection, which the application reports.
struct Collection {
  NEAP_LOG_COLLECTION(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
/// Transactions of one type in an interval, which the application reports.
struct Transactions {
  NEAP_LOG_TRANSACTIONS(NEAP_LOG_FIELD, NEAP_LOG_RESERVED)
};
#undef NEAP_LOG_FIELD
#undef NEAP_LOG_RESERVED

/// The value of `Settings::changed` in a run's first Settings entry, which records no change.
constexpr std::uint8_t nothing_changed = 255;

/// The layout of one form of entries as text of a log's header. Each field is "name:type:unit:choices"; a space separates two fields.
struct Form {
  std::string_view name;
  std::string_view fields;
  std::uint32_t fields_bytes;  ///< sum of the fields; it MUST equal the struct's size, so that there is no padding
};
#define NEAP_LOG_TEXT(bits, name, unit, meaning) " " #name ":u" #bits ":" unit
#define NEAP_LOG_RESERVED_TEXT(name, bytes) " " #name ":u8x" #bytes ":"
#define NEAP_LOG_BYTES(bits, name, unit, meaning) +bits / 8
#define NEAP_LOG_RESERVED_BYTES(name, bytes) +bytes
#define NEAP_LOG_FORM(name, rows) \
  {name, std::string_view(rows(NEAP_LOG_TEXT, NEAP_LOG_RESERVED_TEXT)).substr(1), 0 rows(NEAP_LOG_BYTES, NEAP_LOG_RESERVED_BYTES)}
constexpr Form forms[] = {
    NEAP_LOG_FORM("record", NEAP_LOG_RECORD),         NEAP_LOG_FORM("sample", NEAP_LOG_SAMPLE),
    NEAP_LOG_FORM("residency", NEAP_LOG_RESIDENCY),   NEAP_LOG_FORM("settings", NEAP_LOG_SETTINGS),
    NEAP_LOG_FORM("anchor", NEAP_LOG_ANCHOR),         NEAP_LOG_FORM("idle", NEAP_LOG_IDLE),
    NEAP_LOG_FORM("events", NEAP_LOG_EVENTS),         NEAP_LOG_FORM("mark", NEAP_LOG_MARK),
    NEAP_LOG_FORM("collection", NEAP_LOG_COLLECTION), NEAP_LOG_FORM("transactions", NEAP_LOG_TRANSACTIONS),
};
#undef NEAP_LOG_FORM
#undef NEAP_LOG_TEXT
#undef NEAP_LOG_RESERVED_TEXT
#undef NEAP_LOG_BYTES
#undef NEAP_LOG_RESERVED_BYTES

/// A kind of entry and the name of its form.
struct NamedKind {
  Kind kind;
  std::string_view form;
};
constexpr NamedKind kinds[] = {
#define NEAP_LOG_KIND(number, name, form, meaning) {Kind::name, #form},
    NEAP_LOG_KINDS(NEAP_LOG_KIND)
#undef NEAP_LOG_KIND
};

static_assert(sizeof(Record) == entry_bytes && sizeof(Sample) == entry_bytes && sizeof(Residency) == entry_bytes);
static_assert(sizeof(Settings) == entry_bytes && sizeof(Anchor) == entry_bytes && sizeof(Idle) == entry_bytes &&
              sizeof(Events) == entry_bytes);
static_assert(sizeof(Mark) == entry_bytes && sizeof(Collection) == entry_bytes && sizeof(Transactions) == entry_bytes);
static_assert([] {
  for (const Form& form : forms) {
    if (form.fields_bytes != entry_bytes) return false;
  }
  return true;
}());

}  // namespace neap::log
