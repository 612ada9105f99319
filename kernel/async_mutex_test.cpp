// SPDX-License-Identifier: BSL-1.0
#include "kernel/async_mutex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;

TEST(AsyncMutex, OneTaskHoldsItAtATimeAcrossCores) {
  HostMachine machine(3);
  AsyncMutex mutex;
  int entered = 0;  // not atomic: the mutex orders the accesses, and the thread sanitizer checks that
  std::atomic<int> inside{0}, overlaps{0}, done{0};
  const auto work = [&]() -> task<void> {
    for (int i = 0; i < 50; ++i) {
      const AsyncMutex::Lock lock = co_await mutex.lock();
      if (inside.fetch_add(1) != 0) ++overlaps;
      ++entered;
      co_await on_core((this_core() + 1) % 3, [] {});
      inside.fetch_sub(1);
    }
    ++done;
  };
  for (unsigned i = 0; i < 9; ++i) {
    machine.on(i % 3, [&] { start(work()); });
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return done == 9; }));
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(entered, 9 * 50);
}

TEST(AsyncMutex, IsGrantedInTheOrderOfAsking) {
  HostMachine machine(1);
  AsyncMutex mutex;
  std::vector<int> order;
  Completion<>* release = nullptr;
  const auto hold = [&]() -> task<void> {
    Completion<> released;
    release = &released;
    const AsyncMutex::Lock lock = co_await mutex.lock();
    co_await released;
  };
  const auto ask = [&](int number) -> task<void> {
    const AsyncMutex::Lock lock = co_await mutex.lock();
    order.push_back(number);
  };
  machine.on(0, [&] {
    start(hold());
    for (int i = 0; i < 5; ++i) start(ask(i));
  });
  machine.on(0, [&] {
    EXPECT_TRUE(order.empty()) << "a task went on without the mutex";
    release->fulfil();
  });
  std::atomic<bool> all{false};
  EXPECT_TRUE(HostMachine::wait_until([&] {
    machine.on(0, [&] { all = order.size() == 5; });
    return all.load();
  }));
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4}));
}

TEST(AsyncMutex, FreeMutexIsTakenWithoutWaiting) {
  HostMachine machine(1);
  AsyncMutex mutex;
  machine.run(0, [&]() -> task<void> {
    const std::uint64_t before = event_counters(0).events;
    for (int i = 0; i < 3; ++i) {
      AsyncMutex::Lock lock = co_await mutex.lock();
      const AsyncMutex::Lock moved = std::move(lock);
    }
    EXPECT_EQ(event_counters(0).events, before);
  });
}

}  // namespace
}  // namespace neap
