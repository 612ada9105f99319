// SPDX-License-Identifier: BSL-1.0
// Queues a known number of events and timers, then calls a function at which a debugger can stop the machine (debugger_test.py).
#include <atomic>
#include <chrono>

#include "kernel/timer.hpp"
#include "tests/target/check.hpp"

namespace {

constinit std::atomic<bool> busy{false}, looked{false};
constinit std::atomic<unsigned> ran{0};

void an_event() { ++ran; }
void a_timer() {}

[[gnu::noinline]] void work_until_looked_at() {
  busy = true;
  while (!looked.load()) asm volatile("pause");
}

}  // namespace

extern "C" [[gnu::noinline]] void neap_test_stops_here() { asm volatile(""); }

neap::task<int> neap::application(Arguments& arguments) {
  using namespace std::chrono_literals;
  arguments.finish();
  test::check(core_count() == 3, "three cores");
  test::check(spawn_on(1, work_until_looked_at).has_value(), "core 1 is told to work");
  while (!busy.load()) co_await sleep_for(5ms);
  for (int i = 0; i < 2; ++i) test::check(spawn_on(1, an_event).has_value(), "it has more to do");
  Timer in_an_hour, in_two;
  in_two.arm(2h, [] { a_timer(); });
  in_an_hour.arm(1h, a_timer);
  spawn(an_event);
  spawn([] { an_event(); });
  neap_test_stops_here();
  looked = true;
  // In each round, each core runs at least one of its two events. So the number of rounds does not depend on the machine's speed.
  for (unsigned rounds = 0; ran.load() != 4; ++rounds) {
    test::check(rounds < 6, "all events run within a few rounds", ran.load());
    co_await on_core(1, [] {});
  }
  co_return 0;
}
