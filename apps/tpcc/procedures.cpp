// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/procedures.hpp"

#include <limits>
#include <variant>

namespace neap::tpcc {
namespace {

Outcome body(Transaction& transaction, Database& database, const Inputs& inputs, Result& result) noexcept {
  switch (type_of(inputs)) {
    case TransactionType::new_order:
      return new_order(transaction, database, *std::get_if<NewOrderInputs>(&inputs), result.new_order);
    case TransactionType::payment:
      return payment(transaction, database, *std::get_if<PaymentInputs>(&inputs), result.payment);
    case TransactionType::order_status:
      return order_status(transaction, database, *std::get_if<OrderStatusInputs>(&inputs), result.order_status);
    case TransactionType::delivery:
      return delivery(transaction, database, *std::get_if<DeliveryInputs>(&inputs), result.delivery);
    case TransactionType::stock_level:
      return stock_level(transaction, database, *std::get_if<StockLevelInputs>(&inputs), result.stock_level);
  }
  return Outcome::conflict;
}

}  // namespace

Outcome run(Transaction& transaction, Database& database, const Inputs& inputs, Result& result) noexcept {
  transaction.begin();
  const Outcome outcome = body(transaction, database, inputs, result);
  if (outcome == Outcome::done) return transaction.commit();
  transaction.abort();
  // Rows are never missing, except an item of a NewOrder, and new keys are never in use. If another core commits between two reads, a row
  // that the first read refers to may be missing, or an order's number may be in use. The commit would then fail.
  if (outcome == Outcome::exists) return Outcome::conflict;
  if (outcome == Outcome::absent && !(type_of(inputs) == TransactionType::new_order && result.new_order.rolled_back))
    return Outcome::conflict;
  return outcome;
}

Outcome find_customer(Transaction& transaction, Database& database, const CustomerChoice& choice, std::uint32_t& customer) noexcept {
  customer = choice.customer;
  if (customer != 0) return Outcome::done;
  // A name of a district has few customers: about 3, and 30 if it is a frequent one. So all numbers are kept until the count is known.
  static constexpr std::uint32_t kept_max = 512;
  std::uint32_t kept[kept_max];
  std::uint32_t count = 0;
  constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  Key<6> first = customer_by_name_key(choice.warehouse, choice.district, choice.last, Name(std::string_view()), 0);
  Key<6> last = first;
  last[3] = last[4] = last[5] = all;
  const Outcome outcome = transaction.scan(database.customer_by_name, first, last, [&](const Key<6>& key, const Reference&) noexcept {
    kept[count++] = static_cast<std::uint32_t>(key[5]);
    return count < kept_max;
  });
  if (transactions::is_failure(outcome)) return outcome;
  if (count == 0) return Outcome::absent;
  if (count == kept_max) return Outcome::too_large;
  customer = kept[(count + 1) / 2 - 1];
  return Outcome::done;
}

}  // namespace neap::tpcc
