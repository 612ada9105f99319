// SPDX-License-Identifier: BSL-1.0
#include "kernel/events.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;

TEST(Events, SpawnedEventsRunInOrderAfterThePresentOne) {
  HostMachine machine{1};
  std::vector<int> order;
  std::atomic<bool> done{false};
  machine.on(0, [&] {
    for (int i = 1; i <= 100; ++i) spawn([&order, i] { order.push_back(i); });
    spawn([&done] { done = true; });
    order.push_back(0);
  });
  ASSERT_TRUE(HostMachine::wait_until([&] { return done.load(); }));
  ASSERT_EQ(order.size(), 101U);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// A wake-up lost between "my queue is empty" and sleeping leaves both cores asleep for ever.
TEST(Events, PingPongBetweenSleepingCoresLosesNoWakeUp) {
  constexpr int rounds = 200'000;
  HostMachine machine{2};
  std::atomic<int> received{0};
  std::function<void()> bounce = [&] {
    const int round = received.fetch_add(1) + 1;
    if (round < rounds) {
      EXPECT_TRUE(spawn_on(1 - this_core(), [&] { bounce(); }).has_value());
    }
  };
  machine.on(0, bounce);
  ASSERT_TRUE(HostMachine::wait_until([&] { return received.load() == rounds; }, std::chrono::seconds(50)));
  EXPECT_GT(event_counters(0).sleeps + event_counters(1).sleeps, 100U);
  EXPECT_EQ(event_counters(0).remote_refused + event_counters(1).remote_refused, 0U);
}

}  // namespace
}  // namespace neap
