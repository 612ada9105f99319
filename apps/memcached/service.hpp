// SPDX-License-Identifier: BSL-1.0
// State that all connections share: the store, the clock, and for each core its counters and reply memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/detail.hpp"
#include "apps/memcached/holders.hpp"
#include "apps/memcached/limits.hpp"
#include "apps/memcached/reply.hpp"
#include "apps/memcached/reply_memory.hpp"
#include "apps/memcached/settings.hpp"
#include "apps/memcached/statistics.hpp"
#include "apps/memcached/store.hpp"
#include "apps/memcached/watch.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"

namespace neap::memcached {

/// The check of a core for silent connections (connection_list.cpp).
struct IdleCheck {
  Timer timer;                          ///< pending while the core has connections, if there is an idle time-out
  std::uint32_t position = 0;           ///< of a pass in progress
  bool open = false;                    ///< the pass has found a connection that stays open
  std::chrono::milliseconds longest{};  ///< the longest silence of such a connection
};

/// The state of one core. Only that core writes to it.
struct alignas(128) CoreState {
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
  Uploads uploads;
  CoalescedCall upload_call{&shed_uploads_here, this};  ///< other cores use it to call `shed_uploads` on this core
  CoalescedCall watch_call{&wake_watchers, this};       ///< wakes the watchers of this core
  IdleCheck idle;
  [[nodiscard]] Seconds now() noexcept;

 private:
  static void shed_here(void* core) noexcept;
  static void shed_uploads_here(void* core) noexcept;
  static void wake_watchers(void* core) noexcept;
};

class Service final : public Store::EvictionObserver {
 public:
  /// The requests that one piece of received bytes has at most: a piece is a buffer of the card, and a request has 7 bytes or more. So
  /// whole requests of one piece need no count of their own for `requests_per_event`, unless that is a smaller number.
  static constexpr unsigned piece_requests_max = 300;

  Service(Store& store_, const Clock& clock_, Settings settings_, unsigned cores)
      : store(store_),
        clock(clock_),
        settings(std::move(settings_)),
        core_count(cores),
        reply_memory(store_),
        admission(settings.connections_max, settings.peer_connections_max),
        details(settings.detail_enabled, settings.key_prefix_end),
        cores_(std::make_unique<CoreState[]>(cores)) {
    for (unsigned index = 0; index < cores; ++index) {
      cores_[index].service = this;
      cores_[index].index = index;
      cores_[index].replies.account().report_to(reply_memory);
    }
    settle_observation();
  }
  ~Service() { store.observe_evictions(nullptr); }
  Service& operator=(Service&&) = delete;

  Store& store;
  const Clock clock;
  const Settings settings;
  const unsigned core_count;
  ReplyMemory reply_memory;
  Admission admission;
  Watchers watchers;
  Details details;
  std::atomic<unsigned> verbosity{0};              ///< as the command `verbosity` has set it; it has no effect
  std::atomic<bool> crawler_on{settings.crawler};  ///< expired items are freed in idle time (crawler.hpp)
  /// Called after `crawler_on` has changed; null in tests. Any core MAY call it.
  void (*settle_crawler)() noexcept = nullptr;
  /// Returns the time that all cores together were not asleep; null in tests. Any core MAY call it.
  std::uint64_t (*busy_us)() noexcept = nullptr;
  /// Ends the application; null in tests. Any core MAY call it.
  void (*shut_down)(Service&) noexcept = nullptr;
  /// Makes the answer of `stats conns` (connection_list.cpp); null in tests.
  std::unique_ptr<LongAnswer> (*list_connections)(Service&, std::uint32_t own_id) = nullptr;

  /// If true, requests take the ordinary way, where they are reported and counted one by one.
  [[nodiscard]] bool observed() const noexcept { return observed_.load(std::memory_order_relaxed); }
  /// MUST be called after each change of watchers or details.
  void settle_observation() noexcept;

  [[nodiscard]] CoreState& core(unsigned index) noexcept {
    require(index < core_count, "memcached: no such core", index);
    return cores_[index];
  }

  /// Returns the sum over all cores since start or the last reset.
  [[nodiscard]] std::uint64_t total(Count which) const noexcept;
  void reset_totals() noexcept;
  [[nodiscard]] std::size_t reply_spare_bytes() const noexcept;  ///< memory of the free chunks of all cores
  [[nodiscard]] std::size_t upload_bytes() const noexcept;       ///< memory of items whose values have not arrived completely
  [[nodiscard]] std::uint64_t connections() const noexcept;      ///< number of open connections

 private:
  void evicted(const Item& item, bool used) noexcept override;

  std::atomic<bool> observed_{false};
  std::unique_ptr<CoreState[]> cores_;
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Count::size)> at_reset_{};
};

inline Seconds CoreState::now() noexcept { return clock.now(service->clock); }

inline void CoreState::wake_watchers(void* core) noexcept {
  auto& self = *static_cast<CoreState*>(core);
  self.service->watchers.wake(self.index);
}

}  // namespace neap::memcached
