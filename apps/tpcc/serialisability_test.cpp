// SPDX-License-Identifier: BSL-1.0
// The mix on one, two and four simulated cores is serializable (checked_run.hpp). The small scale makes conflicts frequent.
#include <gtest/gtest.h>

#include "apps/tpcc/checked_run.hpp"

namespace neap::tpcc::test {
namespace {

/// `warehouses`: with fewer than cores, cores share warehouses and conflict in most transactions.
RunOptions options_for(unsigned cores, std::uint32_t warehouses, std::uint64_t transactions) {
  return {.scale = {.warehouses = warehouses, .items = 200, .customers_per_district = 40, .orders_per_district = 30, .districts = 4},
          .cores = cores,
          .seed = cores * 10 + warehouses,
          .transactions = transactions};
}

class MixOnCores : public testing::TestWithParam<unsigned> {};

TEST_P(MixOnCores, EachHasAWarehouse) {
  const RunReport report = run_and_check(options_for(GetParam(), 4, 6'000));
  EXPECT_EQ(report.failure, "");
  for (const std::uint64_t committed : report.committed) EXPECT_GT(committed, 100U);
  EXPECT_GT(report.rolled_back, 5U);
}

TEST_P(MixOnCores, AllShareAWarehouse) {
  const RunReport report = run_and_check(options_for(GetParam(), 1, 3'000));
  EXPECT_EQ(report.failure, "");
  RecordProperty("conflicts", static_cast<int>(report.conflicts));
}

INSTANTIATE_TEST_SUITE_P(Tpcc, MixOnCores, testing::Values(1, 2, 4));

// The checks must find commits that do not check what was read. A fault needs two cores in one row at once, so several seeds are tried.
TEST(CheckedRun, FindsCommitsWithoutValidation) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RunOptions options = options_for(4, 1, 3'000);
    options.seed = seed;
    options.skip_validation = true;
    if (!run_and_check(options).failure.empty()) return;
  }
  FAIL() << "no run without validation was found to be wrong";
}

}  // namespace
}  // namespace neap::tpcc::test
