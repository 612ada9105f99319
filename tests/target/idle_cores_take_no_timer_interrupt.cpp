// SPDX-License-Identifier: BSL-1.0
// Without a pending timer no core takes a timer interrupt. All cores are idle for ten seconds. The only timer interrupt is the one that
// ends these seconds (and a second one if the APIC's timer runs fast and was early).
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

/// Returns the first core that did more than wait, or `core_count()` if there is none.
unsigned disturbed(const Counters& before) {
  constexpr std::uint64_t early_max = 4;
  const Counters now = all_counters();
  for (unsigned core = 0; core < core_count(); ++core) {
    const std::uint64_t alarms = now[core].alarms - before[core].alarms;
    if (alarms > (core == 0 ? early_max : 0) || (core != 0 && now[core].sleeps != before[core].sleeps)) {
      print("core ", core, ": ", alarms, " timer interrupts, slept ", now[core].sleeps - before[core].sleeps, " times");
      return core;
    }
  }
  return core_count();
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  // On a busy host, late work of the start-up or of this task may disturb a span of ten seconds. A periodic timer would disturb every span.
  constexpr unsigned spans_max = 3;
  co_await on_each_core([] {});
  for (unsigned span = 0;; ++span) {
    co_await sleep_for(std::chrono::milliseconds(200));
    const Counters before = all_counters();
    co_await sleep_for(std::chrono::seconds(10));
    const unsigned core = disturbed(before);
    if (core == core_count()) co_return 0;
    test::check(span + 1 < spans_max, "an idle core is disturbed in every span", core);
  }
}
