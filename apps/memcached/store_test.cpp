// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/test_server.hpp"
#include "kernel/memory/size_classes.hpp"

namespace neap::memcached {
namespace {

using test::put;
using test::value_of;

/// The model of a store: a plain map without limits.
class Model {
 public:
  struct Entry {
    std::string value;
    std::uint32_t flags;
    Seconds expires;
    std::uint64_t cas;
  };
  std::map<std::string, Entry> entries;
  Seconds flush_at = 0;

  void tick(Seconds now) {
    if (flush_at != 0 && now >= flush_at) {
      entries.clear();
      flush_at = 0;
    }
  }
  Entry* find(const std::string& key, Seconds now) {
    const auto at = entries.find(key);
    if (at == entries.end()) return nullptr;
    if (at->second.expires != 0 && at->second.expires <= now) {
      entries.erase(at);
      return nullptr;
    }
    return &at->second;
  }
};

// Compares the outcomes, values, flags and CAS ids of random requests with the model, through growth of the table, expiry and flushes.
TEST(Store, DoesWhatAMapDoes) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](unsigned below) { return static_cast<unsigned>(random() % below); };
    StoreOptions options = test::small_store();
    options.seed = {seed};
    Store store(options);
    Model model;
    Seconds now = 2;
    const unsigned key_count = seed % 2 == 0 ? 12 : 3000;
    for (int step = 0; step < 40'000; ++step) {
      if (pick(50) == 0) now += pick(4);
      store.tick(now);
      model.tick(now);
      const std::string name = "key" + std::to_string(pick(key_count));
      const Key key = store.key(name);
      Model::Entry* const entry = model.find(name, now);
      const std::string value = pick(3) == 0 ? std::to_string(random()) : std::string(pick(200), static_cast<char>('a' + pick(26)));
      const Seconds expires = pick(4) == 0 ? now + pick(5) : expires_never;
      const auto flags = static_cast<std::uint32_t>(random());
      const std::uint64_t some_cas = entry != nullptr && pick(2) == 0 ? entry->cas : 1 + pick(1000);
      switch (pick(12)) {
        case 0:
        case 1: {
          const auto done = put(store, Mode::set, name, value, now, expires, flags);
          ASSERT_EQ(done.outcome, Outcome::stored);
          model.entries[name] = {value, flags, expires, done.cas};
          break;
        }
        case 2: {
          const auto done = put(store, Mode::add, name, value, now, expires, flags);
          ASSERT_EQ(done.outcome, entry == nullptr ? Outcome::stored : Outcome::not_stored);
          if (entry == nullptr) model.entries[name] = {value, flags, expires, done.cas};
          break;
        }
        case 3: {
          const auto done = put(store, Mode::replace, name, value, now, expires, flags);
          ASSERT_EQ(done.outcome, entry != nullptr ? Outcome::stored : Outcome::not_stored);
          if (entry != nullptr) *entry = {value, flags, expires, done.cas};
          break;
        }
        case 4: {
          const auto done = put(store, Mode::cas, name, value, now, expires, flags, some_cas);
          ASSERT_EQ(done.outcome, entry == nullptr ? Outcome::not_found : entry->cas == some_cas ? Outcome::stored : Outcome::exists);
          if (done.outcome == Outcome::stored) *entry = {value, flags, expires, done.cas};
          break;
        }
        case 5: {
          const bool at_end = pick(2) == 0;
          const bool with_cas = pick(3) == 0;
          const auto done = put(store, at_end ? Mode::append : Mode::prepend, name, value, now, expires, flags, with_cas ? some_cas : 0);
          const bool fits = !with_cas || (entry != nullptr && entry->cas == some_cas);
          ASSERT_EQ(done.outcome, entry == nullptr ? Outcome::not_stored : fits ? Outcome::stored : Outcome::exists);
          if (done.outcome == Outcome::stored) {
            entry->value = at_end ? entry->value + value : value + entry->value;
            entry->cas = done.cas;
          }
          break;
        }
        case 6: {
          const auto done = store.remove(key, pick(3) == 0 ? some_cas : 0, now);
          if (done.outcome == Outcome::stored) {
            ASSERT_NE(entry, nullptr);
            model.entries.erase(name);
          } else {
            ASSERT_EQ(done.outcome, entry == nullptr ? Outcome::not_found : Outcome::exists);
          }
          break;
        }
        case 7: {
          const bool up = pick(2) == 0;
          const std::uint64_t delta = pick(2) == 0 ? pick(100) : ~std::uint64_t{0} - pick(5);
          const auto done = store.arithmetic(key, up, delta, 0, now);
          const auto number = entry != nullptr ? read_unsigned(entry->value) : std::nullopt;
          ASSERT_EQ(done.outcome, entry == nullptr ? Outcome::not_found : number ? Outcome::stored : Outcome::not_numeric);
          if (!number) break;
          const std::uint64_t before = number.value_or(0);
          const std::uint64_t expected = up ? before + delta : (before < delta ? 0 : before - delta);
          ASSERT_EQ(done.value, expected);
          std::string text = std::to_string(expected);
          text.resize(std::max(text.size(), entry->value.size()), ' ');
          entry->value = text;
          entry->cas = done.cas;
          break;
        }
        case 8: {
          ASSERT_EQ(store.touch(key, expires, now).item != nullptr, entry != nullptr);
          if (entry != nullptr) entry->expires = expires;
          break;
        }
        case 9: {
          if (pick(200) != 0) break;
          const Seconds when = pick(2) == 0 ? 0 : now + 1 + pick(3);
          store.flush(when, now);
          model.flush_at = when;
          if (when == 0) model.entries.clear();
          break;
        }
        default: {
          Item* const item = store.find(key, now).item;
          ASSERT_EQ(item != nullptr, entry != nullptr) << name << " at step " << step;
          if (item == nullptr) break;
          ASSERT_EQ(item->value(), entry->value);
          ASSERT_EQ(item->value_line(), entry->value + "\r\n");
          ASSERT_EQ(item->flags, entry->flags);
          ASSERT_EQ(item->cas, entry->cas);
        }
      }
    }
    // In the end the store has every item of the model. All other items in the table are expired or flushed.
    std::size_t live = 0;
    for (const auto& [name, entry] : std::map(model.entries)) {
      if (model.find(name, now) == nullptr) continue;
      ++live;
      ASSERT_EQ(value_of(store, name, now), entry.value);
    }
    EXPECT_GE(store.counters().items, live);
    if (key_count == 3000) {
      EXPECT_GE(store.table().bucket_count(), 512U);
    }
    EXPECT_EQ(store.retired_bytes(), 0U);
    EXPECT_EQ(store.held_bytes(), 0U);
  }
}

// A reply may refer to an item long after the item was deleted. The item's bytes stay, and are counted.
TEST(Store, HeldItemsOutliveTheirDeletion) {
  Store store(test::small_store());
  put(store, Mode::set, "a", "first", 2);
  Item* const item = store.find(store.key("a"), 2).item;
  item->hold();
  const ItemPointer holder(item);
  put(store, Mode::set, "a", "second", 2);
  EXPECT_EQ(item->value(), "first");
  EXPECT_EQ(store.held_bytes(), Store::footprint(1, 5));
  store.flush(0, 2);
  EXPECT_EQ(value_of(store, "a", 2), std::nullopt);
  EXPECT_EQ(store.used_bytes(), 0U);
  EXPECT_EQ(item->value(), "first");
}

TEST(Store, TooLargeForTheLimitIsRefusedAndEvictsNothingThatFits) {
  StoreOptions options = test::small_store();
  options.memory_bytes = 1 << 16;
  options.value_bytes_max = 1 << 15;
  Store store(options);
  put(store, Mode::set, "a", "x", 2);
  EXPECT_EQ(store.allocate(store.key("b"), 0, 0, (1 << 15) + 1, 2).outcome, Outcome::too_large);
  EXPECT_EQ(store.allocate(store.key("b"), 0, 0, ~std::uint64_t{0}, 2).outcome, Outcome::too_large);
  EXPECT_EQ(value_of(store, "a", 2), "x");
}

// No command moves many items while the table grows. Growth to twice the size is spread over at least an eighth as many commands as the old
// table has buckets, and the items of eight buckets are few.
TEST(Store, GrowthMovesFewItemsInEachCommand) {
  StoreOptions options = test::small_store();
  options.shards = 64;
  options.buckets = 64;
  Store store(options);
  constexpr unsigned buckets_a_command = 8, items = 50'000;
  unsigned commands = 0, growths = 0, largest = 0;
  for (unsigned i = 0; i < items; ++i) {
    const bool grew = store.table().is_growing();
    const std::uint32_t buckets = store.table().bucket_count();
    put(store, Mode::set, "key" + std::to_string(i), "v", 2);
    if (!grew && store.table().is_growing()) {
      commands = 0;
      std::vector<unsigned> moved(buckets / buckets_a_command, 0);  // items that each command will move
      Store::Walk walk(store);
      while (walk.step(1000, [&](const Item& item) { largest = std::max(largest, ++moved[item.hash % buckets / buckets_a_command]); })) {
      }
    }
    ++commands;
    if (store.table().bucket_count() != buckets) {
      ++growths;
      EXPECT_GE(commands, buckets / buckets_a_command) << buckets;
    }
  }
  EXPECT_GE(growths, 7U);
  EXPECT_LE(largest, 40U);
  RecordProperty("items_moved_in_a_command_max", static_cast<int>(largest));
}

// The limit applies to the machine's memory: each item counts as the bytes that the kernel's heap uses for it.
TEST(Store, FootprintIsWhatTheHeapTakes) {
  for (std::size_t value = 0; value < 20'000; ++value) {
    const std::size_t bytes = Item::header_bytes + 10 + value + 2;
    const std::size_t taken =
        bytes <= memory::object_bytes_max ? memory::class_bytes[memory::class_of(bytes)] : (bytes + 4095) / 4096 * 4096;
    ASSERT_EQ(Store::footprint(10, value), taken) << value;
  }
}

// Stock memcached 1.6.18 takes 99, 205 and about 1,180 bytes for these items. The heap has sizes of 96, 192 and 1,152 bytes.
TEST(Item, TakesAtMostTheMemoryOfStockMemcached) {
  EXPECT_LE(Item::memory_bytes(16, 10), 96U);
  EXPECT_LE(Item::memory_bytes(16, 100), 192U);
  EXPECT_LE(Item::memory_bytes(16, 1000), 1152U);
  EXPECT_GE(Item::memory_bytes(1, 0), sizeof(Item));
}

// Two cores flush at once, and the core that reads the CAS id first writes it last. Items that the other core flushed must stay flushed.
TEST(Store, AFlushNeverMovesBackwards) {
  std::atomic<std::uint64_t> flushed_up_to{0};
  detail::raise_to(flushed_up_to, 105);
  detail::raise_to(flushed_up_to, 100);
  EXPECT_EQ(flushed_up_to.load(), 105U);
  detail::raise_to(flushed_up_to, 106);
  EXPECT_EQ(flushed_up_to.load(), 106U);
}

/// Runs once, during the next allocation. It simulates an event of another core.
std::function<void()> meanwhile;
void* allocate_and_run_meanwhile(std::size_t bytes) noexcept {
  if (meanwhile != nullptr) std::exchange(meanwhile, nullptr)();
  return std::malloc(bytes);
}

// A copy that replaces an item gets the item's expiry at the time of the replacement, not at the beginning of the copy.
TEST(Store, ATouchBesideACopyIsKept) {
  StoreOptions options = test::small_store();
  options.memory.allocate = &allocate_and_run_meanwhile;
  Store store(options);
  const Key key = store.key("sum");
  const auto touch = [&] { EXPECT_NE(store.touch(key, 100, 2).item, nullptr); };
  for (const bool append : {true, false}) {
    ASSERT_EQ(put(store, Mode::set, "sum", "1", 2, 5).outcome, Outcome::stored);
    if (append) {
      auto [piece, outcome] = store.allocate(key, 0, 0, 1, 2);
      *piece->value_data() = '2';
      meanwhile = touch;
      EXPECT_EQ(store.commit(Mode::append, std::move(piece), 0, 2).outcome, Outcome::stored);
    } else {
      meanwhile = touch;
      EXPECT_EQ(store.arithmetic(key, true, 11, 0, 2).outcome, Outcome::stored);
    }
    EXPECT_EQ(value_of(store, "sum", 99), "12");
    EXPECT_EQ(value_of(store, "sum", 100), std::nullopt);
  }
}

TEST(Numbers, ReadAsMemcachedReadsThem) {
  EXPECT_EQ(read_unsigned("0"), 0U);
  EXPECT_EQ(read_unsigned("18446744073709551615"), ~std::uint64_t{0});
  EXPECT_EQ(read_unsigned("18446744073709551616"), std::nullopt);
  EXPECT_EQ(read_unsigned("99999999999999999999999"), std::nullopt);
  EXPECT_EQ(read_unsigned(" +7"), 7U);
  EXPECT_EQ(read_unsigned("7 x"), 7U);
  EXPECT_EQ(read_unsigned("7\t"), 7U);
  EXPECT_EQ(read_unsigned("7x"), std::nullopt);
  EXPECT_EQ(read_unsigned("-1"), std::nullopt);
  EXPECT_EQ(read_unsigned("-0"), 0U);
  EXPECT_EQ(read_unsigned(""), std::nullopt);
  EXPECT_EQ(read_unsigned("-"), std::nullopt);
  EXPECT_EQ(read_unsigned(" "), std::nullopt);
  EXPECT_EQ(read_signed("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(read_signed("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(read_signed("9223372036854775808"), std::nullopt);
  EXPECT_EQ(read_signed("-9223372036854775809"), std::nullopt);
}

// Otherwise a date would be reached up to a second late.
TEST(Clock, SecondsBeginWithThoseOfTheDate) {
  test::clock_ns = 10'700'000'000;
  const Clock clock([]() noexcept { return test::clock_ns; }, 1'700'000'000, 1'000'000'000, 100'000'000);
  EXPECT_EQ(clock.unix_s(clock.now()), 1'700'000'010);
  EXPECT_EQ(clock.unix_us(), 1'700'000'010'800'000U);
  EXPECT_EQ(clock.uptime_s(), 0U);
  test::clock_ns += 199'999'999;
  EXPECT_EQ(clock.unix_s(clock.now()), 1'700'000'010);
  test::clock_ns += 1;
  EXPECT_EQ(clock.unix_s(clock.now()), 1'700'000'011);
  EXPECT_EQ(clock.expiry(1'700'000'011, clock.now()), clock.now());
}

TEST(Clock, ExpiryMeansSecondsOrADate) {
  test::clock_ns = 5'000'000'000;
  const Clock clock([]() noexcept { return test::clock_ns; }, 1'700'000'000 - 5);
  EXPECT_EQ(clock.now(), 2U);
  test::clock_ns += 3'999'999'999;
  EXPECT_EQ(clock.now(), 5U);
  EXPECT_EQ(clock.unix_s(clock.now()), 1'700'000'003);
  EXPECT_EQ(clock.expiry(0, 5), expires_never);
  EXPECT_EQ(clock.expiry(-1, 5), expired_already);
  EXPECT_EQ(clock.expiry(1, 5), 6U);
  EXPECT_EQ(clock.expiry(2592000, 5), 2592005U);
  EXPECT_EQ(clock.expiry(2592001, 5), expired_already);
  EXPECT_EQ(clock.expiry(1'700'000'010, 5), 12U);
  EXPECT_EQ(clock.expiry(1'699'999'990, 5), expired_already);
  EXPECT_EQ(clock.expiry(INT32_MAX, 5), static_cast<Seconds>(INT32_MAX - 1'700'000'000 + 2));
}

}  // namespace
}  // namespace neap::memcached
