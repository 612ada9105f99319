// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/server_database.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <variant>

#include "apps/tpcc/consistency.hpp"
#include "apps/tpcc/inputs.hpp"
#include "apps/tpcc/loader.hpp"
#include "apps/tpcc/procedures.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::tpcc {
namespace {

constexpr Scale small{.warehouses = 2, .items = 200, .customers_per_district = 60, .orders_per_district = 60, .districts = 10};

struct Terminals {
  explicit Terminals(const Options& options) : database(small) {
    EXPECT_TRUE(load(database, options.seed, 0, 1));
    terminal = make_terminal(database, epochs, options, 0, 1);
  }
  Database database;
  transactions::Epochs epochs;
  std::unique_ptr<Terminal> terminal;
};

TEST(ServerDatabase, EachTypeHasAnAnswerOfItsFieldsWithinTheBound) {
  Terminals subject({.warehouses = 2, .seed = 7});
  ASSERT_NE(subject.terminal, nullptr);
  std::set<TransactionType> types;
  std::array<char, answer_bytes_max> text;
  unsigned rolled_back = 0;
  for (unsigned i = 0; i < 500; ++i) {
    const Answer answer = subject.terminal->run(text);
    ASSERT_LT(answer.bytes, answer_bytes_max) << "a longer answer would be cut";
    const std::string_view shown(text.data(), answer.bytes);
    const std::string_view name = transaction_names[static_cast<std::size_t>(answer.type)];
    ASSERT_TRUE(shown.starts_with(std::string(name) + " w=")) << shown;
    ASSERT_EQ(shown.find_first_of(std::string("\r\n\0", 3)), shown.npos) << shown;
    ASSERT_TRUE(answer.ending == Ending::committed || answer.ending == Ending::rolled_back);
    ASSERT_EQ(answer.attempts, 1U) << "one core has no conflicts";
    if (answer.ending == Ending::rolled_back) {
      ++rolled_back;
      EXPECT_EQ(answer.type, TransactionType::new_order);
      EXPECT_TRUE(shown.ends_with("Item number is not valid")) << shown;
    }
    types.insert(answer.type);
  }
  EXPECT_EQ(types.size(), transaction_types);
  EXPECT_LT(rolled_back, 20U);
  EXPECT_EQ(find_inconsistency(subject.database), "");
}

// The network needs the memory that is left, so a transaction that inserts MUST NOT begin.
TEST(ServerDatabase, WithoutTheReserveOnlyTransactionsThatInsertAreRefused) {
  Terminals subject({.warehouses = 2, .seed = 7, .reserve_bytes = ~std::uint64_t{0}});
  ASSERT_NE(subject.terminal, nullptr);
  const std::uint64_t orders = subject.database.order.rows(), payments = subject.database.history.rows();
  std::array<char, answer_bytes_max> text;
  for (unsigned i = 0; i < 300; ++i) {
    const Answer answer = subject.terminal->run(text);
    const bool inserts = answer.type == TransactionType::new_order || answer.type == TransactionType::payment;
    ASSERT_EQ(answer.ending, inserts ? Ending::no_memory : Ending::committed);
  }
  EXPECT_EQ(subject.database.order.rows(), orders);
  EXPECT_EQ(subject.database.history.rows(), payments);
  EXPECT_EQ(find_inconsistency(subject.database), "");
}

// Another core's new order is in progress: its key is in the index, and the order's number is not.
TEST(ServerDatabase, ATransactionInTheWayPostponesAndLeavesNothing) {
  constexpr Scale one_district{.warehouses = 1, .items = 200, .customers_per_district = 60, .orders_per_district = 60, .districts = 1};
  Database database(one_district);
  transactions::Epochs epochs;
  const Options options{.warehouses = 1, .seed = 7, .attempts_max = 20};
  ASSERT_TRUE(load(database, options.seed, 0, 1));
  const auto terminal = make_terminal(database, epochs, options, 0, 1);
  const auto worker = transactions::Worker::make(epochs);
  Transaction other(*worker);
  Generator generator(options.seed, 100, {1, 1}, one_district);
  NewOrderResult result;
  std::array<char, answer_bytes_max> text;
  const auto run_until = [&](auto wanted) {
    for (;;) {
      const Answer answer = terminal->run(text);
      if (wanted(answer)) return answer;
      EXPECT_EQ(answer.ending, Ending::committed);
      if (testing::Test::HasFailure()) return answer;
    }
  };
  const auto is_new_order = [](const Answer& answer) { return answer.type == TransactionType::new_order; };

  const std::uint64_t orders = database.order.rows();
  other.begin();
  ASSERT_EQ(new_order(other, database, *std::get_if<NewOrderInputs>(&generator.next(TransactionType::new_order, 1)), result),
            Outcome::done);
  Answer answer = run_until(is_new_order);
  EXPECT_EQ(answer.ending, Ending::postponed);
  EXPECT_EQ(terminal->run(text).ending, Ending::postponed);
  answer = terminal->run(text);
  EXPECT_EQ(answer.ending, Ending::conflict) << "after attempts=20";
  EXPECT_EQ(answer.attempts, 20U);

  answer = run_until(is_new_order);
  EXPECT_EQ(answer.ending, Ending::postponed) << "the next new order begins with its first attempt";
  other.abort();
  answer = terminal->run(text);
  EXPECT_EQ(answer.ending, Ending::committed);
  EXPECT_TRUE(is_new_order(answer)) << "the same transaction is tried again";
  EXPECT_EQ(answer.attempts, 9U);
  EXPECT_EQ(database.order.rows(), orders + 1);
  EXPECT_EQ(find_inconsistency(database), "");
}

}  // namespace
}  // namespace neap::tpcc
