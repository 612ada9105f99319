// SPDX-License-Identifier: BSL-1.0
#include "kernel/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "kernel/events.hpp"
#include "kernel/timer.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;
using host::ManualClock;
using namespace std::chrono_literals;

/// Off again at the end, for the other tests.
struct Watching {
  explicit Watching(std::chrono::nanoseconds limit) { watchdog::configure(limit); }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
  ~Watching() { watchdog::configure(0ns); }
};

/// Until then the time that passes is its last event's.
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
  clock.advance(10s);  // asleep so long: no event's time
  spend(101ms);
  EXPECT_EQ(watchdog::named(), before + 1);
  const std::string said = host::take_console_text();
  EXPECT_NE(said.find("watchdog: an event of core 0 took 101 ms: code at 0x"), std::string::npos) << said;
  EXPECT_EQ(said.find("watchdog"), said.rfind("watchdog")) << said;
}

TEST(Watchdog, AnotherCoreThatIsAwakeTellsOfAnEventThatDoesNotEnd) {
  const Watching watching(100ms);
  ManualClock clock(1'000'000'000);
  std::atomic<bool> inside{false}, leave{false};
  HostMachine machine{2};
  static_cast<void>(host::take_console_text());
  machine.on(1, [&] {
    spawn([&] {
      inside = true;
      while (!leave) {
      }
    });
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return inside.load(); }));
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
  leave = true;
  EXPECT_TRUE(HostMachine::wait_until([&] {
    machine.on(1, [] {});
    said += host::take_console_text();
    return said.find("watchdog: an event of core 1 took 300 ms") != said.npos;
  })) << said;
}

}  // namespace
}  // namespace neap
