// SPDX-License-Identifier: BSL-1.0
// Work handed to a sleeping core is done at once, however the moment falls: thousands of hand-overs around the ring of cores, each to a
// core that has nothing else to do and no timer to save it.
#include <atomic>

#include "tests/target/check.hpp"

namespace {

using neap::test::check;

constexpr unsigned rounds = 3000;
std::atomic<unsigned> hops{0};

void hop(unsigned left) {
  hops.fetch_add(1);
  if (left == 0) return;
  check(neap::spawn_on((neap::this_core() + 1) % neap::core_count(), [left] { hop(left - 1); }).has_value(), "queued");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  const auto total = rounds * core_count();
  check(spawn_on(core_count() - 1, [total] { hop(total - 1); }).has_value(), "queued");
  // Core 0's own sleep is ended by the ring as well; its timer only guards against a test that never ends.
  for (unsigned seconds = 0; hops.load() != total; ++seconds) {
    check(seconds < 60, "the chain stopped after hops", hops.load());
    co_await sleep_for(std::chrono::seconds(1));
  }
  for (unsigned core = 0; core < core_count(); ++core)
    check(event_counters(core).sleeps > 10, "the core slept in between", event_counters(core).sleeps);
  co_return 0;
}
