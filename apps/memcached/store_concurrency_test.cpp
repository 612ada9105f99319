// SPDX-License-Identifier: BSL-1.0
// One, two and four simulated cores use one store, each in its own event loop. A reader must find one whole value of its key, while other
// cores change the item and the table. The test is for runs under the thread and address sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "apps/memcached/store.hpp"
#include "apps/memcached/test_values.hpp"
#include "kernel/events.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

using host::HostMachine;

/// Returns a value that can be checked: a length, the key's number, and the alphabet from a letter that depends on the key. It is made from
/// long pieces, because the test makes and checks many long values.
std::string make_value(unsigned key, std::size_t bytes) {
  static const std::string alphabets = [] {
    std::string made;
    while (made.size() < std::size_t{26} * 1000) made += "abcdefghijklmnopqrstuvwxyz";
    return made;
  }();
  std::string value = std::to_string(key) + "/" + std::to_string(bytes) + "/";
  while (value.size() < bytes) {
    const std::size_t from = (key + value.size()) % 26;
    value.append(alphabets, from, std::min(bytes - value.size(), alphabets.size() - from));
  }
  return value;
}

bool is_whole(unsigned key, std::string_view value) {
  const std::size_t first = value.find('/');
  const std::size_t second = value.find('/', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  const std::size_t bytes = std::stoul(std::string(value.substr(first + 1, second - first - 1)));
  return value == make_value(key, bytes);
}

bool is_long(const Item& item) { return item.value_bytes > contiguous_bytes_max; }

struct Worker {
  std::mt19937 random;
  Store* store;
  unsigned keys;
  unsigned long_share;  // one value of so many is in pieces; 0: none
  int events_left;
  std::vector<std::pair<unsigned, ItemPointer>> held;  // items held over several events, as by replies, at most one long one
  std::atomic<bool> done{false};
  std::uint64_t hits = 0, broken = 0, refused = 0;

  std::optional<Store::Walk> walk;  // each core crawls; a machine has one crawler, which is a simpler case
  void crawl() {
    if (!walk) {
      store->begin_crawl();
      walk.emplace(*store);
    }
    if (!store->crawl(*walk, 16, 2).more) walk.reset();
  }

  void one_event() {
    crawl();
    for (int step = 0; step < 20; ++step) {
      const auto number = static_cast<unsigned>(random() % keys);
      const std::string name = "key" + std::to_string(number);
      const Seconds now = 2 + static_cast<Seconds>(random() % 3);  // cores may read slightly different times
      const Key key = store->key(name);
      store->tick(now);
      switch (random() % 16) {
        case 0:
        case 1:
        case 2: {
          const bool makes_long = long_share != 0 && random() % long_share == 0;
          const std::string value = make_value(number, makes_long ? contiguous_bytes_max + 1 + random() % 100'000 : random() % 300);
          auto [item, outcome] = store->allocate(key, number, random() % 8 == 0 ? now + 1 : 0, value.size(), now);
          if (!item) {
            ++refused;
            break;
          }
          item->fill(0, value);
          static constexpr Mode modes[] = {Mode::set, Mode::set, Mode::add, Mode::replace};
          (void)store->commit(modes[random() % 4], std::move(item), 0, now);
          break;
        }
        case 3:
          (void)store->remove(key, 0, now);
          break;
        case 4:
          (void)store->touch(key, random() % 4 == 0 ? now + 2 : 0, now);
          break;
        case 5:
          if (random() % 500 == 0) store->flush(0, now);
          break;
        default: {
          Item* const item = store->find(key, now).item;
          if (item == nullptr) break;
          ++hits;
          if (item->flags != number || !is_whole(number, test::value_in(*item))) ++broken;
          if (random() % 16 == 0) {
            if (is_long(*item)) std::erase_if(held, [](const auto& one) { return is_long(*one.second.get()); });
            item->hold();
            held.emplace_back(number, item);
          }
        }
      }
    }
    while (held.size() > 8) {
      if (!is_whole(held.front().first, test::value_in(*held.front().second.get()))) ++broken;
      held.erase(held.begin());
    }
    if (--events_left > 0) {
      spawn([this] { one_event(); });
    } else {
      held.clear();
      done = true;
    }
  }
};

/// Runs `events_max` events on each core if `cores` is 4, otherwise a quarter of them, because fewer cores have fewer interleavings.
void play(unsigned cores, StoreOptions options, unsigned keys, int events_max, unsigned long_share = 0) {
  options.cores = cores;
  const int events = cores == 4 ? events_max : events_max / 4;
  Store store(options);
  std::vector<Worker> workers(cores);
  {
    HostMachine machine{cores};
    for (unsigned core = 0; core < cores; ++core) {
      workers[core].random.seed(core + 1);
      workers[core].store = &store;
      workers[core].keys = keys;
      workers[core].long_share = long_share;
      workers[core].events_left = events;
      machine.on(core, [&worker = workers[core]] { worker.one_event(); });
    }
    for (Worker& worker : workers) {
      ASSERT_TRUE(HostMachine::wait_until([&] { return worker.done.load(); }, std::chrono::seconds(100)));
    }
    // Every unlinked item is reclaimed once all cores have passed an event boundary.
    EXPECT_TRUE(HostMachine::wait_until([&] { return store.retired_bytes() == 0; }));
  }
  std::uint64_t hits = 0;
  for (const Worker& worker : workers) {
    EXPECT_EQ(worker.broken, 0U);
    EXPECT_EQ(worker.refused, 0U);
    hits += worker.hits;
  }
  EXPECT_GT(hits, static_cast<std::uint64_t>(events) * cores / 4);
  if (long_share != 0) EXPECT_GT(store.counters().evictions, 0U);
  EXPECT_EQ(store.held_bytes(), 0U);
  EXPECT_EQ(store.used_bytes(), store.counters().bytes);
}

StoreOptions tiny_table() {
  StoreOptions options;
  options.shards = 4;
  options.buckets = 4;
  options.seed = {3};
  return options;
}

class StoreOnCores : public testing::TestWithParam<unsigned> {};

TEST_P(StoreOnCores, FewKeysUnderContention) { play(GetParam(), tiny_table(), 16, 3000); }
TEST_P(StoreOnCores, TableGrowsUnderReadersAndWriters) { play(GetParam(), tiny_table(), 20'000, 4000); }

TEST_P(StoreOnCores, EvictionUnderReadersAndWriters) {
  StoreOptions options = tiny_table();
  options.memory_bytes = 256 * 1024;
  play(GetParam(), options, 5000, 3000);
}

// Readers hold items in pieces, while other cores replace and evict them. The memory has room for what the cores hold and receive at once,
// two long values each, but not for the long values of all keys.
TEST_P(StoreOnCores, ValuesInPiecesUnderReadersAndWriters) {
  StoreOptions options = tiny_table();
  options.memory_bytes = (std::size_t{1} << 20) + GetParam() * (std::size_t{768} << 10);
  play(GetParam(), options, 200, 160, 8);
}

// Appends and counts are computed without the lock, and retried if the item was replaced meanwhile. No append or count may be lost.
TEST_P(StoreOnCores, NoAppendAndNoCountIsLost) {
  const unsigned cores = GetParam();
  StoreOptions options = tiny_table();
  options.cores = cores;
  Store store(options);
  constexpr int each = 500;
  const auto put = [&](std::string_view name, std::string_view value) {
    auto [item, outcome] = store.allocate(store.key(name), 0, 0, value.size(), 2);
    std::memcpy(item->value_data(), value.data(), value.size());
    return store.commit(Mode::append, std::move(item), 0, 2).outcome;
  };
  std::atomic<unsigned> done{0}, failed{0};
  std::uint64_t total = 0;
  std::size_t bytes = 0;
  {
    HostMachine machine{cores};
    machine.on(0, [&] {
      for (const std::string_view name : {"log", "sum"}) {
        auto [item, outcome] = store.allocate(store.key(name), 0, 0, 1, 2);
        *item->value_data() = '0';
        ASSERT_EQ(store.commit(Mode::set, std::move(item), 0, 2).outcome, Outcome::stored);
      }
    });
    std::vector<std::function<void(int)>> loops(cores);
    for (unsigned core = 0; core < cores; ++core) {
      loops[core] = [&, core](int left) {
        if (store.arithmetic(store.key("sum"), true, 1, 0, 2).outcome != Outcome::stored) ++failed;
        if (put("log", "x") != Outcome::stored) ++failed;
        if (left > 1) {
          spawn([&, core, left] { loops[core](left - 1); });
        } else {
          ++done;
        }
      };
      machine.on(core, [&, core] { loops[core](each); });
    }
    ASSERT_TRUE(HostMachine::wait_until([&] { return done.load() == cores; }, std::chrono::seconds(100)));
    machine.on(0, [&] {
      total = store.arithmetic(store.key("sum"), true, 0, 0, 2).value;
      bytes = store.find(store.key("log"), 2).item->value_bytes;
    });
    EXPECT_TRUE(HostMachine::wait_until([&] { return store.retired_bytes() == 0; }));
  }
  EXPECT_EQ(failed.load(), 0U);
  EXPECT_EQ(total, std::uint64_t{each} * cores);
  EXPECT_EQ(bytes, std::size_t{each} * cores + 1);
}

INSTANTIATE_TEST_SUITE_P(Memcached, StoreOnCores, testing::Values(1, 2, 4));

}  // namespace
}  // namespace neap::memcached
