// SPDX-License-Identifier: BSL-1.0
// Every allocation of a transaction fails once. The transaction then ends with `no_memory`, and the tables are as before.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "apps/tpcc/engine/random_transactions.hpp"

namespace {
constexpr unsigned never = ~0U;
unsigned allocations_until_failure = never;

bool fails() {
  if (allocations_until_failure == never || allocations_until_failure-- != 0) return false;
  allocations_until_failure = never;
  return true;
}
}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return fails() ? nullptr : ::operator new(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return fails() ? nullptr : ::operator new[](bytes); }

namespace neap::transactions {
namespace {

using namespace testing;

TEST(MemoryFailure, AWorkerIsMadeWhollyOrNotAtAll) {
  const Epochs epochs;
  unsigned failures = 0;
  for (;; ++failures) {
    allocations_until_failure = failures;
    const auto worker = Worker::make(epochs);
    const bool none_failed = allocations_until_failure != never;
    allocations_until_failure = never;
    EXPECT_EQ(worker != nullptr, none_failed);
    if (none_failed) break;
  }
  EXPECT_EQ(failures, 7U);
}

TEST(MemoryFailure, ALoadWithoutMemoryInsertsNothing) {
  TestTable table("test");
  std::uint64_t rows = 0, failures = 0;
  for (std::uint64_t key = 0; key < 5000; ++key) {
    allocations_until_failure = static_cast<unsigned>(key % 4);
    if (table.load(key_of(key * 7 % 5000), row_of(key))) {
      ++rows;
    } else {
      ++failures;
    }
    allocations_until_failure = never;
  }
  EXPECT_GT(failures, 1250U);  // each fourth row, and splits
  EXPECT_EQ(table.rows(), rows);
  EXPECT_EQ(contents_of(table).size(), rows);
}

TEST(MemoryFailure, OfATransactionLeavesNothing) {
  const Epochs epochs;
  TestTable table("test");
  for (std::uint64_t key = 0; key < 4000; key += 2) ASSERT_TRUE(table.load(key_of(key), row_of(key)));
  const Contents before = contents_of(table);
  unsigned failures = 0;
  for (;; ++failures) {
    // A new worker has no memory in reserve, so each insertion and removal allocates.
    const auto worker = Worker::make(epochs);
    Transaction transaction(*worker);
    EngineStore store{transaction, table};
    transaction.begin();
    allocations_until_failure = failures;
    Outcome outcome = Outcome::done;
    std::uint64_t value = 0;
    for (std::uint64_t key = 1; key < 120 && !is_failure(outcome); key += 2) {
      outcome = store.insert(key, 5);
      if (!is_failure(outcome) && key % 9 == 0) outcome = store.remove(key + 1);
      if (!is_failure(outcome) && key % 9 == 3) outcome = store.update(key + 1, value, 1);
    }
    const bool none_failed = allocations_until_failure != never;
    allocations_until_failure = never;
    if (none_failed) {
      EXPECT_EQ(transaction.commit(), Outcome::committed);
      break;
    }
    EXPECT_EQ(outcome, Outcome::no_memory);
    EXPECT_EQ(transaction.commit(), Outcome::no_memory);
    EXPECT_EQ(worker->counters().no_memory.value(), 1U);
    ASSERT_EQ(contents_of(table), before) << failures;
    ASSERT_EQ(table.rows(), before.size());
  }
  EXPECT_GT(failures, 120U);  // records and retirements
  EXPECT_EQ(table.rows(), before.size() + 60 - 7);
}

}  // namespace
}  // namespace neap::transactions
