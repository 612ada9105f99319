// SPDX-License-Identifier: BSL-1.0
// On an emulated CPU, a setting that needs a missing feature is refused with a list of the accepted values. A halting core and a polling
// core both run timers and remote work at once, and only the halting core sleeps.
#include <atomic>
#include <string>

#include "kernel/policy.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace neap;
using policy::Setting;
using test::check;

task<void> expect_refused(Setting setting, std::string value, std::string_view why) {
  const auto before = policy::generation();
  const auto done = co_await policy::set(setting, value, policy::all_cores);
  check(!done.has_value(), value);
  check(done.error().why == why, done.error().why);
  check(policy::generation() == before, "a refusal is no change");
}

constexpr unsigned rounds = 200;
std::atomic<unsigned> hops{0};

void hop(unsigned left) {
  hops.fetch_add(1);
  if (left != 0) check(spawn_on(1 - this_core(), [left] { hop(left - 1); }).has_value(), "queued");
}

/// Passes remote work back and forth, then waits for a timer of core 1. Core 1 is idle in between.
task<void> work_reaches_core_1() {
  hops = 0;
  check(spawn_on(1, [] { hop(rounds - 1); }).has_value(), "queued");
  for (unsigned waited_ms = 0; hops != rounds; ++waited_ms) {
    check(waited_ms < 20'000, "the chain stopped after hops", hops);
    co_await sleep_for(std::chrono::milliseconds(1));
  }
  std::atomic<bool> fired{false};
  co_await on_core(1, [&fired] {
    static Timer timer;
    timer.arm(std::chrono::milliseconds(3), [&fired] { fired = true; });
  });
  for (unsigned waited_ms = 0; !fired; ++waited_ms) {
    check(waited_ms < 20'000, "a timer of core 1 did not fire");
    co_await sleep_for(std::chrono::milliseconds(1));
  }
}

task<std::uint64_t> sleeps_of_core_1() {
  co_return co_await on_core(1, [] { return event_counters(1).sleeps; });
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  const PowerAbilities& has = machine::power_abilities();
  check(!has.mwait_sleeps && !has.pstates && !has.power_limit && !has.turbo && has.counters == 0, "an emulated CPU has none of these");
  check(machine::sample_counters().present == 0, "no counter was read");
  check(machine::package_count() >= 1 && machine::package_of(1) < machine::package_count(), "packages are dense");
  co_await expect_refused(Setting::idle, "monitor", "idle: monitor needs an MWAIT that sleeps; accepted here: halt poll deepest");
  co_await expect_refused(Setting::idle, "c6", "idle: c6 needs an MWAIT that sleeps; accepted here: halt poll deepest");
  co_await expect_refused(Setting::pstate, "0x1800", "pstate: no P-states can be set on this CPU");
  co_await expect_refused(Setting::power_limit, "60W", "power_limit: no power limit can be set on this CPU");
  co_await expect_refused(Setting::turbo, "off", "turbo: turbo cannot be set on this CPU");
  co_await expect_refused(Setting::itr, "8us", "itr: no network card is in use");

  const auto deepest = co_await policy::set(Setting::idle, "deepest", policy::all_cores);
  check(deepest.has_value() && deepest->value == "idle=halt" && deepest->cores == "0-1", "halt is the deepest");
  auto before = co_await sleeps_of_core_1();
  co_await work_reaches_core_1();
  check(co_await sleeps_of_core_1() > before + 10, "a halting core sleeps in between");

  check((co_await policy::set(Setting::idle, "poll", 1)).has_value(), "poll is accepted");
  check(policy::of(1).idle == IdleState::poll && policy::of(0).idle == IdleState::halt, "for one core");
  before = co_await sleeps_of_core_1();
  co_await work_reaches_core_1();
  check(co_await sleeps_of_core_1() == before, "a polling core does not sleep");

  check((co_await policy::set(Setting::poll_budget, "1ms", 1)).has_value(), "a poll budget is accepted");
  check((co_await policy::set(Setting::idle, "halt", 1)).has_value(), "and back");
  co_await work_reaches_core_1();
  co_return 0;
}
