// SPDX-License-Identifier: BSL-1.0
// Tests of the parts that build on events: callbacks, Ebbs, the RCU table, when_all and cancellation.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "kernel/callback.hpp"
#include "kernel/cancellation.hpp"
#include "kernel/counter.hpp"
#include "kernel/ebb.hpp"
#include "kernel/rcu_table.hpp"
#include "kernel/task.hpp"
#include "kernel/when_all.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using host::HostMachine;
using namespace std::chrono_literals;

// --- Callback ----------------------------------------------------------------------------------------------------------------------------
TEST(Callback, OwnsCapturesOfAnySize) {
  const auto witness = std::make_shared<int>(0);
  {
    Callback small([witness] { ++*witness; });
    Callback large([witness, padding = std::array<char, 200>{}] { *witness += 10 + padding[0]; });
    EXPECT_EQ(witness.use_count(), 3);
    small();
    large();
    Callback moved(std::move(small));
    EXPECT_TRUE(small == nullptr);
    moved();
    small = std::move(large);
    small();
    moved = nullptr;
    EXPECT_TRUE(moved == nullptr);
    EXPECT_EQ(witness.use_count(), 2);
    moved = [witness] { *witness += 100; };
    moved();
  }
  EXPECT_EQ(witness.use_count(), 1);
  EXPECT_EQ(*witness, 122);
}

// --- Ebb ---------------------------------------------------------------------------------------------------------------------------------
struct Tally {
  Tally() : home(this_core()) { ++made; }
  unsigned home;
  Counter calls;
  static inline std::atomic<unsigned> made{0};
};
constexpr Ebb<Tally> tally;
constexpr Ebb<Tally, struct OtherName> other_tally;

TEST(Ebb, EachCoreHasItsOwnObjectMadeAtTheFirstUse) {
  HostMachine machine{4};
  EXPECT_EQ(Tally::made, 0U);
  EXPECT_EQ(tally.on(2), nullptr);
  for (unsigned core = 1; core < 4; ++core) {
    for (unsigned i = 0; i < core; ++i) {
      machine.on(core, [core] {
        EXPECT_EQ(tally->home, core);
        tally->calls.add();
      });
    }
  }
  machine.on(1, [] { other_tally->calls.add(100); });
  EXPECT_EQ(Tally::made, 4U);
  EXPECT_EQ(tally.on(0), nullptr);
  for (unsigned core = 1; core < 4; ++core) EXPECT_EQ(tally.on(core)->calls.value(), core);
}

// --- RCU table ---------------------------------------------------------------------------------------------------------------------------
TEST(RcuTable, InsertsFindsReplacesAndErases) {
  HostMachine machine{1};
  machine.on(0, [] {
    rcu::Table<std::string, int> table(3);
    EXPECT_TRUE(table.insert("a", 1));
    EXPECT_FALSE(table.insert("a", 2)) << "the key exists";
    EXPECT_EQ(*table.find("a"), 1);
    EXPECT_FALSE(table.replace("a", 3));
    EXPECT_TRUE(table.replace("b", 4));
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(table.insert(std::to_string(i), i));
    EXPECT_EQ(table.size(), 102U);
    int sum = 0;
    table.for_each([&](const std::string&, int value) { sum += value; });
    EXPECT_EQ(sum, 99 * 50 + 3 + 4);
    EXPECT_TRUE(table.erase("a"));
    EXPECT_FALSE(table.erase("a"));
    EXPECT_EQ(table.find("a"), nullptr);
    EXPECT_EQ(*table.find("99"), 99);
  });
}

// Readers on two cores walk hash chains that two writers change. A reader sees no half-written entry and no freed one (a sanitizer checks
// that), and it finds every entry that was not removed.
TEST(RcuTable, ReadersSeeCompleteEntriesWhileWritersReplaceAndErase) {
  constexpr unsigned keys = 64, changes = 20'000;
  struct Pair {
    unsigned key = 0, copy = 0;
    std::unique_ptr<unsigned> owned;
  };
  rcu::Table<unsigned, Pair> table(8);
  const auto pair = [](unsigned key) { return Pair{key, key, std::make_unique<unsigned>(key)}; };
  std::atomic<unsigned> writers{2}, wrong{0};
  std::atomic<std::uint64_t> seen{0};
  std::function<void(unsigned)> read = [&](unsigned at) {
    for (unsigned i = 0; i < keys; ++i) {
      const Pair* const found = table.find(i);
      if (found == nullptr) {
        if (i % 2 == 0) ++wrong;  // even keys are replaced, never removed
        continue;
      }
      ++seen;
      if (found->key != i || found->copy != i || *found->owned != i) ++wrong;
    }
    if (writers != 0) spawn([&, at] { read(at + 1); });
  };
  std::function<void(unsigned, unsigned)> write = [&](unsigned step, unsigned left) {
    const unsigned key = (left * step) % keys;
    if (key % 2 == 0) {
      table.replace(key, pair(key));
    } else if (!table.erase(key)) {
      table.insert(key, pair(key));
    }
    if (left == 0) {
      --writers;
    } else {
      spawn([&, step, left] { write(step, left - 1); });
    }
  };
  {
    HostMachine machine{4};
    machine.on(0, [&] {
      for (unsigned i = 0; i < keys; ++i) EXPECT_TRUE(table.insert(i, pair(i)));
    });
    machine.on(2, [&] { read(0); });
    machine.on(3, [&] { read(0); });
    machine.on(0, [&] { write(7, changes); });
    machine.on(1, [&] { write(13, changes); });
    ASSERT_TRUE(HostMachine::wait_until([&] { return writers == 0; }, 60s));
    // All retired entries are reclaimed.
    for (unsigned core = 0; core < 2; ++core) {
      EXPECT_TRUE(HostMachine::wait_until([&] { return machine.value_on(core, [] { return rcu::pending(); }) == 0; }));
    }
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(seen, 1000U);
}

// --- Several tasks -----------------------------------------------------------------------------------------------------------------------
task<int> later(std::chrono::nanoseconds delay, int value) {
  co_await sleep_for(delay);
  co_return value;
}
task<void> note(std::vector<int>& order, std::chrono::nanoseconds delay, int value) {
  co_await sleep_for(delay);
  order.push_back(value);
}
task<int> fails(const char* why) {
  co_await sleep_for(1ms);
  throw std::runtime_error(why);
}

TEST(WhenAll, RunsTasksConcurrentlyAndReturnsTheirValuesInOrder) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    std::vector<int> order;
    auto [first, second, third] = co_await when_all(later(20ms, 1), note(order, 5ms, 2), later(0ns, 3));
    EXPECT_EQ(first, 1);
    EXPECT_EQ(second, std::monostate{});
    EXPECT_EQ(third, 3);
    std::vector<task<int>> many;
    for (int i = 0; i < 100; ++i) many.push_back(later(std::chrono::microseconds(100 * (100 - i)), i));
    const auto values = co_await when_all(std::move(many));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
    EXPECT_TRUE((co_await when_all(std::vector<task<void>>{})).empty());
  });
}

TEST(WhenAll, WaitsForAllEvenIfOneFails) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    std::vector<int> order;
    std::string caught;
    try {
      co_await when_all(note(order, 10ms, 1), fails("first"), fails("second"), note(order, 20ms, 2));
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "first");
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
  });
}

TEST(OnEachCore, RunsOnAllCoresConcurrently) {
  for (const unsigned cores : {1U, 2U, 4U}) {
    HostMachine machine{cores};
    std::atomic<unsigned> inside{0}, calls{0};
    machine.run(cores - 1, [&]() -> task<void> {
      co_await on_each_core([&] {
        ++inside;
        while (inside < cores) {  // no call ends before all cores are in the call
        }
        calls += 1 + this_core();
      });
    });
    EXPECT_EQ(calls, cores * (cores + 1) / 2);
  }
}

TEST(OnCore, TaskRunsThereToItsEndAndReturnsItsOutcome) {
  HostMachine machine{2};
  machine.run(0, []() -> task<void> {
    const auto there = []() -> task<std::unique_ptr<unsigned>> {
      const unsigned begun = this_core();
      co_await sleep_for(1ms);
      EXPECT_EQ(begun, this_core());
      co_return std::make_unique<unsigned>(this_core());
    };
    const auto core = co_await on_core(1, there);
    EXPECT_EQ(*core, 1U);
    EXPECT_EQ(this_core(), 0U);
    std::string caught;
    const auto failing = [] { return fails("over there"); };
    try {
      co_await on_core(1, failing);
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "over there");
    const auto nothing = []() -> task<void> { co_await sleep_for(0ns); };
    co_await on_core(1, nothing);
    EXPECT_EQ(this_core(), 0U);
  });
}

// --- Cancellation ------------------------------------------------------------------------------------------------------------------------
/// Records its outcome in `outcome`. The use count of `held` shows whether the task's locals are destroyed.
task<void> wait_deep(std::string& outcome, std::shared_ptr<int> held) {
  const auto inner = [](std::shared_ptr<int> kept) -> task<void> {
    co_await sleep_for(1h);
    ++*kept;
  };
  try {
    co_await inner(held);
    outcome = "ended";
  } catch (const Cancelled&) {
    outcome = "cancelled";
  }
}

TEST(Cancellation, EndsANestedSleepAndDestroysItsLocals) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    const auto held = std::make_shared<int>(0);
    std::string outcome;
    {
      Cancellation cancellation;
      Timer timer;
      timer.arm(2ms, [&] { cancellation.request(); });
      co_await cancelled_by(cancellation, wait_deep(outcome, held));
      EXPECT_EQ(outcome, "cancelled");
      EXPECT_EQ(held.use_count(), 1);
      // A sleep after the cancellation ends at once.
      co_await cancelled_by(cancellation, wait_deep(outcome, held));
      cancellation.request();
    }
    EXPECT_EQ(outcome, "cancelled");
    EXPECT_EQ(*held, 0);
  });
}

TEST(Cancellation, ReachesAllTasksOfWhenAllAndNoOthers) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    Cancellation cancellation;
    std::array<std::string, 3> outcomes;
    std::string other;
    bool other_ended = false;
    start([](std::string& outcome, bool& ended) -> task<void> {
      co_await sleep_for(5ms);
      outcome = "ended";
      ended = true;
    }(other, other_ended));
    const auto all = [](std::array<std::string, 3>& into) -> task<void> {
      std::vector<task<void>> works;
      for (std::string& outcome : into) works.push_back(wait_deep(outcome, std::make_shared<int>(0)));
      co_await when_all(std::move(works));
    };
    spawn([&] { cancellation.request(); });
    co_await cancelled_by(cancellation, all(outcomes));
    for (const std::string& outcome : outcomes) EXPECT_EQ(outcome, "cancelled");
    while (!other_ended) co_await sleep_for(1ms);
    EXPECT_EQ(other, "ended");
  });
}

TEST(Cancellation, EndsTheWaitForAnUnfulfilledCompletionOnly) {
  HostMachine machine{1};
  machine.run(0, []() -> task<void> {
    const auto wait = [](Completion<int>& completion, std::string& outcome) -> task<void> {
      try {
        outcome = std::to_string(co_await completion.or_cancelled());
      } catch (const Cancelled&) {
        outcome = "cancelled";
      }
    };
    Completion<int> given_up, fulfilled, early;
    std::string first, second, third, fourth;
    {
      Cancellation cancellation;
      spawn([&] { cancellation.request(); });
      co_await cancelled_by(cancellation, wait(given_up, first));
      given_up.fulfil(1);  // no task waits any longer
    }
    {
      Cancellation cancellation;
      spawn([&] {
        fulfilled.fulfil(2);
        cancellation.request();
      });
      co_await cancelled_by(cancellation, wait(fulfilled, second));
      early.fulfil(3);
      co_await cancelled_by(cancellation, wait(early, third));
    }
    Completion<int> without;
    spawn([&] { without.fulfil(4); });
    co_await wait(without, fourth);
    EXPECT_EQ(first, "cancelled");
    EXPECT_EQ(second, "2");
    EXPECT_EQ(third, "3") << "a fulfilled completion is no wait";
    EXPECT_EQ(fourth, "4");
  });
}

}  // namespace
}  // namespace neap
