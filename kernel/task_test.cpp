// SPDX-License-Identifier: BSL-1.0
#include "kernel/task.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernel/events.hpp"
#include "tests/host/busy_core.hpp"
#include "tests/host/host_machine.hpp"
#include "tests/host/panics.hpp"

namespace neap {
namespace {

using host::HostMachine;
using namespace std::chrono_literals;

task<int> add(int left, int right) { co_return left + right; }
task<std::unique_ptr<std::string>> make_text(std::string text) { co_return std::make_unique<std::string>(std::move(text)); }
task<int> fail(const char* why) {
  throw std::runtime_error(why);
  co_return 0;
}
task<int> fail_later(const char* why) {
  co_await sleep_for(1us);
  throw std::runtime_error(why);
}

TEST(Task, ReturnsValuesThatOnlyMove) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    EXPECT_EQ(co_await add(2, 3), 5);
    const auto text = co_await make_text(std::string(100, 'x'));
    EXPECT_EQ(text->size(), 100U);
  });
}

TEST(Task, DoesNothingUntilItIsAwaited) {
  int runs = 0;
  HostMachine machine{1};
  machine.run(0, [&]() -> task<void> {
    const auto count = [](int& counted) -> task<void> {
      ++counted;
      co_return;
    };
    {
      auto dropped = count(runs);
    }
    EXPECT_EQ(runs, 0);
    co_await count(runs);
    EXPECT_EQ(runs, 1);
  });
}

TEST(Task, ExceptionIsRethrownInTheAwaitingTask) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    std::string caught;
    try {
      co_await fail("at once");
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "at once");
    try {
      co_await fail_later("later");
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "later");
  });
  EXPECT_THROW(machine.run(0, []() -> task<void> { co_await fail("to the test"); }), std::runtime_error);
}

TEST(Task, MillionAwaitsThatEndAtOnceNeedNoStack) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    struct Stack {
      std::uintptr_t lowest = ~std::uintptr_t{0};
      std::uintptr_t highest = 0;
    } stack;
    const auto one = [](Stack& seen) -> task<int> {
      const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
      seen.lowest = std::min(seen.lowest, here);
      seen.highest = std::max(seen.highest, here);
      co_return 1;
    };
    std::int64_t sum = 0;
    for (int i = 0; i < 1'000'000; ++i) sum += co_await one(stack);
    EXPECT_EQ(sum, 1'000'000);
    EXPECT_LT(stack.highest - stack.lowest, 4'096U);
  });
}

task<int> depth(int levels) {
  if (levels == 0) co_return 0;
  co_return 1 + co_await depth(levels - 1);
}

// 100,000 frames of a debug build need tens of megabytes. The stack of a host thread has only 8 MiB, so the frames must be on the heap.
TEST(Task, DeepChainsLiveOnTheHeap) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> { EXPECT_EQ(co_await depth(100'000), 100'000); });
}

TEST(Task, StartRunsFromTheNextEventOn) {
  std::vector<int> order;
  std::atomic<bool> done{false};
  const auto append = [&](int number) -> task<void> {
    order.push_back(number);
    co_return;
  };
  HostMachine machine{1};
  machine.on(0, [&] {
    start(append(2));
    spawn([&] { order.push_back(3); });
    start([](std::atomic<bool>& flag) -> task<void> {
      flag = true;
      co_return;
    }(done));
    order.push_back(1);
  });
  ASSERT_TRUE(HostMachine::wait_until([&] { return done.load(); }));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(Task, SleepForIsNeverShortAndLetsOthersRun) {
  std::atomic<int> others{0};
  HostMachine machine{1};
  machine.on(0, [&] { spawn([&] { ++others; }); });
  machine.run(0, [&]() -> task<void> {
    const std::uint64_t begin = machine::now_ns();
    co_await sleep_for(5ms);
    EXPECT_GE(machine::now_ns() - begin, 5'000'000U);
    spawn([&] { ++others; });
    co_await sleep_for(0ns);
    EXPECT_EQ(others, 2);
  });
}

TEST(Task, CompletionMayBeFulfilledBeforeOrAfterTheAwait) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    Completion<std::unique_ptr<int>> early;
    early.fulfil(std::make_unique<int>(1));
    EXPECT_EQ(*co_await early, 1);
    Completion<int> late;
    bool in_event_of_its_own = false;
    spawn([&] {
      late.fulfil(2);
      in_event_of_its_own = true;
    });
    EXPECT_EQ(co_await late, 2);
    EXPECT_TRUE(in_event_of_its_own) << "resumed inside fulfil";
    Completion<> nothing;
    spawn([&] { nothing.fulfil(); });
    co_await nothing;
    EXPECT_TRUE(nothing.fulfilled());
  });
}

TEST(Task, OnCoreRunsThereAndReturnsHere) {
  HostMachine machine{3};
  machine.run(1, []() -> task<void> {
    for (unsigned core = 0; core < 3; ++core) {
      EXPECT_EQ(co_await on_core(core, [] { return this_core(); }), core);
      EXPECT_EQ(this_core(), 1U);
    }
    auto kept = std::make_unique<int>(41);
    auto call = [kept = std::move(kept)]() mutable {
      ++*kept;
      return std::move(kept);
    };
    const auto result = co_await on_core(2, std::move(call));
    EXPECT_EQ(*result, 42);
    std::string caught;
    try {
      co_await on_core(0, []() -> int { throw std::runtime_error("there"); });
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "there");
    EXPECT_EQ(this_core(), 1U);
  });
}

TEST(Task, OnCoreWorksWhileTheRemoteQueueIsFull) {
  std::atomic<unsigned> spawned{0};
  std::atomic<int> calls{0}, returns{0};
  HostMachine machine{2};
  host::BusyCore busy(machine, 1);
  machine.on(0, [&] {
    while (spawn_on(1, [&] { ++spawned; }).has_value()) {
    }
    for (int i = 0; i < 1'000; ++i) {
      start([](std::atomic<int>& called, std::atomic<int>& returned) -> task<void> {
        co_await on_core(1, [&called] { ++called; });
        ++returned;
      }(calls, returns));
    }
  });
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(calls, 0);
  busy.release();
  EXPECT_TRUE(HostMachine::wait_until([&] { return returns == 1'000 && spawned == remote_queue_capacity; }));
  EXPECT_EQ(calls, 1'000);
}

TEST(Task, ManyTasksBetweenCoresAllEnd) {
  constexpr int tasks_each = 200, hops = 50;
  std::atomic<int> ended{0};
  HostMachine machine{4};
  for (unsigned core = 0; core < 4; ++core) {
    machine.on(core, [&] {
      for (int i = 0; i < tasks_each; ++i) {
        start([](std::atomic<int>& counter, unsigned home) -> task<void> {
          for (int hop = 0; hop < hops; ++hop) {
            const unsigned there = (home + static_cast<unsigned>(hop)) % core_count();
            EXPECT_EQ(co_await on_core(there, [] { return this_core(); }), there);
            EXPECT_EQ(this_core(), home);
            if (hop % 10 == 0) co_await sleep_for(100us);
          }
          ++counter;
        }(ended, this_core()));
      }
    });
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended == 4 * tasks_each; }, 50s));
  for (unsigned core = 0; core < 4; ++core) machine.on(core, [] {});
}

TEST(TaskDeathTest, ExceptionOutOfAStartedTaskIsAPanic) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  host::expect_panic("std::out_of_range: no one listens", [] {
    HostMachine machine{1};
    machine.on(0, [] {
      start([]() -> task<void> {
        co_await sleep_for(1ms);
        throw std::out_of_range("no one listens");
      }());
    });
    std::this_thread::sleep_for(10s);
  });
}

TEST(TaskDeathTest, MisusedCompletionIsAPanic) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  host::expect_panic("fulfilled once", [] {
    Completion<int> twice;
    twice.fulfil(1);
    twice.fulfil(2);
  });
}

}  // namespace
}  // namespace neap
