// SPDX-License-Identifier: BSL-1.0
// A timer fires at its time or later, on every core. A cancelled timer never fires. A core that waits for a timer sleeps meanwhile.
#include <array>
#include <atomic>
#include <chrono>

#include "kernel/timer.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace std::chrono_literals;
using neap::test::check;
constexpr std::array delays{0ns, 1ns, 1000ns, 65'536ns, 200'000ns, 1'000'000ns, 3'000'001ns, 20'000'000ns, 77'777'777ns, 150'000'000ns};

std::atomic<unsigned> fired{0};

struct Probe {
  neap::Timer timer;
  std::uint64_t due_ns = 0;
};

void arm_all() {
  thread_local std::array<Probe, delays.size()> probes;
  thread_local neap::Timer cancelled;
  for (std::size_t i = 0; i < delays.size(); ++i) {
    auto& probe = probes[i];
    probe.due_ns = neap::machine::now_ns() + static_cast<std::uint64_t>(delays[i].count());
    probe.timer.arm(delays[i], [&probe, core = neap::this_core()] {
      const auto now_ns = neap::machine::now_ns();
      check(neap::this_core() == core, "fires where it was armed");
      check(now_ns >= probe.due_ns, "a timer was early by ns", probe.due_ns - now_ns);
      // The limit is far longer than a tick. A timer that exceeds the limit was lost, not delayed by a busy host.
      check(now_ns - probe.due_ns < 2'000'000'000, "a timer was late by ns", now_ns - probe.due_ns);
      fired.fetch_add(1);
    });
  }
  cancelled.arm(5ms, [] { check(false, "a cancelled timer fired"); });
  check(cancelled.cancel(), "it was pending");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  for (unsigned core = 0; core < core_count(); ++core) co_await on_core(core, arm_all);
  const auto all = static_cast<unsigned>(delays.size()) * core_count();
  for (unsigned i = 0; i < 500 && fired.load() != all; ++i) co_await sleep_for(10ms);
  check(fired.load() == all, "timers that fired", fired.load());
  for (unsigned core = 0; core < core_count(); ++core) check(event_counters(core).sleeps > 0, "the core slept", core);

  // The standard library's clocks read the same clock as the kernel.
  const auto steady = std::chrono::steady_clock::now();
  const auto boot_ns = machine::now_ns();
  co_await sleep_for(50ms);
  const auto steady_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - steady).count());
  check(steady_ns >= 50'000'000, "steady_clock", steady_ns);
  check(machine::now_ns() - boot_ns + 1'000'000 >= steady_ns, "steady_clock and now_ns agree", steady_ns);
  // target_test.py compares this time with the host's.
  print("wall clock ", std::chrono::system_clock::now().time_since_epoch() / 1s);
  co_return 0;
}
