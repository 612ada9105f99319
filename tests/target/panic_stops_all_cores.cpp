// SPDX-License-Identifier: BSL-1.0
// A panic on one core stops the others in the middle of whatever they do, even of a printed line, and says where they were.
#include <atomic>

#include "kernel/panic.hpp"
#include "tests/target/check.hpp"

namespace {

[[gnu::noinline]] void print_without_end() {
  for (;;) neap::print("a long line that is very likely being written when the panic comes, over and over, without end");
}

[[gnu::noinline]] void spin_without_end() {
  for (std::atomic<bool> go_on{true}; go_on.load();) {
  }
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  test::check(core_count() == 4, "four cores");
  test::check(spawn_on(1, print_without_end) && spawn_on(2, spin_without_end), "spawned");
  co_await sleep_for(std::chrono::milliseconds(30));
  panic("this core wants to stop");
}
