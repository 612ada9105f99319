// SPDX-License-Identifier: BSL-1.0
// One core: the outcome of each operation, what a transaction sees of its own changes, and what commit and abort leave.
#include "apps/tpcc/engine/transaction.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernel/timer.hpp"

namespace neap::transactions {
namespace {

struct Row {
  std::int64_t value;
  std::uint64_t other;
};
using Pairs = std::vector<std::pair<std::uint64_t, std::int64_t>>;

class Transactions : public ::testing::Test {
 protected:
  Pairs contents() const {
    Pairs pairs;
    table.for_each([&](const Key<1>& key, const Row& row) { pairs.emplace_back(key[0], row.value); });
    return pairs;
  }
  Pairs scanned(Transaction& transaction, std::uint64_t from, std::uint64_t to, bool forward = true) {
    Pairs pairs;
    const auto collect = [&](const Key<1>& key, const Row& row) {
      pairs.emplace_back(key[0], row.value);
      return true;
    };
    EXPECT_EQ(forward ? transaction.scan(table, {from}, {to}, collect) : transaction.scan_back(table, {from}, {to}, collect),
              Outcome::done);
    return pairs;
  }
  std::int64_t value_of(Transaction& transaction, std::uint64_t key) {
    Row row{};
    const Outcome outcome = transaction.read(table, {key}, row);
    return outcome == Outcome::found ? row.value : outcome == Outcome::absent ? -1 : -2;
  }
  void load(std::uint64_t keys) {
    for (std::uint64_t key = 0; key < keys; ++key) ASSERT_TRUE(table.load({key}, {static_cast<std::int64_t>(key * 10), 0}));
  }

  Epochs epochs;
  std::unique_ptr<Worker> worker = Worker::make(epochs), other_worker = Worker::make(epochs);
  Table<Row> table{"test"};
  Transaction first{*worker}, second{*other_worker};
};

TEST_F(Transactions, ALoadedRowIsRead) {
  ASSERT_TRUE(table.load({5}, {50, 0}));
  EXPECT_FALSE(table.load({5}, {51, 0}));
  first.begin();
  EXPECT_EQ(value_of(first, 5), 50);
  EXPECT_EQ(value_of(first, 6), -1);
  EXPECT_EQ(first.commit(), Outcome::committed);
  EXPECT_EQ(table.rows(), 1U);
}

TEST_F(Transactions, AnUpdateIsStoredByTheCommitOnly) {
  load(3);
  first.begin();
  Row* row = nullptr;
  ASSERT_EQ(first.update(table, {1}, row), Outcome::found);
  row->value = 11;
  Row* again = nullptr;
  EXPECT_EQ(first.update(table, {1}, again), Outcome::found);
  EXPECT_EQ(row, again);
  EXPECT_EQ(first.update(table, {9}, again), Outcome::absent);
  EXPECT_EQ(value_of(first, 1), 11);
  EXPECT_EQ(contents(), (Pairs{{0, 0}, {1, 10}, {2, 20}}));
  EXPECT_EQ(first.commit(), Outcome::committed);
  EXPECT_EQ(contents(), (Pairs{{0, 0}, {1, 11}, {2, 20}}));
}

TEST_F(Transactions, AnAbortLeavesNothing) {
  load(3);
  first.begin();
  Row* row = nullptr;
  ASSERT_EQ(first.update(table, {1}, row), Outcome::found);
  row->value = 11;
  EXPECT_EQ(first.insert(table, {7}, Row{70, 0}), Outcome::done);
  EXPECT_EQ(first.remove(table, {2}), Outcome::done);
  EXPECT_EQ(first.remove(table, {2}), Outcome::absent);
  EXPECT_EQ(scanned(first, 0, 100), (Pairs{{0, 0}, {1, 11}, {7, 70}}));
  EXPECT_EQ(scanned(first, 0, 100, false), (Pairs{{7, 70}, {1, 11}, {0, 0}}));
  first.abort();
  EXPECT_EQ(contents(), (Pairs{{0, 0}, {1, 10}, {2, 20}}));
  EXPECT_EQ(worker->counters().aborted.value(), 1U);
}

TEST_F(Transactions, InsertionAndRemovalCanFollowEachOtherInOneTransaction) {
  load(2);
  first.begin();
  EXPECT_EQ(first.insert(table, {0}, Row{}), Outcome::exists);
  EXPECT_EQ(first.remove(table, {0}), Outcome::done);
  EXPECT_EQ(value_of(first, 0), -1);
  EXPECT_EQ(first.insert(table, {0}, Row{5, 0}), Outcome::done);
  EXPECT_EQ(value_of(first, 0), 5);
  EXPECT_EQ(first.insert(table, {8}, Row{80, 0}), Outcome::done);
  EXPECT_EQ(first.insert(table, {8}, Row{81, 0}), Outcome::exists);
  EXPECT_EQ(first.remove(table, {8}), Outcome::done);
  EXPECT_EQ(value_of(first, 8), -1);
  Row* row = nullptr;
  EXPECT_EQ(first.update(table, {8}, row), Outcome::absent);
  EXPECT_EQ(first.insert(table, {9}, Row{90, 0}), Outcome::done);
  EXPECT_EQ(first.remove(table, {9}), Outcome::done);
  EXPECT_EQ(first.insert(table, {9}, Row{91, 0}), Outcome::done);
  EXPECT_EQ(first.remove(table, {1}), Outcome::done);
  EXPECT_EQ(scanned(first, 0, 100), (Pairs{{0, 5}, {9, 91}}));
  EXPECT_EQ(first.commit(), Outcome::committed);
  EXPECT_EQ(contents(), (Pairs{{0, 5}, {9, 91}}));
  EXPECT_EQ(table.rows(), 2U);
}

TEST_F(Transactions, AChangedRowThatWasReadIsAConflict) {
  load(3);
  first.begin();
  EXPECT_EQ(value_of(first, 1), 10);
  second.begin();
  Row* row = nullptr;
  ASSERT_EQ(second.update(table, {1}, row), Outcome::found);
  row->value = 12;
  EXPECT_EQ(second.commit(), Outcome::committed);
  EXPECT_EQ(first.commit(), Outcome::conflict);
  EXPECT_EQ(worker->counters().conflicts.value(), 1U);
  EXPECT_EQ(other_worker->counters().committed.value(), 1U);
}

TEST_F(Transactions, OfTwoUpdatesOfOneRowTheSecondIsAConflict) {
  load(3);
  Row *mine = nullptr, *theirs = nullptr;
  first.begin();
  second.begin();
  ASSERT_EQ(first.update(table, {1}, mine), Outcome::found);
  ASSERT_EQ(second.update(table, {1}, theirs), Outcome::found);
  ++mine->value;
  ++theirs->value;
  EXPECT_EQ(first.commit(), Outcome::committed);
  EXPECT_EQ(second.commit(), Outcome::conflict);
  EXPECT_EQ(contents()[1].second, 11);
}

TEST_F(Transactions, ANewRowOfAnotherTransactionIsAConflict) {
  first.begin();
  second.begin();
  EXPECT_EQ(first.insert(table, {4}, Row{40, 0}), Outcome::done);
  Row row{};
  EXPECT_EQ(second.read(table, {4}, row), Outcome::conflict);
  EXPECT_EQ(second.commit(), Outcome::conflict);
  second.begin();
  EXPECT_EQ(second.insert(table, {4}, Row{41, 0}), Outcome::conflict);
  second.abort();
  EXPECT_EQ(first.commit(), Outcome::committed);
  EXPECT_EQ(contents(), (Pairs{{4, 40}}));
}

TEST_F(Transactions, APhantomIsAConflict) {
  load(3);
  for (const bool inserts : {true, false}) {
    first.begin();
    if (inserts) {
      EXPECT_EQ(value_of(first, 50), -1);
    } else {
      EXPECT_EQ(scanned(first, 1, 60).size(), 3U);  // keys 1, 2 and 50
    }
    second.begin();
    if (inserts) {
      EXPECT_EQ(second.insert(table, {50}, Row{}), Outcome::done);
    } else {
      EXPECT_EQ(second.remove(table, {50}), Outcome::done);
    }
    EXPECT_EQ(second.commit(), Outcome::committed);
    EXPECT_EQ(first.commit(), Outcome::conflict);
  }
}

TEST_F(Transactions, OfTwoInsertionsThatMissEachOtherOneIsAConflict) {
  load(200);  // several leaves
  first.begin();
  second.begin();
  EXPECT_EQ(value_of(first, 1000), -1);
  EXPECT_TRUE(scanned(second, 5, 8).size() == 4);
  ASSERT_EQ(first.remove(table, {6}), Outcome::done);
  ASSERT_EQ(second.insert(table, {1000}, Row{}), Outcome::done);
  EXPECT_EQ(first.commit(), Outcome::conflict);
  EXPECT_EQ(second.commit(), Outcome::committed);
}

TEST_F(Transactions, OwnInsertionsIntoAScannedLeafAreNoConflict) {
  load(40);
  first.begin();
  EXPECT_EQ(scanned(first, 0, 1000).size(), 40U);
  for (std::uint64_t key = 100; key < 300; ++key) EXPECT_EQ(first.insert(table, {key}, Row{}), Outcome::done);  // with splits
  EXPECT_EQ(scanned(first, 0, 1000).size(), 240U);
  EXPECT_EQ(first.commit(), Outcome::committed);
  EXPECT_EQ(table.rows(), 240U);
}

TEST_F(Transactions, AScanStopsWhereTheFunctionSaysSo) {
  load(500);
  first.begin();
  for (const bool forward : {true, false}) {
    Pairs seen;
    const auto three = [&](const Key<1>& key, const Row& row) {
      seen.emplace_back(key[0], row.value);
      return seen.size() < 3;
    };
    EXPECT_EQ(forward ? first.scan(table, {100}, {400}, three) : first.scan_back(table, {100}, {400}, three), Outcome::done);
    EXPECT_EQ(seen, forward ? (Pairs{{100, 1000}, {101, 1010}, {102, 1020}}) : (Pairs{{400, 4000}, {399, 3990}, {398, 3980}}));
  }
  EXPECT_EQ(scanned(first, 100, 400).size(), 301U);
  EXPECT_EQ(scanned(first, 100, 400, false).size(), 301U);
  EXPECT_TRUE(scanned(first, 400, 100).empty());
  EXPECT_EQ(first.commit(), Outcome::committed);
}

TEST_F(Transactions, AScansFunctionMayUpdateAndRemove) {
  load(200);
  first.begin();
  EXPECT_EQ(first.scan(table, {0}, {199},
                       [&](const Key<1>& key, const Row&) {
                         if (key[0] % 2 == 0) return first.remove(table, key) == Outcome::done;
                         Row* row = nullptr;
                         EXPECT_EQ(first.update(table, key, row), Outcome::found);
                         row->value = -5;
                         return true;
                       }),
            Outcome::done);
  EXPECT_EQ(first.commit(), Outcome::committed);
  EXPECT_EQ(table.rows(), 100U);
  for (const auto& [key, value] : contents()) EXPECT_TRUE(key % 2 == 1 && value == -5);
}

TEST(TransactionLimits, ATransactionBeyondThemEndsWithTooLarge) {
  Epochs epochs;
  const auto worker = Worker::make(epochs, {.reads = 5, .writes = 3, .leaves = 2, .arena_bytes = 128});
  Table<Row> table("test");
  for (std::uint64_t key = 0; key < 1000; ++key) ASSERT_TRUE(table.load({key}, {}));
  Transaction transaction(*worker);
  const auto run = [&](auto&& operation) {
    transaction.begin();
    Outcome outcome = Outcome::done;
    for (std::uint64_t key = 0; key < 500 && !is_failure(outcome); ++key) outcome = operation(key);
    EXPECT_EQ(outcome, Outcome::too_large);
    EXPECT_EQ(transaction.commit(), Outcome::too_large);
    EXPECT_EQ(table.rows(), 1000U);
  };
  Row row{}, *changed = nullptr;
  run([&](std::uint64_t key) { return transaction.read(table, {key}, row); });
  run([&](std::uint64_t key) { return transaction.update(table, {key}, changed); });
  run([&](std::uint64_t key) { return transaction.insert(table, {1000 + key}, Row{}); });
  run([&](std::uint64_t key) { return transaction.remove(table, {key}); });
  run([&](std::uint64_t) { return transaction.scan(table, {0}, {999}, [](const Key<1>&, const Row&) { return true; }); });
  EXPECT_EQ(worker->counters().too_large.value(), 5U);
}

TEST_F(Transactions, VersionsFollowTheEpoch) {
  load(1);
  const auto word = [&] {
    std::uint64_t value = 0;
    table.index().for_each([&](const Key<1>&, const RecordHeader* record) { value = record->word; });
    return value;
  };
  EXPECT_EQ(word() >> RecordHeader::epoch_shift, 1U);
  Row* row = nullptr;
  std::uint64_t last = 0;
  for (int turn = 0; turn < 4; ++turn) {
    if (turn == 2) epochs.advance();
    first.begin();
    ASSERT_EQ(first.update(table, {0}, row), Outcome::found);
    ASSERT_EQ(first.commit(), Outcome::committed);
    EXPECT_GT(word(), last);
    last = word();
    EXPECT_EQ(last >> RecordHeader::epoch_shift, epochs.current());
  }
}

}  // namespace
}  // namespace neap::transactions
