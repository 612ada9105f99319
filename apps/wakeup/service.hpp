// SPDX-License-Identifier: BSL-1.0
// The measurement of all idle states and doorbells, its results, and the control command.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/wakeup/pair.hpp"
#include "apps/wakeup/results.hpp"
#include "kernel/arguments.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/task.hpp"

namespace neap::wakeup {

struct Options {
  std::uint32_t rounds = 200;                  ///< good rounds of each idle state and doorbell
  std::chrono::nanoseconds asleep{1'000'000};  ///< from the begin of the sleep to the doorbell
  unsigned sleeper = 1;

  /// Reads `rounds=`, `asleep=` and `sleeper=`. The default sleeper is a core that shares no physical core with core 0, if there is one.
  /// There MUST be two cores.
  static Options from_words(Arguments& arguments);
};

/// The running core with the lowest number that shares no physical core with core 0; 0 if there is none.
[[nodiscard]] unsigned core_apart() noexcept;

constexpr const char* command_usage = "wakeup,WHAT";
constexpr const char* command_help =
    "run: measures all idle states again, with the present settings; results: the last measurement, in nanoseconds.";

/// Core 0 rings. The object MUST NOT be destroyed, because commands refer to it.
class Service {
 public:
  /// `vector`: a vector of the sleeper that wakes it while it polls.
  Service(const Options& options, std::uint8_t vector) noexcept : options_(options), pair_(options.sleeper, vector) {}
  Service& operator=(Service&&) = delete;

  /// Measures, with a run of the log around it if the log has sleep records and no run is on. Then prints the table. MUST be awaited on
  /// core 0. Errors: `closed` (a measurement is running), those of `Pair::ring`, `timeout` (too many rounds were disturbed).
  [[nodiscard]] task<Result<void>> measure();
  /// The control command. `words`: `run` or `results`. MAY be called on any core.
  [[nodiscard]] task<std::string> command(std::span<const std::string_view> words);

 private:
  [[nodiscard]] task<Result<void>> measure_all();
  [[nodiscard]] task<Result<Row>> measure_row(IdleState state, Doorbell doorbell);
  void print_table();
  [[nodiscard]] std::string results();
  task<void> measure_again();

  const Options options_;
  Pair pair_;
  bool measuring_ = false;  // used on core 0 only
  SpinLock lock_;           // guards `rows_`
  std::vector<Row> rows_;
};

}  // namespace neap::wakeup
