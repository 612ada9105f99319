// SPDX-License-Identifier: BSL-1.0
// OrderStatus: shows the last order of a customer (clause 2.6).
#include "apps/tpcc/procedures.hpp"

namespace neap::tpcc {

Outcome order_status(Transaction& transaction, Database& database, const OrderStatusInputs& inputs, OrderStatusResult& result) noexcept {
  const std::uint32_t w = inputs.customer.warehouse, d = inputs.customer.district;
  if (const Outcome outcome = find_customer(transaction, database, inputs.customer, result.customer); outcome != Outcome::done)
    return outcome;
  Customer customer;
  if (const Outcome outcome = transaction.read(database.customer, customer_key(w, d, result.customer), customer); outcome != Outcome::found)
    return outcome;
  result.first = customer.first;
  result.middle = customer.middle;
  result.last = customer.last;
  result.balance = customer.balance;

  result.order = 0;
  result.lines = 0;
  Outcome outcome =
      transaction.scan_back(database.order_by_customer, order_by_customer_key(w, d, result.customer, 0),
                            order_by_customer_key(w, d, result.customer, orders_max), [&](const Key<1>& key, const Reference&) noexcept {
                              result.order = number_of_order(key[0]);
                              return false;
                            });
  if (outcome != Outcome::done || result.order == 0) return outcome;
  Order order;
  outcome = transaction.read(database.order, order_key(w, d, result.order), order);
  if (outcome != Outcome::found) return outcome;
  result.entry_date = order.entry_date;
  result.carrier = order.carrier;
  outcome = transaction.scan(database.order_line, order_line_key(w, d, result.order, 1), order_line_key(w, d, result.order, lines_max),
                             [&](const Key<1>&, const OrderLine& line) noexcept {
                               result.line[result.lines++] = {.item = line.item,
                                                              .supply_warehouse = line.supply_warehouse,
                                                              .quantity = line.quantity,
                                                              .amount = line.amount,
                                                              .delivery_date = line.delivery_date};
                               return result.lines < order.lines;
                             });
  return outcome;
}

}  // namespace neap::tpcc
