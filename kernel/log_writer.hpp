// SPDX-License-Identifier: BSL-1.0
// One core's side of the log: what has passed since its last record, and how that becomes lines.
//
// The usual record takes the short way: one look at the clock, six counters less what they were, and the fields that were put in their
// places as things happened (`Rest`). Everything rare (a sample is due, a count has outgrown its field, the chunk is full) takes the long
// one. So that the short way need not ask for each of these, most of them make `look_again_tsc_` zero: the next record is then late for a
// look, whatever the clock says.
// Kernel-internal.
#pragma once

#include <cstdint>

#include "kernel/log.hpp"
#include "kernel/log_ring.hpp"

namespace neap::log {

/// What a run asks of every core.
struct RunPlan {
  std::uint32_t run = 0;
  bool overwrite = false;
  bool idle_records = false;
  bool count_requests = false;
  std::uint64_t sample_period_ticks = 0;  ///< 0: in anchors alone
  std::uint64_t requests_at_once = 64;    ///< counted here before they are added to the run's
  std::uint64_t requests_bound = 0;       ///< of all cores; 0: none
};

class Writer {
 public:
  constexpr Writer() = default;

  /// Null: this core has none (any more).
  void use(Ring* ring) noexcept { ring_ = ring; }
  [[nodiscard]] Ring* ring() const noexcept { return ring_; }
  [[nodiscard]] bool on() const noexcept { return on_; }

  void watch(const Traffic* traffic) noexcept;
  void count_control(const ControlTraffic& passed) noexcept;

  void record(Kind kind) noexcept;
  void slept(IdleState asked, std::uint64_t asleep_tsc, std::uint64_t awake_tsc, Sleep how) noexcept;
  void policy_changed(Settings settings) noexcept;
  void publish() noexcept;
  /// Requests of this core that its run has not been told of.
  [[nodiscard]] std::uint64_t take_requests() noexcept;
  /// Adds; true if it is time for `take_requests`.
  [[nodiscard]] bool add_requests(std::uint64_t requests) noexcept {
    if (!count_requests_) return false;
    uncounted_requests_ += requests;
    return uncounted_requests_ >= requests_at_once_;
  }

  void begin(const RunPlan& plan) noexcept;
  void end(const RunPlan& plan) noexcept;

 private:
  /// At the end of a run: record, sample, residency, anchor. Room for them is kept back when full=stop.
  static constexpr std::uint64_t stop_lines = 4;

  [[gnu::noinline]] bool record_fully(Kind kind, std::uint64_t tsc, bool with_counters, unsigned more_lines) noexcept;
  [[gnu::noinline]] void record_in_next_chunk(Kind kind) noexcept;
  void put_sample(const CounterSample& sample, std::uint64_t tsc) noexcept;
  void put_residency(const CounterSample& sample, std::uint64_t tsc) noexcept;
  void put_anchor(const RunPlan& plan, std::uint64_t tsc) noexcept;
  void put(const LineInRegisters& line) noexcept;
  template <class Struct>
  void put(const Struct& line) noexcept;
  [[gnu::noinline]] bool next_chunk() noexcept;
  [[nodiscard]] std::uint64_t position() const noexcept { return limit_position_ - static_cast<std::uint64_t>(limit_ - next_); }
  [[nodiscard]] bool counters_due(std::uint64_t tsc) const noexcept { return tsc >= next_sample_tsc_; }
  void set_head() noexcept { head_ = std::uint64_t{idle_state_} << 8 | std::uint64_t{generation_} << 32; }

  static constexpr Traffic nothing{};

  /// A record's last 32 bytes: what is not counters of others is kept as it will be written.
  struct alignas(16) Rest {
    std::uint32_t tx_frames = 0, tx_bytes = 0;  // always zero here: the counters say
    std::uint16_t control_rx_frames = 0, control_tx_frames = 0;
    std::uint32_t control_rx_bytes = 0, control_tx_bytes = 0;
    std::uint32_t idle_entries = 0;
    std::uint64_t idle_ticks = 0;
  };
  /// Moves what did not fit into `rest_`, as far as it does now.
  void fill_rest() noexcept;

  // What the short way touches, in the order of its use.
  bool on_ = false;
  bool idle_records_ = false;
  bool count_requests_ = false;
  std::uint8_t idle_state_ = 0;
  std::uint32_t generation_ = 0;
  std::uint64_t look_again_tsc_ = 0;
  Line* next_ = nullptr;  // both within one chunk; equal: it is full
  Line* limit_ = nullptr;
  const Traffic* traffic_ = &nothing;
  std::uint64_t head_ = 0;                  // the second word of a record, without its kind
  alignas(16) std::uint64_t seen_[6] = {};  // the traffic counters as far as they are in records
  Rest rest_;

  Ring* ring_ = nullptr;
  std::uint64_t limit_position_ = 0;
  std::uint64_t room_end_ = 0;  // ordinary lines end here
  std::uint64_t next_sample_tsc_ = 0;
  std::uint64_t sample_period_ticks_ = 0;
  // What found the fields of `rest_` full.
  std::uint64_t more_idle_entries_ = 0;
  ControlTraffic more_control_;
  std::uint64_t uncounted_requests_ = 0;
  std::uint64_t requests_at_once_ = 0;
  std::uint64_t sleeps_ = 0;  // since boot
  std::uint64_t idle_ticks_ = 0;
  bool has_settings_ = false;
  Settings settings_{};
};

/// This core's.
extern constinit thread_local Writer writer;

}  // namespace neap::log
