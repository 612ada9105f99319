// SPDX-License-Identifier: BSL-1.0
// The crawler: frees expired items while its core has nothing else to do.
//
// A reader or a writer that finds an expired item frees it. An expired item that is requested no more would keep its memory until eviction
// examines it. So the crawler passes over all items, in steps of an idle hook: a step begins only if the core has no work, and takes a few
// microseconds. In the idle states `poll` and `monitor` the core runs its idle hooks in each iteration, so there the steps are spread over
// the work.
//
// Each item that expires is noted (`Store::earliest_expiry`), so a pass begins when there is something to free. A store without such items
// causes no wake-up at all. An idle machine is woken at most once a second, and less often if it has many items: on average the crawler
// examines at most `items_a_second`, which takes about 1 % of an idle core.
//
// A machine has one crawler, on one core. When a core stores an item that expires earlier than all others, it asks the crawler's core to
// plan anew.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/store.hpp"
#include "kernel/events.hpp"
#include "kernel/timer.hpp"

namespace neap::memcached {

class Crawler {
 public:
  static constexpr unsigned step_budget = 64;               ///< chains and items that a step examines
  static constexpr std::uint32_t items_a_second = 100'000;  ///< on average over a pass and the pause behind it

  /// MUST be made in an event of the core on which it is to run. It MUST outlive all calls of `store`, and be destroyed on its core.
  Crawler(Store& store, const Clock& clock, bool on = true);
  /// Stops the crawler, or lets it go on with a new pass. MUST be called on its core, not in an idle hook.
  void turn(bool on);
  Crawler& operator=(Crawler&&) = delete;
  ~Crawler();

 private:
  void plan();
  void begin_pass();
  [[nodiscard]] bool step() noexcept;
  void end_pass();

  Store& store_;
  const Clock clock_;
  const unsigned core_;
  bool on_;
  Timer timer_;
  std::optional<IdleHook> hook_;     // exists during a pass
  std::optional<Store::Walk> walk_;  // of the pass in progress
  std::uint64_t examined_ = 0;       // items of this pass
  Seconds not_before_ = 0;           // no pass begins earlier
  CoalescedCall plan_call_{[](void* crawler) noexcept { static_cast<Crawler*>(crawler)->plan(); }, this};
};

}  // namespace neap::memcached
