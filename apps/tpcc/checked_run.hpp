// SPDX-License-Identifier: BSL-1.0
// A run of the mix on several simulated cores, and proof that it was serializable.
//
// Each committed transaction has a number in the serial order that the engine claims. After the run, a second database is loaded with the
// same seed, and one core repeats all transactions in that order. Every result that a terminal would show, and at the end all tables, MUST
// be equal. The consistency conditions are checked as well: they do not depend on the claimed order.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "apps/tpcc/inputs.hpp"
#include "apps/tpcc/schema.hpp"

namespace neap::tpcc::test {

struct RunOptions {
  Scale scale;
  unsigned cores = 1;
  std::uint64_t seed = 1;
  std::uint64_t transactions = 1'000;  ///< of all cores together, without repeated attempts
  /// Fault injection: commits do not check what was read. The check MUST then fail.
  bool skip_validation = false;
  std::chrono::seconds limit{100};  ///< for each of the three parts: load, run, repetition
};

struct RunReport {
  std::string failure;  ///< empty: all checks passed
  std::array<std::uint64_t, transaction_types> committed{};
  std::uint64_t rolled_back = 0, conflicts = 0;
};

/// MUST be called on a thread that is no core, without a HostMachine.
[[nodiscard]] RunReport run_and_check(const RunOptions& options);

}  // namespace neap::tpcc::test
