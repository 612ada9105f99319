// SPDX-License-Identifier: BSL-1.0
// Each core counts bytes and takes CAS ids for itself. The sums are exact when no core stores, the limit holds, and an id is used once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/memcached/store.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

using host::HostMachine;
constexpr Seconds now = 2;
constexpr unsigned cores = 4;

StoreOptions options_for(std::size_t memory_bytes) {
  StoreOptions options;
  options.memory_bytes = memory_bytes;
  options.buckets = 1 << 12;
  options.seed = {3};
  options.cores = cores;
  return options;
}

/// Stores items on one core, in an event of its own. Returns the CAS id of the last one; 0 if an item was refused.
std::uint64_t set(HostMachine& machine, unsigned core, Store& store, const std::string& key, std::size_t bytes, unsigned items = 1) {
  return machine.value_on(core, [&] {
    Store::Stored stored{};
    const std::string value(bytes, 'v');
    for (unsigned item = 0; item < items && (item == 0 || stored.outcome == Outcome::stored); ++item) {
      const std::string name = items == 1 ? key : key + std::to_string(item);
      stored = store.set(store.key(name), 0, expires_never, value, now);
    }
    return stored.outcome == Outcome::stored ? stored.cas : 0;
  });
}

bool finds(HostMachine& machine, unsigned core, Store& store, const std::string& key) {
  return machine.value_on(core, [&] { return store.find(store.key(key), now).item != nullptr; });
}

void reclaim_all(HostMachine& machine, const Store& store) {
  EXPECT_TRUE(HostMachine::wait_until([&] {
    for (unsigned core = 0; core < cores; ++core) machine.on(core, [] {});
    return store.retired_bytes() == 0;
  }));
}

// Clients may ask whether an item is older than their copy (memcached's flag I), and cores take ids in advance.
TEST(StoreAccounts, TheIdsOfAKeyGrowOnAllCores) {
  Store store(options_for(1 << 20));
  HostMachine machine{cores};
  std::uint64_t last = 0;
  for (unsigned i = 0; i < 3 * cores; ++i) {
    const std::uint64_t cas = set(machine, (i * 3) % cores, store, "key", 10);
    EXPECT_GT(cas, last) << i;
    last = cas;
  }
  reclaim_all(machine, store);
}

// A core takes CAS ids in advance. After a flush on another core it must not use them, because items with these ids are flushed.
TEST(StoreAccounts, AnItemStoredAfterAFlushOfAnotherCoreStays) {
  Store store(options_for(1 << 20));
  HostMachine machine{cores};
  for (unsigned core = 0; core < cores; ++core) ASSERT_NE(set(machine, core, store, "before" + std::to_string(core), 10), 0U);
  EXPECT_TRUE(machine.value_on(0, [&] {
    store.flush(0, now);
    return true;
  }));
  for (unsigned core = 0; core < cores; ++core) ASSERT_NE(set(machine, core, store, "behind" + std::to_string(core), 10), 0U);
  for (unsigned core = 0; core < cores; ++core) {
    EXPECT_FALSE(finds(machine, 0, store, "before" + std::to_string(core)));
    EXPECT_TRUE(finds(machine, 0, store, "behind" + std::to_string(core)));
  }
  reclaim_all(machine, store);
}

TEST(StoreAccounts, EachCasIdIsUsedOnceAndGrowsOnACore) {
  Store store(options_for(8 << 20));
  HostMachine machine{cores};
  std::vector<std::uint64_t> all;
  for (unsigned round = 0; round < 700; ++round) {
    for (unsigned core = 0; core < cores; ++core) {
      all.push_back(set(machine, core, store, "key", 10));
      ASSERT_TRUE(round == 0 || all.back() > all[all.size() - 1 - cores]);
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  reclaim_all(machine, store);
}

// The reserves of the cores count against the limit, so that it is never exceeded. They are at most 1/256 of it.
TEST(StoreAccounts, ReservesMakeTheCacheSmallerByLittleAndNeverLarger) {
  constexpr std::size_t limit = 16 << 20, item_bytes = 1000;
  Store store(options_for(limit));
  HostMachine machine{cores};
  const std::size_t footprint = Store::footprint(8, item_bytes);
  for (unsigned round = 0; round < 60; ++round) {
    for (unsigned core = 0; core < cores; ++core) {
      const std::string prefix = std::to_string(round % 30) + "." + std::to_string(core) + ".";  // the second half replaces the first
      ASSERT_NE(set(machine, core, store, prefix, item_bytes, 200), 0U);
      ASSERT_LE(store.used_bytes() + store.held_bytes(), limit);
      ASSERT_EQ(store.used_bytes(), store.counters().bytes);
      reclaim_all(machine, store);
    }
  }
  EXPECT_GT(store.counters().evictions, 0U);
  EXPECT_GE(store.used_bytes(), limit - limit / 256 - 2 * footprint);
}

// What replies hold counts against the limit, too. A core with a reserve must notice it, although the reserve suffices for its items.
TEST(StoreAccounts, ACoreWithAReserveEvictsWhenRepliesNeedTheMemory) {
  constexpr std::size_t limit = 16 << 20, held = 4 << 20;
  Store store(options_for(limit));
  HostMachine machine{cores};
  for (unsigned round = 0; round < 40; ++round) ASSERT_NE(set(machine, 1, store, std::to_string(round) + ".", 1000, 400), 0U);
  reclaim_all(machine, store);
  store.charge_held(held);
  for (unsigned round = 0; round < 400; ++round) {
    ASSERT_NE(set(machine, 1, store, "0." + std::to_string(round), 1000), 0U);  // replaces an item
    reclaim_all(machine, store);
  }
  EXPECT_LE(store.used_bytes() + store.held_bytes(), limit);
  store.discharge_held(held);
}

}  // namespace
}  // namespace neap::memcached
