// SPDX-License-Identifier: BSL-1.0
// A loaded database of small scale, with one core's transaction, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "apps/tpcc/engine/transaction.hpp"
#include "apps/tpcc/loader.hpp"
#include "apps/tpcc/procedures.hpp"
#include "apps/tpcc/schema.hpp"

namespace neap::tpcc::test {

inline constexpr Scale small_scale{.warehouses = 2, .items = 100, .customers_per_district = 30, .orders_per_district = 30, .districts = 3};
inline constexpr std::uint64_t seed = 11;

struct LoadedDatabase {
  explicit LoadedDatabase(const Scale& scale = small_scale) : database(scale) { EXPECT_TRUE(load(database, seed, 0, 1)); }

  template <class Row, unsigned Words>
  Row row(transactions::Table<Row, Words>& table, const std::type_identity_t<Key<Words>>& key) {
    Row row{};
    transaction.begin();
    EXPECT_EQ((transaction.read<Row, Words>(table, key, row)), Outcome::found);
    EXPECT_EQ(transaction.commit(), Outcome::committed);
    return row;
  }
  template <class Row, unsigned Words>
  bool has(transactions::Table<Row, Words>& table, const std::type_identity_t<Key<Words>>& key) {
    Row row{};
    transaction.begin();
    const Outcome outcome = transaction.read<Row, Words>(table, key, row);
    EXPECT_EQ(transaction.commit(), Outcome::committed);
    return outcome == Outcome::found;
  }
  /// Changes a row by `function(Row&)`.
  template <class Row, unsigned Words, class Function>
  void change(transactions::Table<Row, Words>& table, const std::type_identity_t<Key<Words>>& key, Function function) {
    Row* row = nullptr;
    transaction.begin();
    ASSERT_EQ((transaction.update<Row, Words>(table, key, row)), Outcome::found);
    function(*row);
    ASSERT_EQ(transaction.commit(), Outcome::committed);
  }
  Outcome run(const Inputs& inputs) { return tpcc::run(transaction, database, inputs, result); }

  Database database;
  transactions::Epochs epochs;
  std::unique_ptr<transactions::Worker> worker = transactions::Worker::make(epochs);
  Transaction transaction{*worker};
  Result result{};
};

}  // namespace neap::tpcc::test
