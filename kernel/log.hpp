// SPDX-License-Identifier: BSL-1.0
// The log: each core's records of its own events.
//
// Users measure the cost of interrupts with the log, so recording an interrupt must cost almost nothing. A record is assembled in registers
// and written by non-temporal stores into memory that only its core writes. No other core is notified. Readers (observe/) copy the entries
// on another core. Clients read the copies after the run, unless they ask for a live stream.
//
// A log belongs to a core and holds one run: `start` empties it and writes an anchor (wall clock and totals), `stop` writes another anchor.
// When the log is full, the option `log_full=stop` counts new entries without writing them, and `log_full=overwrite` replaces the oldest
// entries. Positions count all entries of the run from 0 and never go back, so a reader can tell which entries it missed.
//
// A log record holds the data of one event. It consists of one or more log entries of 64 bytes (kernel/log_record.hpp).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernel/counter.hpp"
#include "kernel/error.hpp"
#include "kernel/log_record.hpp"
#include "kernel/power.hpp"
#include "kernel/task.hpp"

namespace neap::log {

enum class WhenFull : std::uint8_t { stop, overwrite };

struct Options {
  std::uint64_t entries_per_core = 64 * 1024;  ///< rounded up to a power of two, at least 64; 0: no log
  WhenFull when_full = WhenFull::stop;
  std::uint32_t sample_period_us = 1000;  ///< minimum time between two samples of the counters; 0: only at the beginning and end of a run
  bool idle_records = false;              ///< true: each sleep gets a record of its own
  /// If not 0, the counters are sampled at every such number of a core's records of interrupts and polls, not by time.
  std::uint32_t sample_records = 0;
  std::array<std::uint32_t, chosen_events_max> events{};  ///< the chosen events (`machine::find_event`)
  unsigned events_count = 0;
};

/// Sets the options of all logs. MUST be called on core 0, once, before the first `start`, which allocates the memory of the logs: a
/// machine that never records does not need it. Errors: `out_of_memory` (less is free now), `invalid` (more than `entries_per_core_max`, or
/// called twice).
[[nodiscard]] task<Result<void>> prepare(Options options);
/// The options that are in force, rounded by `prepare`.
[[nodiscard]] const Options& options() noexcept;
constexpr std::uint64_t entries_per_core_max = std::uint64_t{1} << 28;  // 16 GiB
/// For tests. MUST NOT be called while a core runs.
void release() noexcept;

// --- Functions for the calling core ------------------------------------------------------------------------------------------------------
/// Traffic of this core's queues since the card was opened; counted by the driver. A segmented frame counts as its segments. Bytes are
/// without FCS and without the padding of short frames, as the card counts them for the queue.
struct Traffic {
  Counter rx_descriptors, rx_frames, rx_bytes;
  Counter tx_descriptors, tx_frames, tx_bytes;
};
struct TrafficTotals {
  std::uint64_t rx_descriptors = 0, rx_frames = 0, rx_bytes = 0;
  std::uint64_t tx_descriptors = 0, tx_frames = 0, tx_bytes = 0;
};
/// The part of `Traffic` that belongs to control connections and log streams; counted by net/.
struct ControlTraffic {
  std::uint64_t rx_frames = 0, rx_bytes = 0, tx_frames = 0, tx_bytes = 0;
};

/// Records of this core count `traffic` from now on; null: nothing. The counters MUST stay valid until the next call.
void watch(const Traffic* traffic) noexcept;
/// The present values of the counters that `core` watches; zeros if it watches none. Any core may call it.
[[nodiscard]] TrafficTotals traffic(unsigned core) noexcept;
/// Adds control traffic that passed on this core since the last call. Traffic is counted only during a run; `start` resets the counts.
void count_control(const ControlTraffic& passed) noexcept;

/// Called at the beginning of an event of this core's queue vector: writes a record. Takes fewer than 60 instructions if no counters are
/// sampled. Outside a run it only tests one byte.
void interrupt() noexcept;
/// Called after a check of the ring that found work without an interrupt: writes a record.
void poll() noexcept;
/// Makes all written entries readable and adds this core's number of requests to the run's sum. The event loop MUST call it whenever it has
/// found no work, before it polls or sleeps. Outside a run it only tests one byte.
void before_sleep() noexcept;
/// Counts a sleep of this core that has ended. `asked`: the idle policy. `state`: the C-state that was requested of the CPU, `halt` or `c1`
/// to `c7`, because `monitor` and `menu` sleep in any of them. Called by the event loop.
void slept(IdleState asked, IdleState state, std::uint64_t asleep_tsc, std::uint64_t awake_tsc, Sleep how) noexcept;
/// Called after a policy change on this core: writes a record that ends the present interval, then `settings` with tsc and kind set.
void policy_changed(Settings settings) noexcept;
/// The phases of a load. `Mark` entries contain these numbers.
enum class LoadPhase : std::uint8_t { preload = 0, warm_up = 1, window = 2, drain = 3, end = 4 };
constexpr std::array<const char*, 5> load_phase_names{"preload", "warm_up", "window", "drain", "end"};
enum class Marked : std::uint8_t { written, no_run, no_room };
/// Writes an entry that says that `phase` of the load begins now. MUST be called on core 0, so that a run has one sequence of marks.
[[nodiscard]] Marked mark(LoadPhase phase) noexcept;
/// Writes an entry about a garbage collection of the application on this core, which began at `begin_tsc` and ends now. Outside a run it
/// only tests one byte.
void collected(std::uint64_t begin_tsc, std::uint64_t bytes_before, std::uint64_t bytes_after) noexcept;
/// Types of an application's transactions are numbers below this one.
constexpr unsigned transaction_types_max = 8;
struct TransactionEnd {
  bool committed = false, rolled_back = false, failed = false;  ///< one of them
  std::uint32_t retries = 0;                                    ///< attempts after the first one
  std::uint64_t begin_tsc = 0;
};
/// Counts a transaction of `type` that ends now. An entry for the type is written at most once in each `transactions_period`, and at the
/// end of the run. Outside a run it only tests one byte.
void count_transaction(unsigned type, const TransactionEnd& end) noexcept;
constexpr std::chrono::milliseconds transactions_period{10};
/// Counts requests that the application answered on this core.
void count_requests(std::uint64_t requests) noexcept;
[[nodiscard]] std::uint64_t requests(unsigned core) noexcept;

/// A core's counters at one end of its run.
struct RunEnd {
  std::uint64_t tsc = 0;
  CounterSample counters;
  TrafficTotals traffic;
};
struct RunEnds {
  RunEnd start, stop;  ///< while the run is on, `stop` has the present values
  bool on = false;
};
/// The ends of this core's last run; all zero before its first run. The counters are the ones that the log's first and last record have.
[[nodiscard]] RunEnds run_ends() noexcept;

// --- Runs --------------------------------------------------------------------------------------------------------------------------------
/// Bounds at which a run ends by itself. Zero: no such bound.
struct Bounds {
  std::chrono::nanoseconds time{0};
  std::uint64_t requests = 0;  ///< bound on the requests of all cores together; a run may exceed it by up to 64 for each core
};
/// Empties all cores' logs and starts a run on every core; returns its number. Entries belong to a run if `state` names that run both
/// before and after they were read. The first run allocates the memory of the logs, each on the NUMA node of its core. Errors: `closed` (a
/// run is on, begins or ends), `not_found` (logs are off), `out_of_memory`, `invalid` (a time below zero).
[[nodiscard]] task<Result<std::uint32_t>> start(Bounds bounds);
/// Ends the run. The task ends when every core has written its last entries. Errors: `closed` (no run is on).
[[nodiscard]] task<Result<void>> stop();
/// Empties all logs. Errors: `closed` (a run is on).
[[nodiscard]] task<Result<void>> clear();

struct State {
  bool running = false;   ///< true from `start` until every core has written its last entries
  std::uint32_t run = 0;  ///< number of the run in the logs; 0: no run since boot or `clear`, or a run is just beginning
};
[[nodiscard]] State state() noexcept;

/// A setting (its number in the log) and its value.
struct ConfiguredSetting {
  std::uint8_t setting = 0;
  std::uint32_t value = 0;
};
constexpr std::size_t configured_settings_max = 64;
/// Fills `out` with the settings that the calling core has now; returns their number. MUST NOT wait or allocate.
using ConfigurationSource = std::size_t (*)(std::span<ConfiguredSetting, configured_settings_max> out) noexcept;
/// From the next run on, each core records at its start the settings that `source` reports there; null: none.
void describe_configuration_by(ConfigurationSource source) noexcept;
/// Records this core's settings again. MUST be called after a `policy_changed` whose change set more settings than it names.
void record_configuration() noexcept;

/// `on_change` is called on this core, in an event of its own, after each start, stop and clear, and after a bound has ended a run. Several
/// changes before the call cause one call. Returns an id. Throws `bad_alloc`.
unsigned add_run_observer(std::function<void()> on_change);
/// After this call, no call of `on_change` begins. MUST be called on the core that added the observer; `on_change` itself MAY call it.
void remove_run_observer(unsigned id) noexcept;

// --- Functions for readers on any core ---------------------------------------------------------------------------------------------------
struct Extent {
  std::uint64_t first = 0;      ///< position of the oldest entry that is not overwritten
  std::uint64_t end = 0;        ///< one past the position of the newest entry that may be read
  std::uint64_t unwritten = 0;  ///< number of entries that did not fit (`log_full=stop`)
};
[[nodiscard]] Extent extent(unsigned core) noexcept;
/// Copies entries from `position` on; returns how many were copied whole. If the result is 0, the entries were overwritten meanwhile or are
/// not written yet, and the caller MUST read `extent` again. A run that starts meanwhile begins at position 0 again, so the caller MUST
/// check `state` afterwards.
std::size_t read(unsigned core, std::uint64_t position, std::span<Record> out) noexcept;

}  // namespace neap::log
