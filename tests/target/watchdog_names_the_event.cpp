// SPDX-License-Identifier: BSL-1.0
// An event that occupies its core for too long is reported by name. The other core, which is awake, reports it while the event runs. It is
// reported again at the event's end.
#include <atomic>

#include "kernel/task.hpp"
#include "tests/target/check.hpp"

namespace {

std::atomic<bool> over{false};

/// Runs until the other core sets `over`.
[[gnu::noinline]] void event_without_end() {
  while (!over.load()) neap::machine::pause();
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  test::check(spawn_on(1, [] { event_without_end(); }).has_value(), "queued");
  // This core wakes every 20 ms, because only an awake core detects the long event of the other core.
  for (unsigned i = 0; i < 60; ++i) co_await sleep_for(std::chrono::milliseconds(20));
  over = true;
  co_await on_core(1, [] {});
  co_await sleep_for(std::chrono::milliseconds(50));
  co_return 0;
}
