// SPDX-License-Identifier: BSL-1.0
#include "kernel/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "kernel/events.hpp"
#include "kernel/timer.hpp"
#include "tests/host/busy_core.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;
using host::ManualClock;
using namespace std::chrono_literals;

/// The destructor turns the watchdog off, because the other tests run without it.
struct Watching {
  explicit Watching(std::chrono::nanoseconds limit) { watchdog::configure(limit); }
  Watching& operator=(Watching&&) = delete;
  ~Watching() { watchdog::configure(0ns); }
};

/// Waits until the core is idle. Before that, time is counted for its last event.
void wait_until_asleep(unsigned core) {
  ASSERT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(core).has_value(); }));
}

TEST(Watchdog, NamesAnEventOverTheLimitAtItsEndAndNoOther) {
  const Watching watching(100ms);
  ManualClock clock(1'000'000'000);
  HostMachine machine{1};
  static_cast<void>(host::take_console_text());
  const std::uint64_t before = watchdog::named();
  const auto spend = [&](std::chrono::milliseconds time) {
    std::atomic<bool> done{false};
    machine.on(0, [&] {
      spawn([&] {
        clock.advance(time);
        spawn([&] { done = true; });
      });
    });
    EXPECT_TRUE(HostMachine::wait_until([&] { return done.load(); }));
    machine.on(0, [] {});
  };
  spend(99ms);
  EXPECT_EQ(watchdog::named(), before);
  wait_until_asleep(0);
  clock.advance(10s);  // the core sleeps, so this time is counted for no event
  spend(101ms);
  EXPECT_EQ(watchdog::named(), before + 1);
  const std::string said = host::take_console_text();
  EXPECT_NE(said.find("watchdog: an event of core 0 took 101 ms: code at 0x"), std::string::npos) << said;
  EXPECT_EQ(said.find("watchdog"), said.rfind("watchdog")) << said;
}

TEST(Watchdog, AwakeCoreNamesAnEventThatDoesNotEnd) {
  const Watching watching(100ms);
  ManualClock clock(1'000'000'000);
  HostMachine machine{2};
  static_cast<void>(host::take_console_text());
  host::BusyCore busy(machine, 1);
  std::string said;
  wait_until_asleep(0);
  clock.advance(150ms);
  EXPECT_TRUE(HostMachine::wait_until([&] {
    machine.on(0, [] {});
    said += host::take_console_text();
    return said.find("watchdog: core 1 has been in an event for 150 ms: event of core 1 (seen by core 0)") != said.npos;
  })) << said;
  wait_until_asleep(0);
  clock.advance(150ms);
  for (int i = 0; i < 3; ++i) machine.on(0, [] {});
  wait_until_asleep(0);
  EXPECT_EQ(host::take_console_text(), "") << "once an event";
  busy.release();
  EXPECT_TRUE(HostMachine::wait_until([&] {
    machine.on(1, [] {});
    said += host::take_console_text();
    return said.find("watchdog: an event of core 1 took 300 ms") != said.npos;
  })) << said;
}

// The watchdog's main purpose is an event that hangs in an idle machine, where sleeping cores do not check by themselves.
TEST(Watchdog, HangingEventIsNamedWithinOneAndAHalfLimitsWhileAllOthersSleep) {
  for (const unsigned cores : {2U, 3U}) {
    const Watching watching(100ms);
    ManualClock clock(1'000'000'000);
    HostMachine machine{cores};
    for (unsigned core = 0; core < cores; ++core) wait_until_asleep(core);
    clock.advance(10s);
    static_cast<void>(host::take_console_text());
    for (unsigned stuck = 0; stuck < cores; ++stuck) {
      host::BusyCore busy(machine, stuck);
      const auto others_sleep = [&] {
        for (unsigned core = 0; core < cores; ++core) {
          if (core != stuck) wait_until_asleep(core);
        }
      };
      const std::string name = "watchdog: core " + std::to_string(stuck) + " has been in an event for ";
      std::string said;
      for (int step = 1; step <= 15; ++step) {
        others_sleep();
        clock.advance(10ms);
        std::this_thread::sleep_for(2ms);
        said += host::take_console_text();
        if (step < 10) EXPECT_EQ(said, "") << step;
      }
      others_sleep();
      EXPECT_TRUE(HostMachine::wait_until([&] {
        said += host::take_console_text();
        return said.find(name) != said.npos;
      })) << said;
      EXPECT_EQ(said.find(name), said.rfind(name)) << "once";
      busy.release();
      machine.on(stuck, [] {});
      wait_until_asleep(stuck);
      static_cast<void>(host::take_console_text());
    }
  }
}

TEST(Watchdog, IdleMachineIsNotWokenAndABusyOneFourTimesInALimit) {
  const Watching watching(100ms);
  ManualClock clock(1'000'000'000);
  HostMachine machine{3};
  const auto sleeps = [] { return event_counters(0).sleeps + event_counters(1).sleeps; };
  const auto all_asleep = [] {
    for (unsigned core = 0; core < 3; ++core) wait_until_asleep(core);
  };
  all_asleep();
  // Core 2 runs a thousand events in the time of one limit. The guards wake for the first event, and then by their alarms.
  const std::uint64_t before = sleeps();
  for (int i = 0; i < 1000; ++i) {
    clock.advance(100us);
    machine.on(2, [] {});
    if (i % 100 == 0) all_asleep();
  }
  all_asleep();
  EXPECT_LE(sleeps() - before, 2 * 4U + 2);
  clock.advance(1s);
  std::this_thread::sleep_for(20ms);
  all_asleep();
  EXPECT_EQ(host::alarm_of(0), machine::alarm_none);
  EXPECT_EQ(host::alarm_of(1), machine::alarm_none);
  const std::uint64_t idle = sleeps();
  clock.advance(100s);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(sleeps(), idle);
}

}  // namespace
}  // namespace neap
