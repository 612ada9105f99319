// SPDX-License-Identifier: BSL-1.0
// The crawler on simulated cores, in virtual time: expired items are freed without a request for them, and a machine without such items is
// not woken.
#include "apps/memcached/crawler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "apps/memcached/store.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

using host::HostMachine;
using namespace std::chrono_literals;

constexpr std::uint64_t second_ns = 1'000'000'000;

struct CrawlerTest : testing::Test {
  static constexpr unsigned cores = 2, crawler_core = 0, other_core = 1;
  host::ManualClock time{5 * second_ns};
  HostMachine machine{cores};
  const Clock clock{[]() noexcept { return machine::now_ns(); }, 1'700'000'000};
  Store store{{.seed = {5}, .cores = cores}};
  std::unique_ptr<Crawler> crawler;

  void SetUp() override {
    machine.on(crawler_core, [this] { crawler = std::make_unique<Crawler>(store, clock); });
  }
  void TearDown() override {
    machine.on(crawler_core, [this] { crawler.reset(); });
    // All retired items are reclaimed before the store is destroyed.
    EXPECT_TRUE(HostMachine::wait_until([this] {
      for (unsigned core = 0; core < cores; ++core) machine.on(core, [] {});
      return store.retired_bytes() == 0;
    }));
  }
  /// Stores `items` items that expire `in_s` from now; 0: never.
  void put(unsigned core, const std::string& prefix, int items, Seconds in_s) {
    machine.on(core, [&] {
      const Seconds now = clock.now();
      for (int i = 0; i < items; ++i) {
        const std::string name = prefix + std::to_string(i);
        ASSERT_EQ(store.set(store.key(name), 0, in_s == 0 ? expires_never : now + in_s, "value", now).outcome, Outcome::stored);
      }
    });
  }
  [[nodiscard]] std::uint64_t items() const { return store.counters().items; }
  [[nodiscard]] bool items_become(std::uint64_t expected) {
    return HostMachine::wait_until([&] { return items() == expected; });
  }
  /// Waits until both cores sleep.
  void settle() {
    ASSERT_TRUE(HostMachine::wait_until([] { return host::asleep_in(0) && host::asleep_in(1); }));
    ASSERT_TRUE(HostMachine::settled([] { return event_counters(0).sleeps + event_counters(1).sleeps; }, 20ms));
  }
};

TEST_F(CrawlerTest, FreesExpiredItemsThatNobodyAsksFor) {
  put(crawler_core, "short", 3000, 10);
  put(crawler_core, "long", 500, 1000);
  put(crawler_core, "ever", 500, 0);
  time.advance(9s);
  settle();
  EXPECT_EQ(items(), 4000U);
  EXPECT_EQ(store.counters().crawler_starts, 0U);
  time.advance(2s);
  EXPECT_TRUE(items_become(1000));
  settle();
  EXPECT_EQ(store.counters().crawler_reclaimed, 3000U);
  EXPECT_EQ(store.sizes()[Store::first_size_class].crawler_reclaimed, 3000U);
  EXPECT_EQ(store.counters().crawler_checked, 4000U);
  EXPECT_EQ(store.counters().crawler_starts, 1U);
  time.advance(1000s);
  EXPECT_TRUE(items_become(500));
  EXPECT_EQ(store.counters().evictions, 0U);
}

// Neither an empty store nor one without items that expire sets an alarm or wakes a core.
TEST_F(CrawlerTest, NothingThatExpiresMeansNoWakeUp) {
  put(crawler_core, "ever", 1000, 0);
  put(other_core, "too", 1000, 0);
  settle();
  const auto sleeps = [] { return event_counters(0).sleeps + event_counters(1).sleeps; };
  const std::uint64_t before = sleeps();
  for (unsigned core = 0; core < cores; ++core) EXPECT_EQ(host::alarm_of(core), machine::alarm_none);
  for (int i = 0; i < 100; ++i) time.advance(100s);
  settle();
  EXPECT_EQ(sleeps(), before);
  EXPECT_EQ(store.counters().crawler_starts, 0U);
}

// An item of another core that expires earlier than all others brings the crawler's alarm forward.
TEST_F(CrawlerTest, AnEarlierExpiryOnAnotherCorePlansAnew) {
  put(other_core, "later", 10, 5000);
  settle();
  const std::uint64_t late = host::alarm_of(crawler_core);
  EXPECT_GE(late, machine::now_ns() + 4999 * second_ns);
  put(other_core, "soon", 10, 3);
  settle();
  EXPECT_LE(host::alarm_of(crawler_core), machine::now_ns() + 3 * second_ns + second_ns / 100);
  EXPECT_EQ(host::alarm_of(other_core), machine::alarm_none);
  time.advance(4s);
  EXPECT_TRUE(items_become(10));
}

TEST_F(CrawlerTest, ATouchIsNoted) {
  put(crawler_core, "item", 1, 0);
  machine.on(other_core, [&] { EXPECT_NE(store.touch(store.key("item0"), clock.now() + 7, clock.now()).item, nullptr); });
  time.advance(8s);
  EXPECT_TRUE(items_become(0));
}

// Something expires at every moment. The crawler still wakes the machine at most once a second.
TEST_F(CrawlerTest, WakesAtMostOnceASecond) {
  for (Seconds at = 1; at <= 20; ++at) put(crawler_core, "at" + std::to_string(at) + "-", 50, at);
  settle();
  constexpr int seconds = 20, parts = 3;
  for (int i = 0; i < seconds * parts; ++i) {
    time.advance(std::chrono::milliseconds(1000 / parts));
    settle();
  }
  EXPECT_LE(store.counters().crawler_starts, static_cast<unsigned>(seconds));
  EXPECT_GE(store.counters().crawler_starts, static_cast<unsigned>(seconds) / 2);
  time.advance(2s);
  EXPECT_TRUE(items_become(0));
}

// The core takes interrupts and runs events between two steps, because each step is a call of an idle hook. So a step must be short.
TEST_F(CrawlerTest, AStepIsShort) {
  put(crawler_core, "ever", 20'000, 0);
  put(crawler_core, "soon", 1, 1);
  std::uint64_t checked = 0, largest = 0;
  std::unique_ptr<IdleHook> observer;
  machine.on(crawler_core, [&] {
    observer = std::make_unique<IdleHook>([&] {
      const std::uint64_t now = store.counters().crawler_checked;
      largest = std::max(largest, now - checked);
      checked = now;
      return false;
    });
  });
  time.advance(2s);
  EXPECT_TRUE(items_become(20'000));
  EXPECT_TRUE(HostMachine::wait_until([&] { return store.counters().crawler_checked >= 20'000; }));
  settle();
  machine.on(crawler_core, [&] { observer.reset(); });
  EXPECT_GT(largest, 0U);
  EXPECT_LE(largest, Crawler::step_budget + 16) << "a chain of a table with a good hash has fewer than 16 items";
}

}  // namespace
}  // namespace neap::memcached
