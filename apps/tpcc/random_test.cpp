// SPDX-License-Identifier: BSL-1.0
// The random values have the distributions that the specification asks for. Seeds are fixed, so the results do not vary.
#include "apps/tpcc/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace neap::tpcc {
namespace {

/// The exact probabilities of NURand by enumeration of both uniform numbers, against counts of draws.
void expect_nurand(std::uint32_t a, std::uint32_t constant, std::uint32_t first, std::uint32_t last, unsigned draws) {
  const std::uint32_t values = last - first + 1;
  std::vector<double> ways(values), counts(values);
  for (std::uint32_t left = 0; left <= a; ++left)
    for (std::uint32_t right = first; right <= last; ++right) ++ways[((left | right) + constant) % values];
  Random random(5);
  for (unsigned draw = 0; draw < draws; ++draw) {
    const std::uint32_t number = nurand(random, a, constant, first, last);
    ASSERT_GE(number, first);
    ASSERT_LE(number, last);
    ++counts[number - first];
  }
  double chi_square = 0;
  unsigned cells = 0;
  for (std::uint32_t value = 0; value < values; ++value) {
    const double expected = ways[value] / ((a + 1.0) * values) * draws;
    if (expected == 0) {
      EXPECT_EQ(counts[value], 0) << value;
      continue;
    }
    chi_square += (counts[value] - expected) * (counts[value] - expected) / expected;
    ++cells;
  }
  // Mean cells - 1, standard deviation sqrt(2 (cells - 1)).
  EXPECT_LT(chi_square, cells - 1 + 4 * std::sqrt(2.0 * (cells - 1)));
}

TEST(Nurand, HasTheExactDistributionForLastNames) { expect_nurand(255, 123, 0, 999, 400'000); }
TEST(Nurand, HasTheExactDistributionForCustomers) { expect_nurand(1023, 77, 1, 3'000, 400'000); }
TEST(Nurand, StaysInASmallRange) { expect_nurand(8191, 4'000, 1, 7, 10'000); }

TEST(Nurand, IsNotUniformForItems) {
  Random random(9);
  std::vector<unsigned> counts(100'001);
  for (unsigned draw = 0; draw < 1'000'000; ++draw) ++counts[nurand(random, 8191, 0, 1, 100'000)];
  // 13 bits are or-ed with a uniform number. So a number with all 13 bits is drawn far more often than one with none, before 1 is added.
  EXPECT_GT(counts[8191 + 1], 100U);
  EXPECT_LT(counts[8192 + 1], 4U);
}

// Clause 2.1.6.1 limits the distance between the constants of the load and of the run.
TEST(Nurand, ConstantsKeepTheirDistance) {
  std::set<std::uint32_t> different;
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    const NurandConstants load = NurandConstants::for_load(seed), run = NurandConstants::for_run(seed);
    const int distance = std::abs(static_cast<int>(run.last_name) - static_cast<int>(load.last_name));
    EXPECT_GE(distance, 65);
    EXPECT_LE(distance, 119);
    EXPECT_NE(distance, 96);
    EXPECT_NE(distance, 112);
    EXPECT_LE(run.last_name, 255U);
    EXPECT_LE(run.customer, 1023U);
    EXPECT_LE(run.item, 8191U);
    different.insert(run.last_name);
  }
  EXPECT_GT(different.size(), 100U);
}

TEST(LastName, ConsistsOfThreeSyllables) {
  EXPECT_EQ(last_name(0).view(), "BARBARBAR");
  EXPECT_EQ(last_name(371).view(), "PRICALLYOUGHT");
  EXPECT_EQ(last_name(999).view(), "EINGEINGEING");
  EXPECT_EQ(last_name(40).view(), "BARPRESBAR");
  EXPECT_EQ(last_name(256).view(), "ABLEESEANTI");
  EXPECT_EQ(last_name(777).view(), "CALLYCALLYCALLY");  // 15 characters, the longest
  std::set<std::string> names;
  for (std::uint32_t number = 0; number < last_names; ++number) names.insert(std::string(last_name(number).view()));
  EXPECT_EQ(names.size(), last_names);
}

TEST(RandomText, HasEveryLengthAndZerosBehindIt) {
  Random random(3);
  std::set<std::uint32_t> lengths;
  std::set<char> seen;
  for (int draw = 0; draw < 2'000; ++draw) {
    Text<20> text;
    text.assign("####################");
    const std::uint32_t length = random_letters(random, 8, 16, text.bytes);
    EXPECT_EQ(text.view().size(), length);
    for (std::size_t at = length; at < 20; ++at) EXPECT_EQ(text.bytes[at], 0);
    lengths.insert(length);
    seen.insert(text.bytes, text.bytes + length);
  }
  EXPECT_EQ(lengths.size(), 9U);
  EXPECT_EQ(seen.size(), 62U);
}

TEST(Text, KeyWordsOrderNamesAsTheirBytes) {
  const Name shorter("Ab"), longer("Abc"), upper("Abcdefgh"), last("Abcdefghi");
  EXPECT_LT(key_words(shorter), key_words(longer));
  EXPECT_LT(key_words(longer), key_words(upper));
  EXPECT_LT(key_words(upper), key_words(last));
  EXPECT_EQ(Text<4>("abcdef").view(), "abcd");
  EXPECT_EQ(Text<4>("ab").view(), "ab");
}

TEST(Random, PartsOfASeedAreDifferentSequences) {
  std::set<std::uint64_t> firsts;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (std::uint64_t part = 0; part < 100; ++part) firsts.insert(Random(seed, part).bits());
  EXPECT_EQ(firsts.size(), 10'000U);
}

}  // namespace
}  // namespace neap::tpcc
