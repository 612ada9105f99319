// SPDX-License-Identifier: BSL-1.0
// The log: what every core writes down of itself.
//
// To see what an interrupt costs, the record of it must cost almost nothing: it is put together in registers, written past the cache by
// non-temporal stores into memory that the core alone writes, and nobody else is told. Whoever reads it (observe/) does so from another
// core, and from outside only when the run is over, unless told otherwise.
//
// A log belongs to a core and holds one run: `start` empties it and writes an anchor, `stop` writes another. What found no room is counted:
// with `full=stop` the newest are not written, with `full=overwrite` the oldest are. Positions count all lines of the run from 0 and never
// go back, so a reader knows what it missed.
#pragma once

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
  std::uint64_t records_per_core = 64 * 1024;  ///< lines of 64 bytes; rounded up to a power of two, 64 at least; 0: no log
  WhenFull when_full = WhenFull::stop;
  std::uint32_t sample_period_us = 1000;  ///< counters at most this often; 0: in anchors alone
  bool idle_records = false;              ///< one line for each sleep as well
};

/// Takes the memory, each core's on its own node. Once, on core 0, before the first `start`. Errors: `out_of_memory`, `invalid` (more
/// than `records_per_core_max`, or called twice).
[[nodiscard]] task<Result<void>> prepare(Options options);
/// As `prepare` understood them.
[[nodiscard]] const Options& options() noexcept;
constexpr std::uint64_t records_per_core_max = std::uint64_t{1} << 28;  // 16 GiB
/// Tests only: no core may run any more.
void release() noexcept;

// --- Written by each core ----------------------------------------------------------------------------------------------------------------

/// What passed through this core's queues since the card was opened; kept by the driver. A segmented frame counts as its segments; bytes
/// are without FCS and without padding of short frames: so they are what the card counts for the queue.
struct Traffic {
  Counter rx_descriptors, rx_frames, rx_bytes;
  Counter tx_descriptors, tx_frames, tx_bytes;
};
struct TrafficTotals {
  std::uint64_t rx_descriptors = 0, rx_frames = 0, rx_bytes = 0;
  std::uint64_t tx_descriptors = 0, tx_frames = 0, tx_bytes = 0;
};
/// Of these, what belongs to control connections and log streams; the network (net/) tells.
struct ControlTraffic {
  std::uint64_t rx_frames = 0, rx_bytes = 0, tx_frames = 0, tx_bytes = 0;
};

/// On its core: records count from here. Null: no more. The counters outlive it.
void watch(const Traffic* traffic) noexcept;
/// What that core's watched counters say now; any core. Zeros if it has none.
[[nodiscard]] TrafficTotals traffic(unsigned core) noexcept;
/// On its core: so much of it passed since the last call. Only a run counts it: `start` begins at zero.
void count_control(const ControlTraffic& passed) noexcept;

/// The event of this core's queue vector begins. Under 60 instructions when nothing is sampled; a test of one byte when no run is on.
void interrupt() noexcept;
/// A look at the ring without an interrupt found work.
void poll() noexcept;
/// Right before a sleep, or a look that found nothing (event loop): what was written becomes readable, requests count towards the bound.
/// A test of one byte when no run is on.
void before_sleep() noexcept;
/// A sleep of this core is over (event loop).
void slept(IdleState asked, std::uint64_t asleep_tsc, std::uint64_t awake_tsc, Sleep how) noexcept;
/// This core's policy changed (policy.cpp): closes the interval, then notes `settings` (its tsc and kind are filled in here).
void policy_changed(Settings settings) noexcept;
/// The application answered so many requests on this core.
void count_requests(std::uint64_t requests) noexcept;
[[nodiscard]] std::uint64_t requests(unsigned core) noexcept;

// --- Runs --------------------------------------------------------------------------------------------------------------------------------

/// When a run ends by itself. Zero: not by that.
struct Bounds {
  std::chrono::nanoseconds time{0};
  std::uint64_t requests = 0;  ///< of all cores together, exceeded by at most 64 a core
};
/// Empties all cores' logs and starts a run on every core; returns its number. What was read between two looks at `state` that say the
/// same run is that run's. Errors: `closed` (a run is on, begins or ends), `not_found` (no memory was prepared), `invalid` (a time below
/// zero).
[[nodiscard]] task<Result<std::uint32_t>> start(Bounds bounds);
/// Ends the run: every core writes its last anchor. Errors: `closed` (no run is on).
[[nodiscard]] task<Result<void>> stop();
/// Forgets the last run. Errors: `closed` (a run is on).
[[nodiscard]] task<Result<void>> clear();

struct State {
  bool running = false;   ///< until every core has written its last anchor
  std::uint32_t run = 0;  ///< that all cores' logs are of; 0: none since boot or `clear`, or one begins just now
};
[[nodiscard]] State state() noexcept;
/// `news` is called on the core that asked, in an event, after each start, stop and clear, also by a bound (once for several that came
/// meanwhile); returns an id for `forget_news`, which is called on the same core, also by `news` itself. Throws `bad_alloc`.
unsigned on_news(std::function<void()> news);
void forget_news(unsigned id) noexcept;

// --- Read from any core ------------------------------------------------------------------------------------------------------------------

struct Extent {
  std::uint64_t first = 0;      ///< position of the oldest line that is still there
  std::uint64_t end = 0;        ///< one past the newest that may be read
  std::uint64_t unwritten = 0;  ///< lines that found the log full (`full=stop`)
};
[[nodiscard]] Extent extent(unsigned core) noexcept;
/// Copies lines from `position` on; returns how many were there and whole when the copy was done. 0 if they were overwritten meanwhile or
/// are not there yet: look at `extent` again. A run that starts meanwhile begins at position 0 again: look at `state` after it.
std::size_t read(unsigned core, std::uint64_t position, std::span<Record> out) noexcept;

}  // namespace neap::log
