// SPDX-License-Identifier: BSL-1.0
// The index against a `std::map`, with keys of one, two and six words, and the number of nodes that it needs.
#include "apps/tpcc/engine/index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include "kernel/rcu.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::transactions {
namespace {

// The index stores addresses of records and never reads a record.
RecordHeader* record_of(std::uint64_t number) { return reinterpret_cast<RecordHeader*>(number * 8 + 8); }

template <unsigned Words>
Key<Words> key_of(std::uint64_t number) {
  Key<Words> key{};
  key[Words - 1] = number % 7;
  key[0] += number / 7 * 8;  // with one word: gaps, and still ascending
  return key;
}

template <unsigned Words>
class IndexOfWords {
 public:
  void expect_equal() {
    std::vector<RecordHeader*> forward, backward, expected;
    index.for_each([&](const Key<Words>&, RecordHeader* record) { forward.push_back(record); });
    Key<Words> at;
    at.fill(~std::uint64_t{0});
    for (;;) {
      const auto position = index.template seek<false>(at);
      for (unsigned entry = position.leaf->count.load(); entry-- > 0;) backward.push_back(position.leaf->records[entry].load());
      if (!position.bounded) break;
      at = predecessor<Words>(position.bound);
    }
    std::ranges::reverse(backward);
    for (const auto& [key, record] : model) expected.push_back(record);
    EXPECT_EQ(forward, expected);
    EXPECT_EQ(backward, expected);
    EXPECT_EQ(index.size(), model.size());
  }
  void insert(std::uint64_t number) {
    const Key<Words> key = key_of<Words>(number);
    const auto inserted = index.insert(key, record_of(number));
    const auto [at, fresh] = model.emplace(key, record_of(number));
    ASSERT_EQ(inserted.outcome, fresh ? Outcome::done : Outcome::exists);
    if (!fresh) ASSERT_EQ(inserted.existing, at->second);
    if (fresh) ASSERT_EQ(inserted.change.leaf->version.load(), inserted.change.after);
  }
  /// Inserts or finds keys that ascend by `distance`, with a place.
  void in_order(std::uint64_t number, std::uint64_t distance, unsigned count, bool inserts) {
    typename Index<Words>::Place place;
    for (; count > 0; --count, number += distance) {
      const Key<Words> key = key_of<Words>(number);
      const auto at = model.find(key);
      RecordHeader* const present = at == model.end() ? nullptr : at->second;
      if (inserts) {
        const auto inserted = index.insert_after(place, key, record_of(number));
        ASSERT_EQ(inserted.outcome, present == nullptr ? Outcome::done : Outcome::exists);
        ASSERT_EQ(inserted.existing, present);
        if (present == nullptr) model.emplace(key, record_of(number));
      } else {
        ASSERT_EQ(index.find_after(place, key).record, present);
      }
    }
  }
  void remove(std::uint64_t number) {
    const Key<Words> key = key_of<Words>(number);
    if (model.erase(key) != 0) index.remove(key, record_of(number));
  }
  void find(std::uint64_t number) {
    const auto at = model.find(key_of<Words>(number));
    ASSERT_EQ(index.find(key_of<Words>(number)).record, at == model.end() ? nullptr : at->second);
  }
  void play() {
    std::mt19937_64 random(Words);
    for (const std::uint64_t keys : {30U, 6000U}) {
      for (unsigned phase = 0; phase < 6; ++phase) {  // grows and shrinks in turn, and becomes empty at last
        for (unsigned step = 0; step < 3 * keys; ++step) {
          const std::uint64_t number = random() % keys;
          if (random() % 8 == 0) {
            find(number);
          } else if (random() % 4 != (phase % 2 == 0 ? 0 : 1) && phase % 2 == 0) {
            insert(number);
            if (step % 16 == 0) in_order(random() % keys, 1 + random() % 3, 1 + random() % 100, random() % 2 == 0);
          } else {
            remove(number);
          }
        }
        expect_equal();
      }
      for (std::uint64_t number = 0; number < keys + 300; ++number) remove(number);
      expect_equal();
      EXPECT_EQ(index.nodes(), 1U);
    }
  }

  Index<Words> index;
  std::map<Key<Words>, RecordHeader*> model;
};

TEST(Index, OfOneWordEqualsAMap) { IndexOfWords<1>().play(); }
TEST(Index, OfTwoWordsEqualsAMap) { IndexOfWords<2>().play(); }
TEST(Index, OfSixWordsEqualsAMap) { IndexOfWords<6>().play(); }

TEST(Index, AscendingKeysFillTheLeaves) {
  Index<1> index;
  for (std::uint64_t number = 0; number < 100'000; ++number) ASSERT_EQ(index.insert({number}, record_of(number)).outcome, Outcome::done);
  EXPECT_EQ(index.height(), 3U);
  EXPECT_LT(index.nodes(), 100'000 / Leaf<1>::capacity * 21 / 20);
}

// Ten ranges that grow at their ends, as the orders of ten districts.
TEST(Index, SeveralAscendingRangesFillTheLeaves) {
  Index<1> index;
  for (std::uint64_t number = 0; number < 20'000; ++number) {
    for (std::uint64_t range = 0; range < 10; ++range)
      ASSERT_EQ(index.insert({range << 32U | number}, record_of(number)).outcome, Outcome::done);
  }
  EXPECT_LT(index.nodes(), 200'000 / Leaf<1>::capacity * 5 / 4);
}

// A key beyond those of the leaf belongs to another leaf, although it is above the last key.
TEST(Index, APlaceIsLeftBeyondItsLeaf) {
  IndexOfWords<1> both;
  for (std::uint64_t number = 0; number < 1000; ++number) both.insert(10 * number);
  for (std::uint64_t first = 0; first < 1000; first += 7) both.in_order(10 * first + 1 + first % 9, 10 + 10 * (first % 90), 100, true);
  both.expect_equal();
}

TEST(Index, AQueueNeedsABoundedNumberOfNodes) {
  Index<2> index;
  std::uint64_t nodes_max = 0, height_max = 0;
  for (std::uint64_t number = 0; number < 60'000; ++number) {
    ASSERT_EQ(index.insert({number, 1}, record_of(number)).outcome, Outcome::done);
    if (number < 900) continue;
    index.remove({number - 900, 1}, record_of(number - 900));
    if (number % 1000 == 0) nodes_max = std::max(nodes_max, index.nodes());
    height_max = std::max<std::uint64_t>(height_max, index.height());
  }
  EXPECT_LE(nodes_max, 40U);
  EXPECT_LE(height_max, 3U);
  EXPECT_EQ(index.size(), 900U);
}

TEST(Index, APredecessorBorrows) {
  EXPECT_EQ(predecessor<1>({5}), (Key<1>{4}));
  EXPECT_EQ(predecessor<2>({5, 0}), (Key<2>{4, ~std::uint64_t{0}}));
  EXPECT_EQ(predecessor<2>({5, 7}), (Key<2>{5, 6}));
}

}  // namespace
}  // namespace neap::transactions
