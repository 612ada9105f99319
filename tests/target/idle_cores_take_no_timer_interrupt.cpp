// SPDX-License-Identifier: BSL-1.0
// Without a pending timer no core takes a timer interrupt. All cores are idle for thirty seconds. The only timer interrupt is
// the one that ends this time (and a second one if the APIC's timer was early by the rounding of its rate).
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

/// Returns the first core that has more timer interrupts or sleeps than expected, or `core_count()` if there is none.
unsigned disturbed(const Counters& before) {
  constexpr std::uint64_t alarms_max = 2;
  const Counters now = all_counters();
  for (unsigned core = 0; core < core_count(); ++core) {
    const std::uint64_t alarms = now[core].alarms - before[core].alarms;
    if (alarms > (core == 0 ? alarms_max : 0) || (core != 0 && now[core].sleeps != before[core].sleeps)) {
      print("core ", core, ": ", alarms, " timer interrupts, slept ", now[core].sleeps - before[core].sleeps, " times");
      return core;
    }
  }
  return core_count();
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  co_await on_each_core([] {});
  co_await sleep_for(std::chrono::milliseconds(200));  // until the start-up has ended
  const Counters before = all_counters();
  co_await sleep_for(std::chrono::seconds(30));
  const unsigned core = disturbed(before);
  test::check(core == core_count(), "an idle core is disturbed", core);
  co_return 0;
}
