// SPDX-License-Identifier: BSL-1.0
// A million timers are pending at once (a hundred thousand in the tests). Each timer that is not cancelled fires once and never early. A
// cancelled or postponed timer does not fire at its old time.
#include <algorithm>
#include <atomic>
#include <vector>

#include "kernel/timer.hpp"
#include "tests/target/stress.hpp"

namespace {

using namespace neap;
using test::check;
constexpr unsigned timers_short = 100'000, timers_long = 1'000'000;

struct Probe {
  Timer timer;
  std::uint64_t due_ns = 0;
  std::uint8_t fired = 0;
  bool cancelled = false;
};

std::atomic<std::uint64_t> fired{0};

void arm(Probe& probe, std::uint64_t delay_ns) {
  probe.due_ns = machine::now_ns() + delay_ns;
  probe.timer.arm(std::chrono::nanoseconds(delay_ns), [&probe] {
    check(machine::now_ns() >= probe.due_ns, "a timer was early by ns", probe.due_ns - machine::now_ns());
    check(!probe.cancelled, "a cancelled timer fired");
    check(++probe.fired == 1, "a timer fired more than once");
    fired.fetch_add(1, std::memory_order_relaxed);
  });
}

/// Arms this core's timers in parts, so that the core's other events can run.
task<void> run_core(unsigned count, std::uint64_t seed, std::uint64_t span_ns) {
  constexpr unsigned piece = 1000;
  std::vector<Probe> probes(count);
  test::Chance chance(seed);
  for (unsigned i = 0; i < count; ++i) {
    arm(probes[i], chance.bits() % span_ns);
    // In a third of the rounds, another pending timer is changed.
    Probe& other = probes[chance.below(i + 1)];
    if (chance.below(3) == 0 && other.timer.pending()) {
      if (chance.below(2) == 0) {
        other.timer.cancel();
        other.cancelled = true;
      } else {
        other.timer.cancel();
        arm(other, chance.bits() % span_ns);
      }
    }
    if (i % piece == piece - 1) co_await sleep_for(std::chrono::nanoseconds(0));
  }
  const auto waiting = [&probes] { return std::ranges::count_if(probes, [](const Probe& p) { return !p.cancelled && p.fired == 0; }); };
  for (unsigned tries = 0; waiting() != 0; ++tries) {
    check(tries < 6000, "timers that did not fire", static_cast<std::uint64_t>(waiting()));
    co_await sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  test::Stress stress(arguments);
  arguments.finish();
  const unsigned count = (stress.seconds == 0 ? timers_short : timers_long) / core_count();
  const std::uint64_t span_ns = stress.seconds == 0 ? 300'000'000 : 5'000'000'000;
  unsigned rounds = 0;
  for (; stress.goes_on(); ++rounds) {
    std::vector<task<void>> cores;
    for (unsigned core = 0; core < core_count(); ++core) {
      const auto run = [count, seed = stress.round * 1000 + core, span_ns] { return run_core(count, seed, span_ns); };
      cores.push_back(on_core(core, run));
    }
    co_await when_all(std::move(cores));
  }
  print("timers: ", fired.load(), " fired, in ", rounds, " rounds");
  co_return 0;
}
