// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/test_server.hpp"
#include "kernel/memory/size_classes.hpp"

namespace neap::memcached {
namespace {

Store::Done put(Store& store, Mode mode, std::string_view key, std::string_view value, Seconds now, Seconds expires = expires_never,
                std::uint32_t flags = 0, std::uint64_t cas = 0) {
  auto [item, outcome] = store.allocate(store.key(key), flags, expires, value.size(), now);
  if (!item) return {.outcome = outcome};
  std::memcpy(item->value_data(), value.data(), value.size());
  return store.commit(mode, std::move(item), cas, now);
}

std::optional<std::string> look(Store& store, std::string_view key, Seconds now) {
  Item* const item = store.find(store.key(key), now).item;
  if (item == nullptr) return std::nullopt;
  return std::string(item->value());
}

/// What a store without limits should do, in the plainest way.
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

// One random life after another, against the model: outcomes, values, flags and ids, through growth of the table, expiry and flushes.
TEST(Store, DoesWhatAMapDoes) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](unsigned below) { return static_cast<unsigned>(random() % below); };
    StoreOptions options = test::small_store();
    options.seed = seed;
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
    // In the end everything that the model has is there, and the table holds no more than what is dead but was not met again.
    std::size_t live = 0;
    for (const auto& [name, entry] : std::map(model.entries)) {
      if (model.find(name, now) == nullptr) continue;
      ++live;
      ASSERT_EQ(look(store, name, now), entry.value);
    }
    EXPECT_GE(store.counters().items, live);
    if (key_count == 3000) {
      EXPECT_GE(store.table().bucket_count(), 512U);
    }
    EXPECT_EQ(store.retired_bytes(), 0U);
    EXPECT_EQ(store.held_bytes(), 0U);
  }
}

StoreOptions one_shard(std::size_t memory_bytes) {
  StoreOptions options = test::small_store();
  options.shards = 1;
  options.memory_bytes = memory_bytes;
  return options;
}

TEST(Eviction, TakesTheOldestFirst) {
  const std::size_t each = Store::footprint(4, 100);
  Store store(one_shard(each * 10));
  const std::string value(100, 'v');
  for (int i = 0; i < 10; ++i) ASSERT_EQ(put(store, Mode::set, "k" + std::to_string(100 + i), value, 2).outcome, Outcome::stored);
  for (int i = 10; i < 15; ++i) {
    ASSERT_EQ(put(store, Mode::set, "k" + std::to_string(100 + i), value, 2).outcome, Outcome::stored);
    EXPECT_EQ(store.counters().items, 10U);
    EXPECT_EQ(store.counters().evictions, static_cast<unsigned>(i - 9));
  }
  for (int i = 0; i < 15; ++i) EXPECT_EQ(look(store, "k" + std::to_string(100 + i), 2).has_value(), i >= 5) << i;
  EXPECT_EQ(store.counters().evicted_unfetched, 5U);
}

TEST(Eviction, WhatIsUsedStays) {
  const std::size_t each = Store::footprint(4, 100);
  Store store(one_shard(each * 50));
  const std::string value(100, 'v');
  Seconds now = 2;
  put(store, Mode::set, "kept", value, now);
  for (int i = 0; i < 5000; ++i) {
    if (i % 10 == 0) {
      ++now;
      ASSERT_TRUE(look(store, "kept", now).has_value()) << "after " << i;
    }
    ASSERT_EQ(put(store, Mode::set, std::to_string(10000 + i).substr(1), value, now).outcome, Outcome::stored);
  }
  EXPECT_GT(store.counters().second_chances, 50U);
}

// When everything was used, the hand must still come to an end, and take what it met first.
TEST(Eviction, EndsWhenEverythingIsUsed) {
  const std::size_t each = Store::footprint(4, 100);
  Store store(one_shard(each * 200));
  const std::string value(100, 'v');
  for (int i = 0; i < 200; ++i) put(store, Mode::set, "k" + std::to_string(100 + i), value, 2);
  for (int i = 0; i < 200; ++i) (void)look(store, "k" + std::to_string(100 + i), 3);
  ASSERT_EQ(put(store, Mode::set, "more", value, 3).outcome, Outcome::stored);
  EXPECT_EQ(store.counters().items, 200U);
  EXPECT_EQ(store.counters().evictions, 1U);
}

TEST(Eviction, ExpiredItemsGoFirstAndAreNoEvictions) {
  const std::size_t each = Store::footprint(4, 100);
  Store store(one_shard(each * 10));
  const std::string value(100, 'v');
  for (int i = 0; i < 5; ++i) put(store, Mode::set, "e" + std::to_string(100 + i), value, 2, 5);
  for (int i = 0; i < 5; ++i) put(store, Mode::set, "k" + std::to_string(100 + i), value, 2);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(put(store, Mode::set, "n" + std::to_string(100 + i), value, 6).outcome, Outcome::stored);
  EXPECT_EQ(store.counters().evictions, 0U);
  EXPECT_EQ(store.counters().reclaimed, 5U);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(look(store, "k" + std::to_string(100 + i), 6).has_value());
}

// Over many shards the shard whose candidate was unused the longest gives way: old items go before new ones wherever their hash put them.
TEST(Eviction, OrderHoldsAcrossShards) {
  StoreOptions options = test::small_store();
  options.shards = 64;
  options.buckets = 64;
  options.memory_bytes = Store::footprint(6, 100) * 1000;
  Store store(options);
  const std::string value(100, 'v');
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(put(store, Mode::set, "k" + std::to_string(10000 + i), value, 2 + static_cast<Seconds>(i)).outcome, Outcome::stored);
  }
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(look(store, "k" + std::to_string(10000 + i), 3000).has_value(), i >= 1000) << i;
}

// Memory stays under the limit at every moment, with items from one byte to a megabyte, in the store and on their way into it and out of
// it.
TEST(Eviction, MemoryStaysUnderItsLimit) {
  std::mt19937 random(7);
  StoreOptions options = test::small_store();
  options.memory_bytes = 8 << 20;
  Store store(options);
  std::vector<ItemPointer> on_their_way, held;
  Seconds now = 2;
  int stored = 0, refused = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 20 == 0) ++now;
    const std::size_t bytes = random() % (std::size_t{1} << (random() % 21));
    auto [item, outcome] = store.allocate(store.key("k" + std::to_string(random() % 5000)), 0, 0, bytes, now);
    ASSERT_LE(store.used_bytes() + store.held_bytes(), options.memory_bytes);
    if (!item) {
      ASSERT_EQ(outcome, Outcome::out_of_memory);
      ++refused;
      on_their_way.clear();
      held.clear();
      continue;
    }
    std::memset(item->value_data(), 'v', bytes);
    if (random() % 50 == 0) {
      on_their_way.push_back(std::move(item));
      continue;
    }
    Item* const raw = item.get();
    if (random() % 50 == 0) {
      raw->hold();  // as a reply does
      held.emplace_back(raw);
    }
    ASSERT_EQ(store.commit(Mode::set, std::move(item), 0, now).outcome, Outcome::stored);
    ++stored;
  }
  EXPECT_GT(stored, 15'000);
  EXPECT_GT(refused, 0);
  EXPECT_GT(store.counters().evictions, 1000U);
  on_their_way.clear();
  held.clear();
  EXPECT_EQ(store.held_bytes(), 0U);
  EXPECT_EQ(store.used_bytes(), store.counters().bytes);
  std::uint64_t by_size = 0;
  for (const auto& size : store.sizes()) by_size += size.bytes;
  EXPECT_EQ(by_size, store.counters().bytes);
}

// A reply may refer to an item long after it was deleted; its bytes stay, and count.
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
  EXPECT_EQ(look(store, "a", 2), std::nullopt);
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
  EXPECT_EQ(look(store, "a", 2), "x");
}

// The limit means the machine's memory: what an item counts for is what the kernel's heap gives away for it.
TEST(Store, FootprintIsWhatTheHeapTakes) {
  for (std::size_t value = 0; value < 20'000; ++value) {
    const std::size_t bytes = sizeof(Item) + 10 + value + 2;
    const std::size_t taken =
        bytes <= memory::object_bytes_max ? memory::class_bytes[memory::class_of(bytes)] : (bytes + 4095) / 4096 * 4096;
    ASSERT_EQ(Store::footprint(10, value), taken) << value;
  }
}

TEST(Hash, SpreadsAndDependsOnEveryByteAndTheSeed) {
  std::set<std::uint32_t> seen;
  for (std::size_t bytes = 1; bytes <= key_bytes_max; ++bytes) {
    std::string key(bytes, 'k');
    const std::uint32_t before = hash_key(key, 1);
    seen.insert(before);
    EXPECT_NE(hash_key(key, 2), before);
    for (std::size_t at = 0; at < bytes; ++at) {
      key[at] = 'K';
      EXPECT_NE(hash_key(key, 1), before) << "byte " << at << " of " << bytes;
      key[at] = 'k';
    }
  }
  EXPECT_EQ(seen.size(), key_bytes_max);
  std::vector<int> buckets(64);
  for (int i = 0; i < 64'000; ++i) ++buckets[hash_key("user:" + std::to_string(i), 99) & 63];
  for (const int count : buckets) EXPECT_NEAR(count, 1000, 200);
}

// Two cores flush at once, and the one that looked first writes last: what the other one flushed must not come back.
TEST(Store, AFlushNeverMovesBackwards) {
  std::atomic<std::uint64_t> flushed_up_to{0};
  detail::raise_to(flushed_up_to, 105);
  detail::raise_to(flushed_up_to, 100);
  EXPECT_EQ(flushed_up_to.load(), 105U);
  detail::raise_to(flushed_up_to, 106);
  EXPECT_EQ(flushed_up_to.load(), 106U);
}

/// Runs once, in the middle of the next allocation: where another core might run.
std::function<void()> meanwhile;
void* allocate_and_run_meanwhile(std::size_t bytes) noexcept {
  if (meanwhile != nullptr) std::exchange(meanwhile, nullptr)();
  return std::malloc(bytes);
}

// A copy that replaces an item has the expiry of that moment, not the one from when the copy was begun.
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
    EXPECT_EQ(look(store, "sum", 99), "12");
    EXPECT_EQ(look(store, "sum", 100), std::nullopt);
  }
}

/// Retired items wait here, as they do until the end of an event.
std::vector<rcu::Node*> waiting;
void reclaim_waiting() {
  for (rcu::Node* const node : std::exchange(waiting, {})) node->reclaim(node);
}

// A client that replaces a large value again and again has its commands put off until the replaced values are free. Reads are not.
TEST(Conversation, ReplacedValuesThatWaitHoldBackCommandsThatStore) {
  StoreOptions options = test::small_store();
  options.memory_bytes = 8 << 20;
  options.retire = [](rcu::Node& node) noexcept { waiting.push_back(&node); };
  test::Server server(options);
  const Store& store = server.store;
  constexpr unsigned commands = 200;
  {
    test::Client client(server), other(server);
    (void)other.talk("set other 0 0 1\r\nx\r\n");
    (void)client.talk("set sum 0 0 100000\r\n0" + std::string(99'999, ' ') + "\r\n");
    std::string request, answer;
    for (unsigned i = 0; i < commands; ++i) request += i % 2 == 0 ? "incr sum 1\r\n" : "append sum 0 0 1\r\n \r\n";
    std::string_view left = request;
    unsigned waits = 0;
    while (!left.empty()) {
      left.remove_prefix(client.conversation.consume(left, client.reply));
      answer += test::take_all(client.reply);
      ASSERT_LE(store.retired_bytes(), store.retired_bytes_max() + Store::footprint(3, 100'000 + commands));
      ASSERT_EQ(store.counters().evictions, 0U);
      if (left.empty()) break;
      ASSERT_TRUE(client.conversation.waits());
      EXPECT_EQ(other.talk("get other\r\n"), "VALUE other 0 1\r\nx\r\nEND\r\n");
      ++waits;
      reclaim_waiting();
    }
    EXPECT_GT(waits, 10U);
    EXPECT_EQ(std::count(answer.begin(), answer.end(), '\n'), commands);
    reclaim_waiting();
    EXPECT_EQ(client.talk("incr sum 0\r\n"), "100\r\n");
    reclaim_waiting();
  }
}

// The vectors that SipHash's authors publish for the form with 2 and 4 rounds; the key is 00 01 .. 0f, the texts are 00 01 ...
TEST(Hash, IsSipHash) {
  const HashSeed seed{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string text;
  const std::uint64_t expected[] = {0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
                                    0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
                                    0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
                                    0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5};
  for (const std::uint64_t hash : expected) {
    EXPECT_EQ((detail::siphash<2, 4>(text, seed)), hash) << text.size() << " bytes";
    text.push_back(static_cast<char>(text.size()));
  }
}

/// The longest chain of 2^12 buckets.
template <typename MakeKey>
int longest_chain(int keys, const HashSeed& seed, MakeKey make_key) {
  std::vector<int> buckets(1 << 12);
  for (int i = 0; i < keys; ++i) ++buckets[hash_key(make_key(i), seed) & (buckets.size() - 1)];
  return *std::max_element(buckets.begin(), buckets.end());
}

std::string in_8_bytes(std::uint64_t number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

// 40,960 keys make 10 a bucket; a chain of 40 has a chance of one in a million. With a multiplication by a public constant, keys that begin
// with the constant all met in one bucket, whatever the seed.
TEST(Hash, NoSetOfKeysMeetsInOneBucket) {
  constexpr int keys = 40'960;
  for (const HashSeed seed : {HashSeed{}, HashSeed{99}, HashSeed{0x243f6a8885a308d3, 0x13198a2e03707344}}) {
    for (const std::uint64_t constant : {0x9e3779b97f4a7c15U, 0xd1b54a32d192ed03U, std::uint64_t{0}, ~std::uint64_t{0}}) {
      const std::string front = in_8_bytes(constant);
      EXPECT_LT(longest_chain(keys, seed, [&](std::uint64_t i) { return front + in_8_bytes(i) + "end"; }), 40);
      EXPECT_LT(longest_chain(keys, seed, [&](std::uint64_t i) { return front + in_8_bytes(i); }), 40);
      EXPECT_LT(longest_chain(keys, seed, [&](std::uint64_t i) { return in_8_bytes(i) + front; }), 40);
      EXPECT_LT(longest_chain(keys, seed, [&](std::uint64_t i) { return "0123456789abcdef" + front + in_8_bytes(i); }), 40);
      EXPECT_LT(longest_chain(keys, seed, [&](std::uint64_t i) { return in_8_bytes(i << 40) + in_8_bytes(i ^ constant); }), 40);
    }
    EXPECT_LT(longest_chain(keys, seed, [](int i) { return std::to_string(i); }), 40);
    EXPECT_LT(longest_chain(keys, seed, [](int i) { return "user:" + std::to_string(i) + ":profile"; }), 40);
  }
}

// Each bit of a key changes each bit of the hash in half of the cases: 1,000 keys, six standard deviations.
TEST(Hash, EachBitOfAKeyChangesHalfOfTheHash) {
  constexpr int keys = 1'000;
  std::mt19937_64 random(5);
  for (const std::size_t bytes : {3, 8, 13, 32}) {
    for (std::size_t bit = 0; bit < bytes * 8; bit += 11) {
      int changed[32] = {};
      for (int i = 0; i < keys; ++i) {
        std::string key(bytes, '\0');
        for (char& letter : key) letter = static_cast<char>(random());
        const std::uint32_t before = hash_key(key, 5);
        key[bit / 8] = static_cast<char>(key[bit / 8] ^ 1 << bit % 8);
        for (unsigned at = 0; at < 32; ++at) changed[at] += static_cast<int>((before ^ hash_key(key, 5)) >> at & 1);
      }
      for (const int count : changed) ASSERT_NEAR(count, keys / 2, 95) << "bit " << bit << " of " << bytes << " bytes";
    }
  }
}

// If many keys had one hash all the same, a request would still walk a bounded number of them.
TEST(Hash, AChainHasABound) {
  Store store(test::small_store());
  constexpr unsigned keys = 2'000, bound = 129;
  for (unsigned i = 0; i < keys; ++i) {
    const std::string name = "key" + std::to_string(i);
    auto [item, outcome] = store.allocate({.text = name, .hash = 0x12345678}, 0, 0, 1, 2);
    *item->value_data() = 'v';
    ASSERT_EQ(store.commit(Mode::set, std::move(item), 0, 2).outcome, Outcome::stored);
    ASSERT_NE(store.find({.text = name, .hash = 0x12345678}, 2).item, nullptr);
    ASSERT_LE(store.counters().items, bound);
  }
  EXPECT_EQ(store.counters().chain_evictions, keys - bound);
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
