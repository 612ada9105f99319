// SPDX-License-Identifier: BSL-1.0
// NewOrder: a customer orders 5 to 15 items (clause 2.4).
#include <string_view>

#include "apps/tpcc/procedures.hpp"

namespace neap::tpcc {
namespace {

/// Clause 2.4.2.2. The item is examined first: nine of ten items are not original, and then the stock's data do not matter.
char brand_of(const Text<50>& item, const Text<50>& stock) noexcept {
  constexpr std::string_view original = "ORIGINAL";
  const auto is_original = [&](const Text<50>& data) { return std::string_view(data.bytes, sizeof data.bytes).contains(original); };
  return is_original(item) && is_original(stock) ? 'B' : 'G';
}

/// Clause 2.4.2.2: a stock that would fall below 10 is first replenished by 91.
std::int32_t reduced(std::int32_t stock, std::uint32_t quantity) noexcept {
  const std::int32_t left = stock - static_cast<std::int32_t>(quantity);
  return left >= 10 ? left : left + 91;
}

/// Clause 2.4.2.2: sum * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX).
std::int64_t total_of(std::int64_t sum, const NewOrderResult& result) noexcept {
  constexpr std::int64_t one = 10'000;
  const std::int64_t scaled = sum * (one - result.discount) * (one + result.warehouse_tax + result.district_tax);
  return (scaled + one * one / 2) / (one * one);
}

}  // namespace

Outcome new_order(Transaction& transaction, Database& database, const NewOrderInputs& inputs, NewOrderResult& result) noexcept {
  const std::uint32_t w = inputs.warehouse, d = inputs.district, c = inputs.customer;
  result.rolled_back = false;
  {
    Warehouse warehouse;
    if (const Outcome outcome = transaction.read(database.warehouse, warehouse_key(w), warehouse); outcome != Outcome::found)
      return outcome;
    result.warehouse_tax = warehouse.tax;
    Customer customer;
    if (const Outcome outcome = transaction.read(database.customer, customer_key(w, d, c), customer); outcome != Outcome::found)
      return outcome;
    result.discount = customer.discount;
    result.credit = customer.credit;
    result.last = customer.last;
    District* district;
    if (const Outcome outcome = transaction.update(database.district, district_key(w, d), district); outcome != Outcome::found)
      return outcome;
    if (district->next_order > orders_max) return Outcome::too_large;
    result.district_tax = district->tax;
    result.order = district->next_order++;
  }
  const std::uint32_t o = result.order;
  Order order{.entry_date = inputs.date, .customer = c, .carrier = 0, .lines = static_cast<std::uint8_t>(inputs.lines), .all_local = 1};
  for (std::uint32_t at = 0; at < inputs.lines; ++at)
    if (inputs.line[at].supply_warehouse != w) order.all_local = 0;
  const Key<1> key = order_key(w, d, o);
  if (const Outcome outcome = transaction.insert(database.order, key, order); outcome != Outcome::done) return outcome;
  if (const Outcome outcome = transaction.insert(database.new_order, key, NewOrder{}); outcome != Outcome::done) return outcome;
  if (const Outcome outcome = transaction.insert(database.order_by_customer, order_by_customer_key(w, d, c, o), Reference{key[0]});
      outcome != Outcome::done)
    return outcome;

  std::int64_t sum = 0;
  transactions::Index<1>::Place place;  // in the order lines
  for (std::uint32_t at = 0; at < inputs.lines; ++at) {
    const NewOrderInputs::Line& wanted = inputs.line[at];
    NewOrderResult::Line& shown = result.line[at];
    Item item;
    if (const Outcome outcome = transaction.read(database.item, item_key(wanted.item), item); outcome != Outcome::found) {
      result.rolled_back = outcome == Outcome::absent;
      return outcome;
    }
    const Key<1> stock_at = stock_key(wanted.supply_warehouse, wanted.item);
    StockData data;
    if (const Outcome outcome = transaction.read(database.stock_data, stock_at, data); outcome != Outcome::found) return outcome;
    Stock* stock;
    if (const Outcome outcome = transaction.update(database.stock, stock_at, stock); outcome != Outcome::found) return outcome;
    stock->quantity = reduced(stock->quantity, wanted.quantity);
    stock->ytd += wanted.quantity;
    ++stock->orders;
    if (wanted.supply_warehouse != w) ++stock->remote_orders;

    shown.name = item.name;
    shown.stock = stock->quantity;
    shown.price = item.price;
    shown.amount = item.price * wanted.quantity;
    shown.brand = brand_of(item.data, data.data);
    sum += shown.amount;
    const OrderLine line{.delivery_date = 0,
                         .item = wanted.item,
                         .supply_warehouse = wanted.supply_warehouse,
                         .amount = shown.amount,
                         .quantity = wanted.quantity,
                         .district_information = data.district[d - 1]};
    if (const Outcome outcome = transaction.insert(database.order_line, order_line_key(w, d, o, at + 1), line, place);
        outcome != Outcome::done)
      return outcome;
  }
  result.total = total_of(sum, result);
  return Outcome::done;
}

}  // namespace neap::tpcc
