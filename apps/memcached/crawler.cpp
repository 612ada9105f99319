// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/crawler.hpp"

#include <algorithm>
#include <chrono>

namespace neap::memcached {

Crawler::Crawler(Store& store, const Clock& clock, bool on) : store_(store), clock_(clock), core_(this_core()), on_(on) {
  store.report_expiries(
      [](void* context) noexcept {
        auto& self = *static_cast<Crawler*>(context);
        self.plan_call_.ask(self.core_);
      },
      this);
  plan();  // items may have been stored before
}

/// A pass that was stopped has not noted when all items expire, so a new one begins.
void Crawler::turn(bool on) {
  if (on == on_) return;
  on_ = on;
  if (on) {
    store_.request_crawl();
    return plan();
  }
  walk_.reset();
  hook_.reset();
  (void)timer_.cancel();
}

Crawler::~Crawler() { store_.report_expiries(nullptr, nullptr); }

/// Begins the next pass, or arms the timer for the second in which it begins. The timer and the clock may round differently, so the timer
/// is a little late.
void Crawler::plan() {
  if (!on_) return;
  if (walk_) return;  // the end of the pass plans
  if (hook_) end_pass();
  const Seconds due = store_.earliest_expiry();
  (void)timer_.cancel();
  if (due == Store::no_expiry) return;
  const std::uint64_t delay_ns = clock_.ns_until(std::max(due, not_before_));
  if (delay_ns == 0) return begin_pass();
  constexpr std::uint64_t margin_ns = 1'000'000;
  timer_.arm(std::chrono::nanoseconds(delay_ns + margin_ns), [this] { plan(); });
}

void Crawler::begin_pass() {
  store_.begin_crawl();
  examined_ = 0;
  walk_.emplace(store_);
  hook_.emplace([this] { return step(); });
}

/// The hook that calls this function cannot be destroyed by it, so an event of its own ends the pass.
bool Crawler::step() noexcept {
  if (!walk_) return false;
  const auto [more, examined] = store_.crawl(*walk_, step_budget, clock_.now());
  examined_ += examined;
  if (!more) {
    walk_.reset();
    plan_call_.ask(core_);
  }
  return true;
}

void Crawler::end_pass() {
  hook_.reset();
  not_before_ = clock_.now() + 1 + static_cast<Seconds>(examined_ / items_a_second);
}

}  // namespace neap::memcached
