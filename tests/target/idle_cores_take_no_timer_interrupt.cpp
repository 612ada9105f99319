// SPDX-License-Identifier: BSL-1.0
// Nobody needs to know the time: then no core is woken to look at it. Ten seconds go by with nothing to do on any core; the only timer
// interrupt is the one that ends them.
#include <array>

#include "kernel/policy.hpp"
#include "kernel/when_all.hpp"
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  // What start-up and this task itself set going comes to rest first.
  co_await on_each_core([] {});
  co_await sleep_for(std::chrono::milliseconds(200));
  std::array<EventCounters, 16> before{};
  for (unsigned core = 0; core < core_count(); ++core) before[core] = event_counters(core);
  co_await sleep_for(std::chrono::seconds(10));
  for (unsigned core = 0; core < core_count(); ++core) {
    const EventCounters now = event_counters(core);
    const std::uint64_t alarms = now.alarms - before[core].alarms;
    test::check(alarms <= (core == 0 ? 1 : 0), "timer interrupts of an idle core", alarms);
    if (core != 0) test::check(now.sleeps == before[core].sleeps, "an idle core was woken", now.sleeps - before[core].sleeps);
  }
  co_return 0;
}
