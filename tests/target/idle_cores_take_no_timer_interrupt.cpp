// SPDX-License-Identifier: BSL-1.0
// Nobody needs to know the time: then no core is woken to look at it. Ten seconds go by with nothing to do on any core; the only timer
// interrupt is the one that ends them (and again, where the APIC's timer runs fast and was early).
#include <array>

#include "kernel/when_all.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace neap;
using Counters = std::array<EventCounters, 16>;

Counters all_counters() {
  Counters counters{};
  for (unsigned core = 0; core < core_count(); ++core) counters[core] = event_counters(core);
  return counters;
}

/// The first core that did more than wait; `core_count()`: none.
unsigned disturbed(const Counters& before) {
  constexpr std::uint64_t early_most = 4;
  const Counters now = all_counters();
  for (unsigned core = 0; core < core_count(); ++core) {
    const std::uint64_t alarms = now[core].alarms - before[core].alarms;
    if (alarms > (core == 0 ? early_most : 0) || (core != 0 && now[core].sleeps != before[core].sleeps)) {
      print("core ", core, ": ", alarms, " timer interrupts, slept ", now[core].sleeps - before[core].sleeps, " times");
      return core;
    }
  }
  return core_count();
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  // What start-up and this task itself set going comes to rest first, on a busy host perhaps later than one thinks; what is periodic comes
  // in every span.
  constexpr unsigned spans_most = 3;
  co_await on_each_core([] {});
  for (unsigned span = 0;; ++span) {
    co_await sleep_for(std::chrono::milliseconds(200));
    const Counters before = all_counters();
    co_await sleep_for(std::chrono::seconds(10));
    const unsigned core = disturbed(before);
    if (core == core_count()) co_return 0;
    test::check(span + 1 < spans_most, "an idle core is disturbed in every span", core);
  }
}
