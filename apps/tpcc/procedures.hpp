// SPDX-License-Identifier: BSL-1.0
// The five transactions (clauses 2.4 to 2.8).
//
// Each procedure is one attempt: it reads and writes rows in a transaction of the engine and commits. A conflict with another core's
// transaction ends the attempt and leaves nothing behind, and the caller MAY repeat it. A Delivery handles all districts of its warehouse
// in one transaction. The specification allows one transaction for each district, and a queue in front of it (clause 2.7.2).
#pragma once

#include <array>
#include <cstdint>

#include "apps/tpcc/engine/transaction.hpp"
#include "apps/tpcc/inputs.hpp"
#include "apps/tpcc/schema.hpp"

namespace neap::tpcc {

using transactions::Outcome;
using transactions::Transaction;

/// Fields that the terminal shows and that are not inputs (clause 2.4.3.3).
struct NewOrderResult {
  struct Line {
    Text<24> name;
    std::int32_t stock;  ///< S_QUANTITY after the order
    std::uint32_t price, amount;
    char brand;  ///< 'B' if both item and stock are "ORIGINAL", else 'G'
    bool operator==(const Line&) const = default;
  };
  Name last;
  Text<2> credit;
  std::uint32_t discount, warehouse_tax, district_tax;
  std::uint32_t order;
  std::int64_t total;                ///< with discount and taxes, rounded to cents
  bool rolled_back;                  ///< an item does not exist; fields from `total` on are invalid
  std::array<Line, lines_max> line;  ///< as many as the inputs have

  bool operator==(const NewOrderResult&) const = default;
};

/// Clause 2.5.3.3.
struct PaymentResult {
  std::uint32_t customer;
  Address warehouse, district, address;
  Name first, last;
  Text<2> middle, credit;
  Text<16> phone;
  std::uint64_t since;
  std::int64_t credit_limit, balance;
  std::uint32_t discount;
  std::uint32_t data_bytes;  ///< 0 for customers with good credit
  char data[200];            ///< the beginning of C_DATA

  bool operator==(const PaymentResult&) const = default;
};

/// Clause 2.6.3.3.
struct OrderStatusResult {
  struct Line {
    std::uint32_t item, supply_warehouse, quantity, amount;
    std::uint64_t delivery_date;  ///< 0: not delivered
    bool operator==(const Line&) const = default;
  };
  std::uint32_t customer;
  Name first, last;
  Text<2> middle;
  std::int64_t balance;
  std::uint32_t order;  ///< 0: the customer has no order, which full scale excludes; the fields below are invalid
  std::uint64_t entry_date;
  std::uint32_t carrier;  ///< 0: not delivered
  std::uint32_t lines;
  std::array<Line, lines_max> line;

  bool operator==(const OrderStatusResult&) const = default;
};

/// The delivered order of each district, for the result file of clause 2.7.2.2; 0: the district had no undelivered order.
struct DeliveryResult {
  std::array<std::uint32_t, districts_max> order;

  bool operator==(const DeliveryResult&) const = default;
};

/// Clause 2.8.3.3.
struct StockLevelResult {
  std::uint32_t low_stock;  ///< the number of items of the last 20 orders that have less stock than the threshold

  bool operator==(const StockLevelResult&) const = default;
};

/// The member of the transaction's kind is valid. Members are not united, because one object for each core is enough.
struct Result {
  NewOrderResult new_order;
  PaymentResult payment;
  OrderStatusResult order_status;
  DeliveryResult delivery;
  StockLevelResult stock_level;
};

/// Runs one attempt from begin to commit. Outcomes:
/// - committed: `result` is valid, and serializable with all committed transactions.
/// - absent: a NewOrder with an item that does not exist has been rolled back (clause 2.4.2.3). The caller MUST NOT repeat it.
/// - conflict: the caller MAY repeat it. Also for a row that should exist and is missing, or a new key that is in use already.
/// - no_memory, too_large: as in the engine. too_large also if a district's order numbers are exhausted (`orders_max`).
/// Nothing remains in the tables unless the outcome is `committed`.
[[nodiscard]] Outcome run(Transaction& transaction, Database& database, const Inputs& inputs, Result& result) noexcept;

/// The bodies, between begin and commit; they return `done` if the transaction is to be committed.
[[nodiscard]] Outcome new_order(Transaction& transaction, Database& database, const NewOrderInputs& inputs,
                                NewOrderResult& result) noexcept;
[[nodiscard]] Outcome payment(Transaction& transaction, Database& database, const PaymentInputs& inputs, PaymentResult& result) noexcept;
[[nodiscard]] Outcome order_status(Transaction& transaction, Database& database, const OrderStatusInputs& inputs,
                                   OrderStatusResult& result) noexcept;
[[nodiscard]] Outcome delivery(Transaction& transaction, Database& database, const DeliveryInputs& inputs, DeliveryResult& result) noexcept;
[[nodiscard]] Outcome stock_level(Transaction& transaction, Database& database, const StockLevelInputs& inputs,
                                  StockLevelResult& result) noexcept;

/// Finds the number of the chosen customer (clauses 2.5.2.2 and 2.6.2.2): of the n customers of a last name, in the order of their first
/// names, the one at position n / 2, rounded up.
[[nodiscard]] Outcome find_customer(Transaction& transaction, Database& database, const CustomerChoice& choice,
                                    std::uint32_t& customer) noexcept;

}  // namespace neap::tpcc
