// SPDX-License-Identifier: BSL-1.0
// Usage: `transactions_cost [OPERATION [REPEATS]]`: repeats one operation on a table of 100,000 rows of 64 bytes, to count its instructions
// (valgrind --tool=callgrind --toggle-collect='measured*'). Operations: find, read, update, insert, remove, scan (10 rows),
// none. A transaction has ten of them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "apps/tpcc/engine/transaction.hpp"

namespace {

using namespace neap::transactions;

struct Row {
  std::uint64_t words[8];
};
constexpr std::uint64_t rows = 100'000;
constexpr unsigned operations_of_transaction = 10;  // of each transaction

enum class Operation : std::uint8_t { none, find, read, update, insert, remove, scan };
constexpr std::string_view names[] = {"none", "find", "read", "update", "insert", "remove", "scan"};

[[gnu::noinline]] std::uint64_t measured(Operation operation, unsigned repeats, Table<Row>& table, Transaction& transaction) {
  std::uint64_t sum = 0, next = rows, oldest = 0, random = 1;
  for (unsigned at = 0; at < repeats; at += operations_of_transaction) {
    transaction.begin();
    for (unsigned step = 0; step < operations_of_transaction; ++step) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      const std::uint64_t key = (random >> 32U) * rows >> 32U;
      Row row, *changed = nullptr;
      if (operation == Operation::find) {
        sum += table.index().find({key}).record != nullptr;
      } else if (operation == Operation::read) {
        sum += transaction.read(table, {key}, row) == Outcome::found;
      } else if (operation == Operation::update) {
        sum += transaction.update(table, {key}, changed) == Outcome::found;
      } else if (operation == Operation::insert) {
        sum += transaction.insert(table, {next++}, Row{}) == Outcome::done;
      } else if (operation == Operation::remove) {
        sum += transaction.remove(table, {oldest++}) == Outcome::done;
      } else if (operation == Operation::scan) {  // 10 rows
        sum += transaction.scan(table, {key}, {key + 9}, [](const Key<1>&, const Row&) { return true; }) == Outcome::done;
      }
    }
    sum += transaction.commit() == Outcome::committed;
  }
  return sum;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view name = count > 1 ? words[1] : "read";
  auto operation = Operation::none;
  for (std::size_t at = 0; at < std::size(names); ++at) {
    if (names[at] == name) operation = static_cast<Operation>(at);
  }
  const auto repeats = static_cast<unsigned>(count > 2 ? std::atoi(words[2]) : 10'000);
  Epochs epochs;
  const auto worker = Worker::make(epochs);
  Table<Row> table("rows");
  for (std::uint64_t key = 0; key < rows; ++key) {
    if (!table.load({key}, {})) return 1;
  }
  Transaction transaction(*worker);
  std::printf("%llu\n", static_cast<unsigned long long>(measured(operation, repeats, table, transaction)));
  return 0;
}
