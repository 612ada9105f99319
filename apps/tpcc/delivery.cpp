// SPDX-License-Identifier: BSL-1.0
// Delivery: delivers the oldest undelivered order of each district of a warehouse (clause 2.7).
#include "apps/tpcc/procedures.hpp"

namespace neap::tpcc {

Outcome delivery(Transaction& transaction, Database& database, const DeliveryInputs& inputs, DeliveryResult& result) noexcept {
  const std::uint32_t w = inputs.warehouse;
  result.order.fill(0);
  for (std::uint32_t d = 1; d <= database.scale.districts; ++d) {
    std::uint32_t& o = result.order[d - 1];
    Outcome outcome = transaction.scan(database.new_order, order_key(w, d, 0), order_key(w, d, orders_max),
                                       [&](const Key<1>& key, const NewOrder&) noexcept {
                                         o = number_of_order(key[0]);
                                         return false;
                                       });
    if (outcome != Outcome::done) return outcome;
    if (o == 0) continue;  // clause 2.7.4.2: a district without undelivered orders is skipped
    const Key<1> key = order_key(w, d, o);
    if (outcome = transaction.remove(database.new_order, key); outcome != Outcome::done) return outcome;
    Order* order;
    if (outcome = transaction.update(database.order, key, order); outcome != Outcome::found) return outcome;
    order->carrier = static_cast<std::uint8_t>(inputs.carrier);
    const std::uint32_t lines = order->lines, c = order->customer;

    std::int64_t sum = 0;
    transactions::Index<1>::Place place;
    for (std::uint32_t at = 1; at <= lines; ++at) {
      OrderLine* line;
      if (outcome = transaction.update(database.order_line, order_line_key(w, d, o, at), line, place); outcome != Outcome::found)
        return outcome;
      line->delivery_date = inputs.date;
      sum += line->amount;
    }
    Customer* customer;
    if (outcome = transaction.update(database.customer, customer_key(w, d, c), customer); outcome != Outcome::found) return outcome;
    customer->balance += sum;
    ++customer->deliveries;
  }
  return Outcome::done;
}

}  // namespace neap::tpcc
