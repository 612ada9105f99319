// SPDX-License-Identifier: BSL-1.0
#include "drivers/rss.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "drivers/ixgbe/moderation.hpp"
#include "kernel/toeplitz.hpp"

namespace neap::ixgbe {
namespace {

constexpr std::uint32_t ip(unsigned a, unsigned b, unsigned c, unsigned d) { return a << 24 | b << 16 | c << 8 | d; }

struct Vector {
  std::uint32_t destination, source;
  std::uint16_t destination_port, source_port;
  std::uint32_t hash_addresses, hash_ports;
};

// The IPv4 test vectors of the public RSS specification.
constexpr Vector vectors[] = {
    {ip(161, 142, 100, 80), ip(66, 9, 149, 187), 1766, 2794, 0x323e8fc2, 0x51ccc178},
    {ip(65, 69, 140, 83), ip(199, 92, 111, 2), 4739, 14230, 0xd718262a, 0xc626b0ea},
    {ip(12, 22, 207, 184), ip(24, 19, 198, 95), 38024, 12898, 0xd2d0a5de, 0x5c2b394a},
    {ip(209, 142, 163, 6), ip(38, 27, 205, 30), 2217, 48228, 0x82989176, 0xafc7327f},
    {ip(202, 188, 127, 2), ip(153, 39, 163, 191), 1303, 44251, 0x5d1809c5, 0x10e828a2},
};

TEST(Rss, ToeplitzGivesThePublishedHashes) {
  for (const Vector& vector : vectors) {
    EXPECT_EQ(toeplitz::hash_ipv4(vector.source, vector.destination, vector.source_port, vector.destination_port), vector.hash_ports);
    std::array<std::uint8_t, 8> addresses{};
    for (unsigned i = 0; i < 4; ++i) {
      addresses[i] = static_cast<std::uint8_t>(vector.source >> (24 - 8 * i));
      addresses[4 + i] = static_cast<std::uint8_t>(vector.destination >> (24 - 8 * i));
    }
    EXPECT_EQ(toeplitz::hash(addresses), vector.hash_addresses);
  }
}

using Words = std::array<std::uint16_t, 8>;

constexpr std::array<std::uint8_t, 16> ipv6(const Words& words) {
  std::array<std::uint8_t, 16> address{};
  for (std::size_t i = 0; i < address.size(); ++i) address[i] = static_cast<std::uint8_t>(words[i / 2] >> (i % 2 == 0 ? 8 : 0));
  return address;
}

struct Ipv6Vector {
  Words destination, source;
  std::uint16_t destination_port, source_port;
  std::uint32_t hash_addresses, hash_ports;
};

// The IPv6 test vectors of the same specification.
constexpr Ipv6Vector ipv6_vectors[] = {
    {{0x3ffe, 0x2501, 0x200, 3, 0, 0, 0, 1}, {0x3ffe, 0x2501, 0x200, 0x1fff, 0, 0, 0, 7}, 1766, 2794, 0x2cc18cd5, 0x40207d3d},
    {{0xff02, 0, 0, 0, 0, 0, 0, 1}, {0x3ffe, 0x501, 8, 0, 0x260, 0x97ff, 0xfe40, 0xefab}, 4739, 14230, 0x0f0c461c, 0xdde51bbf},
    {{0xfe80, 0, 0, 0, 0x200, 0xf8ff, 0xfe21, 0x67cf},
     {0x3ffe, 0x1900, 0x4545, 3, 0x200, 0xf8ff, 0xfe21, 0x67cf},
     38024,
     44251,
     0x4b61e985,
     0x02d1feef},
};

TEST(Rss, ToeplitzGivesThePublishedHashesOfIpv6) {
  for (const Ipv6Vector& vector : ipv6_vectors) {
    const auto source = ipv6(vector.source), destination = ipv6(vector.destination);
    EXPECT_EQ(toeplitz::hash_ipv6(source, destination, vector.source_port, vector.destination_port), vector.hash_ports);
    std::array<std::uint8_t, 32> addresses{};
    std::ranges::copy(destination, std::ranges::copy(source, addresses.begin()).out);
    EXPECT_EQ(toeplitz::hash(addresses), vector.hash_addresses);
  }
}

// The longest input (IPv6 with ports) uses the whole key. The compiler detects a read beyond the key.
TEST(Rss, LongestInputStaysInsideTheKey) {
  constexpr const Ipv6Vector& vector = ipv6_vectors[0];
  constexpr std::uint32_t hash =
      toeplitz::hash_ipv6(ipv6(vector.source), ipv6(vector.destination), vector.source_port, vector.destination_port);
  EXPECT_EQ(hash, vector.hash_ports);
}

class RssTable : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Cores, RssTable, testing::Values(1, 2, 3, 4, 6, 8, 12, 16));

TEST_P(RssTable, SharesDifferByOneEntryAtMost) {
  const unsigned queues = GetParam();
  std::array<unsigned, 256> share{};
  for (const std::uint8_t queue : rss::table_for(queues)) ++share[queue];
  const auto [least, most] = std::minmax_element(share.begin(), share.begin() + queues);
  EXPECT_LE(*most - *least, 1U);
  EXPECT_GE(*least, rss::table_entries / queues);
  for (unsigned queue = queues; queue < share.size(); ++queue) EXPECT_EQ(share[queue], 0U) << "queue " << queue << " does not exist";
}

// A reserved core (Options::reserved_core) gets no entry in the table; the other cores share the entries equally.
TEST_P(RssTable, AQueueLeftOutGetsNoEntry) {
  const unsigned queues = GetParam();
  if (queues == 1) return;
  for (unsigned left_out = 0; left_out < queues; ++left_out) {
    std::array<unsigned, 256> share{};
    for (const std::uint8_t queue : rss::table_for(queues, left_out)) ++share[queue];
    EXPECT_EQ(share[left_out], 0U);
    for (unsigned queue = 0; queue < share.size(); ++queue) {
      if (queue == left_out) continue;
      const unsigned least = rss::table_entries / (queues - 1);
      EXPECT_TRUE(queue < queues ? share[queue] == least || share[queue] == least + 1 : share[queue] == 0) << queue;
    }
  }
}

// Realistic clients: a hundred addresses with a hundred consecutive ports each. A queue's number of connections is proportional to its
// number of table entries, to within 10 %. With 1, 2, 4, 8 or 16 queues, all queues have equally many entries.
TEST_P(RssTable, TenThousandConnectionsAreSharedWithinATenth) {
  const unsigned queues = GetParam();
  const rss::Table table = rss::table_for(queues);
  std::array<unsigned, 16> share{};
  for (unsigned client = 1; client <= 100; ++client) {
    for (unsigned port = 0; port < 100; ++port) {
      ++share.at(rss::queue_of(
          table, toeplitz::hash_ipv4(ip(10, 0, 1, client), ip(10, 0, 0, 1), static_cast<std::uint16_t>(32768 + port), 11211)));
    }
  }
  for (unsigned queue = 0; queue < queues; ++queue) {
    const auto entries = static_cast<double>(std::count(table.begin(), table.end(), queue));
    const double expected = 10'000 * entries / rss::table_entries;
    EXPECT_NEAR(share[queue], expected, expected / 10) << "queue " << queue;
  }
}

// The distribution of 10,000 random flows follows the table's shares, within five standard deviations.
TEST_P(RssTable, SpreadsFlows) {
  const unsigned queues = GetParam();
  const rss::Table table = rss::table_for(queues);
  constexpr unsigned flows = 10'000;
  std::mt19937 random(7);
  std::array<unsigned, 16> share{};
  for (unsigned i = 0; i < flows; ++i) {
    const std::uint32_t hash = toeplitz::hash_ipv4(random(), ip(10, 0, 0, 1), static_cast<std::uint16_t>(random()), 11211);
    ++share.at(rss::queue_of(table, hash));
  }
  std::array<unsigned, 16> entries{};
  for (const std::uint8_t queue : table) ++entries[queue];
  for (unsigned queue = 0; queue < queues; ++queue) {
    const double expected = double{flows} * entries[queue] / rss::table_entries;
    EXPECT_NEAR(share[queue], expected, 5 * std::sqrt(expected)) << "queue " << queue;
  }
}

TEST(Moderation, RoundsToTheCardsStepsAndReturnsTheResult) {
  const auto becomes = [](std::uint32_t wanted_us) { return Moderation::from_us(wanted_us)->itr_us(); };
  EXPECT_EQ(becomes(0), 0U);
  EXPECT_EQ(becomes(1), 2U) << "the smallest moderation must not become none";
  EXPECT_EQ(becomes(2), 2U);
  EXPECT_EQ(becomes(3), 4U);
  EXPECT_EQ(becomes(16), 16U);
  EXPECT_EQ(becomes(1022), 1022U);
  EXPECT_EQ(becomes(1023), 1022U) << "the field has nine bits";
  EXPECT_EQ(becomes(1024), 1022U);
  EXPECT_EQ(Moderation{}.itr_us(), 16U);
}

TEST(Moderation, RefusesIntervalsBeyondTheCards) {
  const auto refused = Moderation::from_us(1025);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace neap::ixgbe
