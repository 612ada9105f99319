// SPDX-License-Identifier: BSL-1.0
// Usage: `tpcc_soak TRANSACTIONS CORES SEED [WAREHOUSES [small]]`: runs the mix at full scale, or with `small` at a small scale that makes
// conflicts frequent, and checks it by repetition in serial order. WAREHOUSES is by default one per core. There are two databases in the
// end: with the address sanitizer, 10^6 transactions and one warehouse took 1.9 GB, and with the thread sanitizer, 2 * 10^5 and two
// warehouses took 8 GB. Exit status 1: a check failed; 2: wrong arguments.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "apps/tpcc/checked_run.hpp"

int main(int count, char** words) {
  using namespace neap::tpcc;
  const auto number = [&](int at, unsigned long otherwise) { return count > at ? std::strtoul(words[at], nullptr, 10) : otherwise; };
  test::RunOptions options;
  options.transactions = number(1, 0);
  options.cores = static_cast<unsigned>(number(2, 0));
  options.seed = number(3, 1);
  options.scale.warehouses = static_cast<std::uint32_t>(number(4, options.cores));
  options.limit = std::chrono::hours(24);
  if (count > 5 && std::string_view(words[5]) == "small") {
    options.scale.items = 1'000;
    options.scale.customers_per_district = 100;
    options.scale.orders_per_district = 100;
  }
  if (count < 4 || options.transactions == 0 || options.cores == 0 || options.cores > 64 || !scale_fits(options.scale)) {
    std::fputs("usage: tpcc_soak TRANSACTIONS CORES SEED [WAREHOUSES [small]]\n", stderr);
    return 2;
  }
  const test::RunReport report = test::run_and_check(options);
  for (unsigned type = 0; type < transaction_types; ++type) {
    const std::string_view name = name_of(static_cast<TransactionType>(type));
    std::printf("%-12.*s %10lu committed\n", static_cast<int>(name.size()), name.data(), report.committed[type]);
  }
  std::printf("%-12s %10lu rolled back\n%-12s %10lu conflicts\n", "new_order", report.rolled_back, "all", report.conflicts);
  std::printf("%s\n", report.failure.empty() ? "serializable and consistent" : report.failure.c_str());
  return report.failure.empty() ? 0 : 1;
}
