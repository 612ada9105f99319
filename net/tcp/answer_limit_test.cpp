// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/answer_limit.hpp"

#include <gtest/gtest.h>

#include <set>

namespace neap::net::tcp {
namespace {

TEST(AnswerLimit, ASecondHasABoundedNumberOfAnswersThatCannotBePredicted) {
  AnswerLimit limit(1000);
  std::set<unsigned> counts;
  std::uint64_t refused = 0;
  for (std::uint64_t second = 0; second < 20; ++second) {
    unsigned count = 0;
    for (std::uint64_t i = 0; i < 5000; ++i) count += limit.take(second * 1'000'000 + i * 100) ? 1 : 0;
    EXPECT_GE(count, 500U);
    EXPECT_LE(count, 1500U);
    counts.insert(count);
    refused += 5000 - count;
  }
  EXPECT_GT(counts.size(), 10U);
  EXPECT_EQ(limit.refused(), refused);
}

TEST(AnswerLimit, AConnectionAnswersOnceInHalfASecond) {
  AnswerLimit limit(1000);
  std::uint32_t last_ms = 0;
  unsigned answers = 0;
  for (std::uint64_t ms = 0; ms < 5000; ++ms) answers += may_answer(last_ms, ms * 1000, limit) ? 1 : 0;
  EXPECT_EQ(answers, 10U);
  // A refusal by the core's limit does not count as the connection's answer.
  AnswerLimit none(0);
  std::uint32_t other_ms = 0;
  EXPECT_FALSE(may_answer(other_ms, 1'000'000, none));
  EXPECT_EQ(other_ms, 0U);
}

}  // namespace
}  // namespace neap::net::tcp
