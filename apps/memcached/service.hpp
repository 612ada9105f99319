// SPDX-License-Identifier: BSL-1.0
// State that all connections share: the store, the clock, and for each core its counters and reply memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/holders.hpp"
#include "apps/memcached/reply.hpp"
#include "apps/memcached/reply_memory.hpp"
#include "apps/memcached/statistics.hpp"
#include "apps/memcached/store.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {

/// Constants that the server reports in `version` and `stats`.
struct Settings {
  std::string version;  ///< as the `version` command reports it; without spaces or line ends
  std::string address;
  std::uint16_t port = 11211;
};

/// The state of one core. Only that core writes to it.
struct alignas(64) CoreState {
  Statistics statistics;
  ReplyPool replies;
  Holders holders;
  std::size_t unchecked_bytes = 0;  ///< bytes parsed since the last call of `shed_holders_everywhere` (holders.hpp)
  std::size_t copied_bytes = 0;     ///< bytes that commands copied from old items; reset at `Conversation::copied_bytes_max`
  Service* service = nullptr;
  unsigned index = 0;                ///< the core's number
  std::unique_ptr<Holder> exchange;  ///< an idle `Exchange` (session.hpp), which serves the next request; null: not made yet
  /// Further idle ones, `spare_count` of them. A session with a long reply keeps its exchange until the peer has acknowledged the reply, so
  /// a burst of requests needs many of them.
  std::array<std::unique_ptr<Holder>, 31> spare_exchanges;
  unsigned spare_count = 0;
  bool frame_fits = true;  ///< the last reply fitted a frame, so the next one is written into one
  ClockReader clock;
  CoalescedCall shed_call{&shed_here, this};  ///< other cores use it to call `shed_holders` on this core
  [[nodiscard]] Seconds now() noexcept;

 private:
  static void shed_here(void* core) noexcept;
};

class Service {
 public:
  Service(Store& store_, const Clock& clock_, Settings settings_, unsigned cores)
      : store(store_),
        clock(clock_),
        settings(std::move(settings_)),
        core_count(cores),
        reply_memory(store_),
        cores_(std::make_unique<CoreState[]>(cores)) {
    for (unsigned index = 0; index < cores; ++index) {
      cores_[index].service = this;
      cores_[index].index = index;
      cores_[index].replies.account().report_to(reply_memory);
    }
  }

  Store& store;
  const Clock clock;
  const Settings settings;
  const unsigned core_count;
  ReplyMemory reply_memory;
  [[nodiscard]] CoreState& core(unsigned index) noexcept {
    require(index < core_count, "memcached: no such core", index);
    return cores_[index];
  }

  /// Returns the sum over all cores since start or the last reset.
  [[nodiscard]] std::uint64_t total(Count which) const noexcept;
  void reset_totals() noexcept;
  [[nodiscard]] std::size_t reply_spare_bytes() const noexcept;  ///< memory of the free chunks of all cores
  [[nodiscard]] std::uint64_t connections() const noexcept;      ///< number of open connections

 private:
  std::unique_ptr<CoreState[]> cores_;
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Count::size)> at_reset_{};
};

inline Seconds CoreState::now() noexcept { return clock.now(service->clock); }

}  // namespace neap::memcached
