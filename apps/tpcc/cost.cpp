// SPDX-License-Identifier: BSL-1.0
// Usage: `tpcc_cost [TRANSACTIONS [TYPE]]`: runs the mix, or one type (0: NewOrder … 4: StockLevel), at full scale on one core with one
// warehouse, to count instructions: `valgrind --tool=callgrind --toggle-collect=tpcc_measured_run`. Loading and the kernel are not
// included. A first tenth of the transactions is run before the measurement.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "apps/tpcc/engine/transaction.hpp"
#include "apps/tpcc/loader.hpp"
#include "apps/tpcc/procedures.hpp"

namespace {

using namespace neap::tpcc;

struct Core {
  explicit Core(Database& of) : database(of) {}
  Database& database;
  neap::transactions::Epochs epochs;
  std::unique_ptr<neap::transactions::Worker> worker = neap::transactions::Worker::make(epochs);
  Transaction transaction{*worker};
  Generator generator{1, 1, {1, database.scale.warehouses}, database.scale};
  std::uint64_t date_us = load_date_us;
  unsigned long failed = 0;
  Result result;
};

void run_some(Core& core, unsigned long transactions, std::optional<TransactionType> type) {
  for (unsigned long at = 0; at < transactions; ++at) {
    const Inputs& inputs = type ? core.generator.next(*type, ++core.date_us) : core.generator.next(++core.date_us);
    const Outcome outcome = run(core.transaction, core.database, inputs, core.result);
    if (outcome != Outcome::committed && outcome != Outcome::absent) ++core.failed;
  }
}

}  // namespace

extern "C" [[gnu::noinline]] void tpcc_measured_run(void* core, unsigned long transactions, int type) {
  run_some(*static_cast<Core*>(core), transactions, type < 0 ? std::nullopt : std::optional(static_cast<TransactionType>(type)));
}

int main(int count, char** words) {
  const unsigned long transactions = count > 1 ? std::strtoul(words[1], nullptr, 10) : 10'000;
  const int type = count > 2 ? std::atoi(words[2]) : -1;
  if (type >= static_cast<int>(transaction_types)) return 2;
  const auto database = std::make_unique<Database>(Scale{});
  if (!load(*database, 1, 0, 1)) return 1;
  Core core(*database);
  run_some(core, transactions / 10, std::nullopt);
  tpcc_measured_run(&core, transactions, type);
  std::printf("%lu transactions, %lu failed\n", transactions, core.failed);
  return core.failed == 0 ? 0 : 1;
}
