// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/memcached/test_server.hpp"

namespace neap::memcached {
namespace {

/// Both functions, or SipHash alone if this CPU has no AES.
class Hash : public testing::TestWithParam<bool> {
 protected:
  static HashSeed seed(std::uint64_t low, std::uint64_t high = 0) { return {{low, high}, GetParam()}; }
};
std::vector<bool> functions() { return cpu_has_aes() ? std::vector{false, true} : std::vector{false}; }
INSTANTIATE_TEST_SUITE_P(ByFunction, Hash, testing::ValuesIn(functions()),
                         [](const auto& function) { return function.param ? "Aes" : "SipHash"; });

TEST_P(Hash, SpreadsAndDependsOnEveryByteAndTheSeed) {
  std::set<std::uint32_t> seen;
  const HashSeed one = seed(1), two = seed(2), high = seed(1, 1);
  for (std::size_t bytes = 1; bytes <= key_bytes_max; ++bytes) {
    std::string key(bytes, 'k');
    const std::uint32_t before = hash_key(key, one);
    seen.insert(before);
    EXPECT_NE(hash_key(key, two), before);
    EXPECT_NE(hash_key(key, high), before);
    for (std::size_t at = 0; at < bytes; ++at) {
      key[at] = 'K';
      EXPECT_NE(hash_key(key, one), before) << "byte " << at << " of " << bytes;
      key[at] = 'k';
    }
  }
  EXPECT_EQ(seen.size(), key_bytes_max);
  std::vector<int> buckets(64);
  const HashSeed other = seed(99);
  for (int i = 0; i < 64'000; ++i) ++buckets[hash_key("user:" + std::to_string(i), other) & 63];
  for (const int count : buckets) EXPECT_NEAR(count, 1000, 200);
}

// The vectors that SipHash's authors publish for the form with 2 and 4 rounds. The key is 00 01 .. 0f, and the texts are 00 01 ...
TEST(SipHash, GivesTheAuthorsVectors) {
  const HashSeed seed{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string text;
  const std::uint64_t expected[] = {0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
                                    0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
                                    0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
                                    0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5};
  for (const std::uint64_t hash : expected) {
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    EXPECT_EQ(siphash(seed, bytes), hash) << text.size() << " bytes";
    text.push_back(static_cast<char>(text.size()));
  }
}

/// Returns the length of the longest chain in a table of 2^12 buckets.
template <typename MakeKey>
int longest_chain(int keys, const HashSeed& seed, MakeKey make_key) {
  std::vector<int> buckets(1 << 12);
  for (int i = 0; i < keys; ++i) ++buckets[hash_key(make_key(i), seed) & (buckets.size() - 1)];
  return *std::max_element(buckets.begin(), buckets.end());
}

std::string in_8_bytes(std::uint64_t number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

// 40,960 keys are 10 for each bucket on average, and a chain of 40 has a probability of one in a million. An earlier version of the hash
// multiplied by a public constant: all keys that began with that constant fell into one bucket, for any seed.
TEST_P(Hash, NoSetOfKeysFallsIntoOneBucket) {
  constexpr int keys = 40'960;
  for (const HashSeed& seed : {Hash::seed(0), Hash::seed(99), Hash::seed(0x243f6a8885a308d3, 0x13198a2e03707344)}) {
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

// Each bit of a key changes each bit of the hash in half of the cases (1,000 keys, within six standard deviations).
TEST_P(Hash, EachBitOfAKeyChangesHalfOfTheHash) {
  constexpr int keys = 1'000;
  const HashSeed five = seed(5);
  std::mt19937_64 random(5);
  for (const std::size_t bytes : {3, 8, 13, 32}) {
    for (std::size_t bit = 0; bit < bytes * 8; bit += 11) {
      int changed[32] = {};
      for (int i = 0; i < keys; ++i) {
        std::string key(bytes, '\0');
        for (char& letter : key) letter = static_cast<char>(random());
        const std::uint32_t before = hash_key(key, five);
        key[bit / 8] = static_cast<char>(key[bit / 8] ^ 1 << bit % 8);
        for (unsigned at = 0; at < 32; ++at) changed[at] += static_cast<int>((before ^ hash_key(key, five)) >> at & 1);
      }
      for (const int count : changed) ASSERT_NEAR(count, keys / 2, 95) << "bit " << bit << " of " << bytes << " bytes";
    }
  }
}

// If many keys have the same hash, a request still walks a bounded number of them.
TEST(HashTable, AChainHasABound) {
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

}  // namespace
}  // namespace neap::memcached
