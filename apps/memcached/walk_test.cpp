// SPDX-License-Identifier: BSL-1.0
// A pass over all items (`Store::Walk`), while the table grows and items change between its steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "apps/memcached/store.hpp"
#include "apps/memcached/test_server.hpp"

namespace neap::memcached {
namespace {

using test::put;

std::string name(int number) { return "k" + std::to_string(number); }

/// The number of visits of each key.
using Visits = std::map<std::string, unsigned, std::less<>>;

TEST(Walk, VisitsEachItemOnceInStepsOfBoundedWork) {
  Store store(test::small_store());
  constexpr int items = 5000;
  constexpr unsigned budget = 16;
  for (int i = 0; i < items; ++i) (void)put(store, Mode::set, name(i), "v", 2);
  Visits visits;
  Store::Walk walk(store);
  unsigned steps = 0;
  for (bool more = true; more; ++steps) {
    unsigned visited = 0;
    more = walk.step(budget, [&](Item& item) {
      ++visits[std::string(item.key())];
      ++visited;
    });
    ASSERT_LE(visited, budget + 16) << "a step exceeds its budget by more than one chain of a table with a good hash";
  }
  EXPECT_GE(steps, (items + store.table().bucket_count()) / (budget + 16));
  EXPECT_EQ(visits.size(), static_cast<std::size_t>(items));
  for (const auto& [key, count] : visits) ASSERT_EQ(count, 1U) << key;
  EXPECT_FALSE(walk.step(budget, [](Item&) { FAIL() << "an item after the end of the pass"; }));
}

// The table grows from 4 buckets to thousands during the pass. Items are added, replaced and removed, too.
TEST(Walk, SurvivesGrowthAndChanges) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    std::mt19937 random(seed);
    StoreOptions options = test::small_store();
    options.seed = {seed};
    Store store(options);
    constexpr int kept = 40;  // these keys are stored during the whole pass
    for (int i = 0; i < kept; ++i) (void)put(store, Mode::set, name(i), "v", 2);
    Visits visits;
    Store::Walk walk(store);
    const std::uint32_t buckets_before = store.table().bucket_count();
    int next = kept;
    while (walk.step(1, [&](Item& item) { ++visits[std::string(item.key())]; })) {
      for (int i = 0; i < (next < 3000 ? 60 : 2); ++i) {
        if (next < 3000) (void)put(store, Mode::set, name(next++), "v", 2);
        (void)put(store, Mode::set, name(static_cast<int>(random() % kept)), "w", 2);
        const int other = kept + static_cast<int>(random() % 1000);
        (void)store.remove(store.key(name(other)), 0, 2);
        if (random() % 2 == 0) (void)put(store, Mode::set, name(other), "x", 2);
      }
    }
    EXPECT_GE(store.table().bucket_count(), buckets_before * 16);
    for (int i = 0; i < kept; ++i) ASSERT_EQ(visits[name(i)], 1U) << i;
    for (const auto& [key, count] : visits) ASSERT_LE(count, 1U) << key;
  }
}

// The visitor may remove the item that it gets, as the crawler does.
TEST(Walk, TheVisitorMayRemoveItsItem) {
  Store store(test::small_store());
  for (int i = 0; i < 1000; ++i) (void)put(store, Mode::set, name(i), "v", 2, i % 2 == 0 ? 5 : expires_never);
  Store::Walk walk(store);
  while (walk.step(10, [&](Item& item) {
    if (store.is_dead(item, 5)) EXPECT_TRUE(store.find({.text = item.key(), .hash = item.hash}, 5).expired);
  })) {
  }
  EXPECT_EQ(store.counters().items, 500U);
  EXPECT_EQ(store.counters().reclaimed, 500U);
}

}  // namespace
}  // namespace neap::memcached
