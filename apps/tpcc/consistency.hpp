// SPDX-License-Identifier: BSL-1.0
// The consistency conditions of clause 3.3.2: relations between the tables that every serializable execution keeps.
//
// They find lost updates and partial transactions without knowledge of the run. Conditions 1 to 10 and 12 are checked. Condition 11 counts
// undelivered orders and holds only before the first transaction. Beyond the specification, the secondary indexes are compared with their
// tables, and the sums of STOCK with the order lines.
#pragma once

#include <string>

#include "apps/tpcc/schema.hpp"

namespace neap::tpcc {

/// Returns the first violation as a sentence, or an empty text. MUST NOT run beside transactions. Throws `bad_alloc`: it needs some 10
/// bytes for each order, 32 for each customer and 16 for each row of STOCK.
[[nodiscard]] std::string find_inconsistency(const Database& database);

/// Compares all tables of two databases. Returns the first difference as a sentence, or an empty text. MUST NOT run beside transactions.
/// Throws `bad_alloc`: it copies one table at a time.
[[nodiscard]] std::string find_difference(const Database& left, const Database& right);

}  // namespace neap::tpcc
