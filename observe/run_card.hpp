// SPDX-License-Identifier: BSL-1.0
// The card in a run: its identity, its link, and its own counters at the start and at the stop of the run.
//
// The log counts frames that the driver saw. Frames that the card dropped before are only in the card's counters, and a client that reads
// them by `card` does so at other moments than those of the run. So the server reads them at both ends of a run, and logs contain them.
// Reading takes some 0.1 ms on one core. It happens before the run's first record and after its last one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/async_mutex.hpp"
#include "kernel/net_device.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/task.hpp"

namespace neap::observe {

/// Names and values of the card's own counters, in the order in which the device reports them.
using CardCounters = std::vector<std::pair<std::string, std::uint64_t>>;
/// Further counters, and letters of a name beyond this number, are left out.
constexpr std::size_t card_counters_max = 48, card_counter_name_bytes_max = 48;

struct RunCard {
  std::uint32_t run = 0;
  NetDeviceIdentity identity;
  std::uint32_t queues = 0;
  struct Link {
    bool up = false;
    std::uint32_t megabits = 0;  ///< 0: not known
  };
  // Absent values were not read: the card was gone, memory was short, or the run was not begun by control's `start`.
  std::optional<Link> link_at_start;
  std::optional<CardCounters> counters_at_start, counters_at_stop;
  bool at_stop = false;  ///< true: the run is over, and `counters_at_stop` does not change any more
};

/// Keeps a `RunCard` of the last run. Its functions MAY be called on any core, unless stated otherwise.
class RunCardReader {
 public:
  RunCardReader() = default;
  RunCardReader& operator=(RunCardReader&&) = delete;

  /// From now on, the ends of runs are noticed. MUST be called once, on core 0. The object and `device` MUST NOT be destroyed while a core
  /// runs. Throws `bad_alloc`.
  void watch(NetDevice& device);
  /// Reads the card for the run that begins next. MUST be called before `log::start`. If that fails, `forget_start` MUST be called.
  [[nodiscard]] task<void> read_for_start();
  [[nodiscard]] task<void> forget_start();
  /// Brings the record up to date with the log's run. After the task, a run that was over before the call has its final record.
  [[nodiscard]] task<void> follow();
  /// The record of `run`; null: there is none.
  [[nodiscard]] std::shared_ptr<const RunCard> of(std::uint32_t run) const noexcept;

 private:
  [[nodiscard]] task<std::optional<CardCounters>> read_counters();
  [[nodiscard]] task<void> update();

  NetDevice* device_ = nullptr;
  AsyncMutex mutex_;  // held while the members below are changed
  std::optional<RunCard> next_;
  std::shared_ptr<const RunCard> last_;
  mutable SpinLock last_lock_;  // for `last_`
};

}  // namespace neap::observe
