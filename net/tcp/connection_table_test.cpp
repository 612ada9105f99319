// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/connection_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/host/panics.hpp"

namespace neap::net::tcp {
namespace {

template <class Key>
struct NodeOf {
  NodeOf* chain_next = nullptr;
  Key key;
  [[nodiscard]] bool has_addresses(const Key& other) const noexcept { return key == other; }
};
using Node = NodeOf<SegmentAddresses>;
using Table = ConnectionTable<Node>;

SegmentAddresses key_of(std::uint32_t number) {
  return {.addresses = std::uint64_t{0x0A00'0001} << 32 | 0xC0A8'0000 | (number >> 12), .ports = 80 << 16 | (number & 0xFFF)};
}
/// The same factors in each run of the test.
TableSecret secret() {
  std::mt19937_64 random(1);
  TableSecret made;
  for (std::uint64_t& factor : made.addresses) factor = random() | 1;
  made.ports = random() | 1;
  return made;
}

TEST(ConnectionTable, FindsEachNodeUntilItIsRemoved) {
  Table table;
  ASSERT_TRUE(table.start(10, secret()));
  std::deque<Node> nodes;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    nodes.push_back({.key = key_of(i)});
    table.add(nodes.back(), nodes.back().key);
  }
  EXPECT_EQ(table.count(), 5000U);
  for (Node& node : nodes) ASSERT_EQ(table.find(node.key), &node);
  for (std::uint32_t i = 0; i < 5000; i += 2) table.remove(nodes[i], nodes[i].key);
  for (std::uint32_t i = 0; i < 5000; ++i) ASSERT_EQ(table.find(key_of(i)), i % 2 == 0 ? nullptr : &nodes[i]);
  EXPECT_EQ(table.count(), 2500U);
  EXPECT_EQ(table.find(key_of(1).reversed()), nullptr);
  EXPECT_EQ(nodes[0].chain_next, nullptr);
}

// A core's share of connections is close to random whatever the addresses: consecutive ports, one port of many machines, both.
TEST(ConnectionTable, PatternsOfAddressesGiveShortChains) {
  constexpr unsigned bits = 12;
  constexpr std::uint32_t nodes = 16'384;
  const std::vector<SegmentAddresses (*)(std::uint32_t)> patterns{
      [](std::uint32_t i) { return SegmentAddresses{.addresses = 0x0A00'0001'C0A8'0001, .ports = 80U << 16 | i}; },
      [](std::uint32_t i) { return SegmentAddresses{.addresses = 0x0A00'0001'0000'0000U | i, .ports = 80U << 16 | 1}; },
      [](std::uint32_t i) { return SegmentAddresses{.addresses = 0x0A00'0001'0000'0000U | (i << 16), .ports = 80U << 16 | 1}; },
      [](std::uint32_t i) { return SegmentAddresses{.addresses = 0x0A00'0001'0000'0000U | std::byteswap(i), .ports = std::byteswap(i)}; },
      [](std::uint32_t i) { return SegmentAddresses{.addresses = 0x0A00'0001'0000'0000U | i, .ports = ~i}; },
  };
  for (std::size_t pattern = 0; pattern < patterns.size(); ++pattern) {
    std::vector<std::uint32_t> chains(1U << bits);
    std::uint32_t longest = 0;
    for (std::uint32_t i = 0; i < nodes; ++i) longest = std::max(longest, ++chains[secret().hash(patterns[pattern](i)) >> (64 - bits)]);
    EXPECT_LE(longest, 32U) << pattern;  // four in the mean
  }
}

// A peer that knows a set of keys which collide with one secret gains nothing with another one.
TEST(ConnectionTable, CollidingKeysOfOneSecretAreSpreadByAnother) {
  constexpr unsigned bits = 8;
  std::vector<SegmentAddresses> colliding;
  for (std::uint32_t i = 0; colliding.size() < 200; ++i) {
    if (secret().hash(key_of(i)) >> (64 - bits) == 7) colliding.push_back(key_of(i));
  }
  const TableSecret other = TableSecret::random();
  EXPECT_NE(other.ports, TableSecret::random().ports);
  std::map<std::uint64_t, unsigned> chains;
  unsigned longest = 0;
  for (const SegmentAddresses& key : colliding) longest = std::max(longest, ++chains[other.hash(key) >> (64 - bits)]);
  EXPECT_LE(longest, 20U);
}

TEST(ConnectionTable, APassVisitsEachNodeOnceAlthoughOthersComeAndGo) {
  Table table;
  ASSERT_TRUE(table.start(6, secret()));
  std::deque<Node> nodes;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    nodes.push_back({.key = key_of(i)});
    table.add(nodes.back(), nodes.back().key);
  }
  std::map<const Node*, unsigned> visits;
  std::uint32_t more = 1000, gone = 0;
  for (std::uint32_t position = 0; position < table.chains(); ++position) {
    for (const Node* node = table.first_of(position); node != nullptr; node = node->chain_next) ++visits[node];
    for (int i = 0; i < 5; ++i) {
      nodes.push_back({.key = key_of(more++)});
      table.add(nodes.back(), nodes.back().key);
      table.remove(nodes[gone], nodes[gone].key);
      gone += 2;  // the odd ones stay
    }
  }
  for (std::uint32_t i = 1; i < 1000; i += 2) ASSERT_EQ(visits[&nodes[i]], 1U) << i;
  for (const auto& [node, count] : visits) ASSERT_EQ(count, 1U);
  EXPECT_EQ(table.first_of(table.chains() + 3), table.first_of(3));
}

TEST(ConnectionTable, Ipv6KeysAreFoundByAllTheirBytes) {
  using Node6 = NodeOf<SegmentAddresses6>;
  ConnectionTable<Node6, SegmentAddresses6> table;
  ASSERT_TRUE(table.start(8, secret()));
  std::deque<Node6> nodes;
  const SegmentAddresses6 base{.addresses = {1, 2, 3, 4}, .ports = 5};
  std::set<std::uint64_t> hashes;
  for (unsigned bit = 0; bit < 4 * 64 + 32; ++bit) {
    SegmentAddresses6 key = base;
    if (bit < 256) {
      key.addresses[bit / 64] ^= std::uint64_t{1} << (bit % 64);
    } else {
      key.ports ^= 1U << (bit - 256);
    }
    nodes.push_back({.key = key});
    table.add(nodes.back(), key);
    hashes.insert(secret().hash(key));
  }
  EXPECT_EQ(hashes.size(), nodes.size());
  SegmentAddresses6 both = base;
  both.addresses[0] ^= std::uint64_t{1} << 63;
  both.addresses[1] ^= std::uint64_t{1} << 63;
  EXPECT_NE(secret().hash(both), secret().hash(base));
  for (Node6& node : nodes) ASSERT_EQ(table.find(node.key), &node);
  EXPECT_EQ(table.find(base), nullptr);
  EXPECT_EQ(base.reversed().reversed(), base);
  EXPECT_EQ(base.reversed().addresses[0], 3U);
}

TEST(ConnectionTable, RemovingAStrangerPanics) {
  host::expect_panic("not in", [] {
    Table table;
    if (!table.start(4, secret())) return;
    Node node{.key = key_of(1)};
    table.remove(node, node.key);
  });
}

}  // namespace
}  // namespace neap::net::tcp
