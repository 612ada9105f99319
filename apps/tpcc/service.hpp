// SPDX-License-Identifier: BSL-1.0
// The parts of the server that sessions use: settings, each core's state, and the terminal that runs transactions.
//
// Sessions know nothing of the database. A `Terminal` (the specification's word for a user's screen) runs one transaction and returns the
// text of its answer. So the tests of sessions and the fuzzer use a terminal of their own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apps/tpcc/options.hpp"
#include "apps/tpcc/statistics.hpp"
#include "kernel/counter.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"

namespace neap::tpcc {

constexpr std::size_t answer_bytes_max = 1024;  ///< the longest text of a transaction's answer

struct Answer {
  TransactionType type = TransactionType::new_order;
  Ending ending = Ending::committed;
  unsigned attempts = 1;
  std::size_t bytes = 0;  ///< of the text
};

/// One core's source of transactions.
class Terminal {
 public:
  virtual ~Terminal() = default;
  /// Runs the next transaction of the mix, and writes its answer into `text`. With each ending, the transaction is applied as a whole or
  /// not at all. After `postponed`, the next call tries the same transaction again. It SHOULD follow in a later event, because the other
  /// core's transaction needs time. Any client of this core MAY be given the answer.
  virtual Answer run(std::span<char, answer_bytes_max> text) noexcept = 0;
};

class Service;

struct alignas(128) CoreState {
  static constexpr std::size_t output_bytes = 16 * 1024;

  Service* service = nullptr;
  unsigned index = 0;
  Statistics statistics;
  std::unique_ptr<Terminal> terminal;
  /// Replies of the event in progress. A session uses it only within a callback.
  std::unique_ptr<char[]> output{new char[output_bytes]};
  /// True during a check of consistency: no transaction runs.
  std::atomic<bool> paused = false;

  // The search for silent connections (idle.cpp).
  Timer idle_timer;
  std::uint32_t idle_position = 0;
  bool idle_open = false;
  std::chrono::milliseconds idle_longest{0};
};

/// The result of a check of consistency: empty, or the first violation.
using Checked = std::function<void(std::string_view violation)>;

class Service {
 public:
  Service(const Options& options, unsigned cores) : settings(options), core_count(cores), cores_(std::make_unique<CoreState[]>(cores)) {
    for (unsigned index = 0; index < cores; ++index) {
      cores_[index].service = this;
      cores_[index].index = index;
    }
  }
  Service& operator=(Service&&) = delete;

  const Options settings;
  const unsigned core_count;
  /// Checks the consistency conditions while no transaction runs, then calls `checked` on the calling core. Returns false if a check is in
  /// progress already. Null: there is no check.
  std::function<bool(Checked checked)> check_consistency;

  [[nodiscard]] CoreState& core(unsigned index) noexcept {
    require(index < core_count, "tpcc: no such core", index);
    return cores_[index];
  }
  /// Returns false if there are too many connections already. Otherwise the caller MUST call `release` once. Any core MAY call both.
  [[nodiscard]] bool admit() noexcept {
    if (connections_.fetch_add(1, std::memory_order_relaxed) < settings.connections_max) return true;
    release();
    return false;
  }
  void release() noexcept { connections_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] unsigned connections() const noexcept { return connections_.load(std::memory_order_relaxed); }

  /// Emits the counters of one core, or the sums over all cores.
  void report(std::optional<unsigned> core, const Emit& emit) const;

 private:
  std::atomic<unsigned> connections_{0};
  std::unique_ptr<CoreState[]> cores_;
};

}  // namespace neap::tpcc
