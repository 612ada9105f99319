// SPDX-License-Identifier: BSL-1.0
// An event that keeps its core for too long is named: while it lasts by the other core, which is awake, and at its end.
#include <atomic>

#include "kernel/task.hpp"
#include "tests/target/check.hpp"

namespace {

std::atomic<bool> over{false};

/// Long enough for whoever looks, however slow the emulation: until it is told that the other core has looked often enough.
[[gnu::noinline]] void event_without_end() {
  while (!over.load()) neap::machine::pause();
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  test::check(spawn_on(1, [] { event_without_end(); }).has_value(), "queued");
  // This core wakes now and then, so it sees.
  for (unsigned i = 0; i < 60; ++i) co_await sleep_for(std::chrono::milliseconds(20));
  over = true;
  co_await on_core(1, [] {});
  co_await sleep_for(std::chrono::milliseconds(50));
  co_return 0;
}
