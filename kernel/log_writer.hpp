// SPDX-License-Identifier: BSL-1.0
// One core's writer of log entries: it adds up counts since the core's last record and turns them into entries.
//
// A usual record takes the fast path. It reads the TSC once, subtracts the recorded values from six traffic counters, and copies
// `pending_`, which has the layout of a record's second half. Rare cases take the slow path, for example if a sample is due, a count
// exceeds its field or the chunk is full. In most of these cases `slow_path_tsc_` is zero, so a single comparison detects them.
//
// The fast path takes 54 instructions, and two more since it counts records for `log_sample=N`. On the slow path the same record takes 251
// instructions (medians of `neap bench observe`, row observe.record). Kernel-internal.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/log.hpp"
#include "kernel/log_ring.hpp"

namespace neap::log {

/// The settings of a run, which every core needs.
struct RunPlan {
  std::uint32_t run = 0;
  bool overwrite = false, idle_records = false, count_requests = false;
  std::uint64_t sample_period_ticks = 0;  ///< 0: counters are not sampled by time, except at the beginning and end of the run
  std::uint64_t sample_records = 0;       ///< counters are sampled at every such number of records; 0: never
  std::uint64_t requests_at_once = 64;    ///< requests that a core counts before it adds them to the run's sum
  std::uint64_t requests_bound = 0;       ///< bound on the requests of all cores together; 0: no bound
  ConfigurationSource configuration = nullptr;
};

class Writer {
 public:
  constexpr Writer() = default;

  /// `ring` is null if this core has no ring.
  void use(Ring* ring) noexcept { ring_ = ring; }
  [[nodiscard]] Ring* ring() const noexcept { return ring_; }
  [[nodiscard]] bool on() const noexcept { return on_; }

  void watch(const Traffic* traffic) noexcept;
  void count_control(const ControlTraffic& passed) noexcept;

  void record(Kind kind) noexcept;
  void slept(IdleState asked, IdleState state, std::uint64_t asleep_tsc, std::uint64_t awake_tsc, Sleep how) noexcept;
  void policy_changed(Settings settings) noexcept;
  void record_configuration() noexcept;
  [[nodiscard]] Marked mark(LoadPhase phase) noexcept;
  void collected(std::uint64_t begin_tsc, std::uint64_t bytes_before, std::uint64_t bytes_after) noexcept;
  void count_transaction(unsigned type, const TransactionEnd& end) noexcept {
    if (on_) add_transaction(type, end);
  }
  /// Makes all written entries readable. The entries of a chunk are claimed when the chunk begins, so only their end has changed.
  void publish() noexcept { ring_->publish_end(position()); }
  /// Returns the number of this core's requests that are not yet in the run's sum; the caller MUST add it.
  [[nodiscard]] std::uint64_t take_requests() noexcept;
  [[nodiscard]] bool has_requests() const noexcept { return uncounted_requests_ != 0; }
  /// Adds `requests`. Returns true if the caller MUST now add `take_requests` to the run's sum.
  [[nodiscard]] bool add_requests(std::uint64_t requests) noexcept {
    if (!count_requests_) return false;
    uncounted_requests_ += requests;
    return uncounted_requests_ >= requests_at_once_;
  }

  void begin(const RunPlan& plan) noexcept;
  void end(const RunPlan& plan) noexcept;
  [[nodiscard]] RunEnds run_ends() const noexcept;

 private:
  /// The number of entries at the end of a run: record, sample, residency, anchor, and events if there are chosen ones. With
  /// `log_full=stop`, room for them is reserved.
  static constexpr std::uint64_t stop_entries = 4;

  [[gnu::noinline]] bool record_on_slow_path(Kind kind, std::uint64_t tsc, bool with_counters, unsigned further_entries) noexcept;
  [[gnu::noinline]] void record_in_next_chunk(Kind kind) noexcept;
  void put_sample(const CounterSample& sample, std::uint64_t tsc) noexcept;
  void put_residency(const CounterSample& sample, std::uint64_t tsc) noexcept;
  void put_events(const CounterSample& sample, std::uint64_t tsc) noexcept;
  void put_anchor(const RunPlan& plan, std::uint64_t tsc) noexcept;
  void add_transaction(unsigned type, const TransactionEnd& end) noexcept;
  void reserve_transactions(unsigned type) noexcept;
  void put_transactions(Transactions& sums, std::uint64_t tsc) noexcept;
  void put_last_transactions(std::uint64_t tsc) noexcept;
  void put_configuration(Settings entry) noexcept;
  void put(const EntryInRegisters& entry) noexcept;
  template <class Struct>
  void put(const Struct& entry) noexcept;
  [[gnu::noinline]] bool next_chunk() noexcept;
  [[nodiscard]] std::uint64_t position() const noexcept {
    return (position_of_null_ + reinterpret_cast<std::uintptr_t>(next_)) / entry_bytes;
  }
  [[nodiscard]] bool counters_due(std::uint64_t tsc) const noexcept { return tsc >= next_sample_tsc_; }
  void update_head() noexcept { head_word_ = std::uint64_t{idle_state_} << 8 | std::uint64_t{generation_} << 32; }

  static constexpr Traffic nothing{};

  /// The second half of a record, in its final layout. It contains all counts except those of the driver.
  struct alignas(16) PendingCounts {
    std::uint32_t tx_frames = 0, tx_bytes = 0;  // always 0 here: the driver counts them
    std::uint16_t control_rx_frames = 0, control_tx_frames = 0;
    std::uint32_t control_rx_bytes = 0, control_tx_bytes = 0;
    std::uint32_t idle_entries = 0;
    std::uint64_t idle_ticks = 0;
  };
  /// Moves overflow counts into `pending_`, as far as its fields have room.
  void refill_pending() noexcept;

  // The members that the fast path uses, in the order of their use.
  bool on_ = false, idle_records_ = false, count_requests_ = false;
  std::uint8_t idle_state_ = 0;
  std::uint32_t generation_ = 0;
  std::uint64_t records_to_sample_ = ~std::uint64_t{0};  // records of interrupts and polls, up to the one at which counters are sampled
  std::uint64_t slow_path_tsc_ = 0;                      // a record at this TSC or later takes the slow path
  Entry* next_ = nullptr;                                // `next_` and `limit_` are in one chunk; if they are equal, the chunk is full
  Entry* limit_ = nullptr;
  const Traffic* traffic_ = &nothing;
  std::uint64_t head_word_ = 0;                 // the second word of a record, without its kind
  alignas(16) std::uint64_t recorded_[6] = {};  // values of the traffic counters that are already in records
  PendingCounts pending_;

  Ring* ring_ = nullptr;
  std::uint64_t limit_position_ = 0;
  std::uint64_t position_of_null_ = 0;  // the position of an entry at address 0, in bytes: it turns the address of an entry into a position
  std::uint64_t room_end_ = 0;          // entries other than those of a run's end are written only before this position
  std::uint64_t next_sample_tsc_ = 0, sample_period_ticks_ = 0, sample_records_ = 0;
  // Counts for which the fields of `pending_` have no room.
  std::uint64_t overflow_idle_entries_ = 0;
  ControlTraffic overflow_control_;
  std::uint64_t uncounted_requests_ = 0, requests_at_once_ = 0;
  std::uint64_t sleeps_ = 0;  // since boot
  std::uint64_t idle_ticks_ = 0;
  bool has_settings_ = false;
  Settings settings_{};
  ConfigurationSource configuration_ = nullptr;
  RunEnds ends_{};
  unsigned transactions_reserved_ = 0;  // `log_full=stop`: bit n: room for an entry of type n at the end of the run is reserved
  std::array<Transactions, transaction_types_max> transactions_{};  // sums since the last entry; without any, all counts are 0
  std::uint64_t transactions_period_ticks_ = 0;
};

extern constinit thread_local Writer writer;

}  // namespace neap::log
