// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/consistency.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace neap::tpcc {
namespace {

/// Collects the sums of all tables in one pass over each, and keeps the first violation.
class Check {
 public:
  explicit Check(const Database& database)
      : database_(database),
        scale_(database.scale),
        warehouses_(scale_.warehouses),
        districts_(std::size_t{scale_.warehouses} * scale_.districts),
        customers_(districts_.size() * scale_.customers_per_district),
        stocks_(std::size_t{scale_.warehouses} * scale_.items) {}

  std::string run() {
    // Each step relies on the sums of the earlier ones, and on valid keys.
    for (void (Check::*step)() : {&Check::read_warehouses, &Check::read_history, &Check::read_customers, &Check::read_orders,
                                  &Check::read_new_orders, &Check::read_lines, &Check::check_districts, &Check::check_orders,
                                  &Check::check_customers, &Check::check_stock, &Check::check_indexes}) {
      (this->*step)();
      if (!violation_.empty()) break;
    }
    return std::move(violation_);
  }

 private:
  struct WarehouseSums {
    std::int64_t ytd = 0, districts_ytd = 0, history = 0;
  };
  struct DistrictSums {
    std::int64_t ytd = 0, history = 0;
    std::uint32_t next_order = 0;
    std::uint32_t order_last = 0, new_order_first = 0, new_order_last = 0;
    std::uint64_t new_orders = 0, lines_expected = 0, lines = 0;
  };
  struct CustomerSums {
    std::int64_t balance = 0, ytd_payment = 0, delivered = 0, history = 0;
  };
  struct OrderSums {
    std::uint64_t key;
    std::uint32_t customer;  // place in `customers_`
    std::uint8_t lines_expected, lines = 0;
    bool carrier, is_new = false;
  };
  struct StockSums {
    std::uint64_t ytd = 0;
    std::uint32_t orders = 0, remote_orders = 0;
  };

  void violated(unsigned condition, std::string_view what, std::uint64_t key) {
    if (!violation_.empty()) return;
    violation_ = condition == 0 ? std::string("beyond the conditions: ") : "condition " + std::to_string(condition) + ": ";
    violation_.append(what).append(", key ").append(std::to_string(key));
  }
  void expect(bool holds, unsigned condition, std::string_view what, std::uint64_t key) {
    if (!holds) violated(condition, what, key);
  }

  [[nodiscard]] bool has_warehouse(std::uint64_t warehouse) const { return warehouse >= 1 && warehouse <= scale_.warehouses; }
  /// Returns the place of the district whose key this is, or null.
  DistrictSums* district(std::uint64_t key) {
    const std::uint32_t w = warehouse_of_district(key), d = district_of_district(key);
    if (!has_warehouse(w) || d < 1 || d > scale_.districts) return nullptr;
    return &districts_[std::size_t{w - 1} * scale_.districts + d - 1];
  }
  CustomerSums* customer(std::uint64_t key) {
    const DistrictSums* const of = district(district_of_customer(key));
    const std::uint32_t c = number_of_customer(key);
    if (of == nullptr || c < 1 || c > scale_.customers_per_district) return nullptr;
    return &customers_[static_cast<std::size_t>(of - districts_.data()) * scale_.customers_per_district + c - 1];
  }
  StockSums* stock(std::uint32_t warehouse, std::uint32_t item) {
    if (!has_warehouse(warehouse) || item < 1 || item > scale_.items) return nullptr;
    return &stocks_[std::size_t{warehouse - 1} * scale_.items + item - 1];
  }
  /// Orders are asked for in ascending order of their keys. `at` is the place of the last answer.
  OrderSums* order(std::uint64_t key, std::size_t& at) {
    while (at < orders_.size() && orders_[at].key < key) ++at;
    return at < orders_.size() && orders_[at].key == key ? &orders_[at] : nullptr;
  }

  void read_warehouses();
  void read_history();
  void read_customers();
  void read_orders();
  void read_new_orders();
  void read_lines();
  void check_districts();
  void check_orders();
  void check_customers();
  void check_stock();
  void check_indexes();

  const Database& database_;
  const Scale& scale_;
  std::vector<WarehouseSums> warehouses_;
  std::vector<DistrictSums> districts_;
  std::vector<CustomerSums> customers_;
  std::vector<OrderSums> orders_;
  std::vector<StockSums> stocks_;
  std::string violation_;
};

void Check::read_warehouses() {
  database_.warehouse.for_each([&](const Key<1>& key, const Warehouse& row) {
    if (!has_warehouse(key[0])) return violated(0, "unknown warehouse", key[0]);
    warehouses_[key[0] - 1].ytd = row.ytd;
  });
  database_.district.for_each([&](const Key<1>& key, const District& row) {
    DistrictSums* const sums = district(key[0]);
    if (sums == nullptr) return violated(0, "unknown district", key[0]);
    sums->ytd = row.ytd;
    sums->next_order = row.next_order;
    warehouses_[warehouse_of_district(key[0]) - 1].districts_ytd += row.ytd;
  });
  for (std::size_t at = 0; at < warehouses_.size(); ++at)
    expect(warehouses_[at].ytd == warehouses_[at].districts_ytd, 1, "W_YTD is not the sum of D_YTD", at + 1);
}

void Check::read_history() {
  database_.history.for_each([&](const Key<1>& key, const History& row) {
    DistrictSums* const paid_at = district(district_key(row.warehouse, row.district)[0]);
    CustomerSums* const paid_by = customer(customer_key(row.customer_warehouse, row.customer_district, row.customer)[0]);
    if (paid_at == nullptr || paid_by == nullptr) return violated(0, "a payment of an unknown district or customer", key[0]);
    warehouses_[row.warehouse - 1].history += row.amount;
    paid_at->history += row.amount;
    paid_by->history += row.amount;
  });
  for (std::size_t at = 0; at < warehouses_.size(); ++at)
    expect(warehouses_[at].ytd == warehouses_[at].history, 8, "W_YTD is not the sum of H_AMOUNT", at + 1);
  for (std::size_t at = 0; at < districts_.size(); ++at)
    expect(districts_[at].ytd == districts_[at].history, 9, "D_YTD is not the sum of H_AMOUNT (number of the district instead of its key)",
           at);
}

void Check::read_customers() {
  database_.customer.for_each([&](const Key<1>& key, const Customer& row) {
    CustomerSums* const sums = customer(key[0]);
    if (sums == nullptr) return violated(0, "unknown customer", key[0]);
    sums->balance = row.balance;
    sums->ytd_payment = row.ytd_payment;
  });
}

void Check::read_orders() {
  database_.order.for_each([&](const Key<1>& key, const Order& row) {
    DistrictSums* const of = district(district_of_order(key[0]));
    const CustomerSums* const by =
        of == nullptr ? nullptr : customer(district_of_order(key[0]) << 20 | std::min(row.customer, customers_max));
    if (by == nullptr) return violated(0, "an order of an unknown district or customer", key[0]);
    of->order_last = number_of_order(key[0]);
    of->lines_expected += row.lines;
    orders_.push_back({.key = key[0],
                       .customer = static_cast<std::uint32_t>(by - customers_.data()),
                       .lines_expected = row.lines,
                       .carrier = row.carrier != 0});
  });
}

void Check::read_new_orders() {
  std::size_t at = 0;
  database_.new_order.for_each([&](const Key<1>& key, const NewOrder&) {
    OrderSums* const of = order(key[0], at);
    if (of == nullptr) return violated(5, "a NEW-ORDER row without its order", key[0]);
    of->is_new = true;
    DistrictSums& sums = *district(district_of_order(key[0]));
    if (sums.new_orders++ == 0) sums.new_order_first = number_of_order(key[0]);
    sums.new_order_last = number_of_order(key[0]);
  });
}

void Check::read_lines() {
  std::size_t at = 0;
  database_.order_line.for_each([&](const Key<1>& key, const OrderLine& row) {
    const std::uint64_t order_at = order_of_line(key[0]);
    OrderSums* const of = order(order_at, at);
    if (of == nullptr) return violated(4, "an order line without its order", key[0]);
    ++of->lines;
    ++district(district_of_order(order_at))->lines;
    expect((row.delivery_date != 0) == of->carrier, 7, "OL_DELIVERY_D and O_CARRIER_ID are not null together", key[0]);
    if (row.delivery_date != 0) customers_[of->customer].delivered += row.amount;
    StockSums* const from = stock(row.supply_warehouse, row.item);
    if (from == nullptr) return violated(0, "an order line of an unknown item", key[0]);
    if (number_of_order(order_at) <= scale_.orders_per_district) return;  // loaded orders are not in the sums of STOCK
    from->ytd += row.quantity;
    ++from->orders;
    if (row.supply_warehouse != warehouse_of_district(district_of_order(order_at))) ++from->remote_orders;
  });
}

void Check::check_districts() {
  for (std::size_t at = 0; at < districts_.size(); ++at) {
    const DistrictSums& sums = districts_[at];
    const std::uint64_t key =
        district_key(static_cast<std::uint32_t>(at / scale_.districts) + 1, static_cast<std::uint32_t>(at % scale_.districts) + 1)[0];
    expect(sums.next_order == sums.order_last + 1, 2, "D_NEXT_O_ID is not max(O_ID) + 1", key);
    if (sums.new_orders != 0) {
      expect(sums.next_order == sums.new_order_last + 1, 2, "D_NEXT_O_ID is not max(NO_O_ID) + 1", key);
      expect(sums.new_order_last - sums.new_order_first + 1 == sums.new_orders, 3, "NO_O_ID has a gap", key);
    }
    expect(sums.lines_expected == sums.lines, 4, "the sum of O_OL_CNT is not the number of order lines", key);
  }
}

void Check::check_orders() {
  for (const OrderSums& sums : orders_) {
    expect(sums.carrier != sums.is_new, 5, "O_CARRIER_ID is null and the order is not new, or the reverse", sums.key);
    expect(sums.lines_expected == sums.lines, 6, "O_OL_CNT is not the number of order lines", sums.key);
  }
}

void Check::check_customers() {
  database_.customer.for_each([&](const Key<1>& key, const Customer&) {
    const CustomerSums& sums = *customer(key[0]);
    expect(sums.balance == sums.delivered - sums.history, 10, "C_BALANCE is not the delivered amount minus the payments", key[0]);
    expect(sums.balance + sums.ytd_payment == sums.delivered, 12, "C_BALANCE + C_YTD_PAYMENT is not the delivered amount", key[0]);
  });
}

void Check::check_stock() {
  database_.stock.for_each([&](const Key<1>& key, const Stock& row) {
    const StockSums* const sums = stock(static_cast<std::uint32_t>(key[0] >> 32), static_cast<std::uint32_t>(key[0]));
    if (sums == nullptr) return violated(0, "unknown stock", key[0]);
    expect(row.ytd == sums->ytd, 0, "S_YTD is not the sum of OL_QUANTITY", key[0]);
    expect(row.orders == sums->orders, 0, "S_ORDER_CNT is not the number of order lines", key[0]);
    expect(row.remote_orders == sums->remote_orders, 0, "S_REMOTE_CNT is not the number of remote order lines", key[0]);
  });
}

void Check::check_indexes() {
  std::uint64_t references = 0;
  database_.order_by_customer.for_each([&](const Key<1>& key, const Reference& row) {
    ++references;
    const auto found = std::ranges::lower_bound(orders_, row.key, {}, &OrderSums::key);
    const std::uint64_t customer_at = key[0] >> 24;
    const CustomerSums* const by = customer(customer_at);
    const bool right = found != orders_.end() && found->key == row.key && by != nullptr && by == &customers_[found->customer] &&
                       number_of_order(key[0]) == number_of_order(row.key);
    expect(right, 0, "the index of orders by customers has a wrong row", key[0]);
  });
  expect(references == orders_.size(), 0, "the index of orders by customers is incomplete", references);
  references = 0;
  database_.customer_by_name.for_each([&](const Key<6>& key, const Reference& row) {
    ++references;
    expect(customer(row.key) != nullptr && row.key == (key[0] << 20 | key[5]), 0, "the index of names has a wrong row", row.key);
  });
  expect(references == customers_.size(), 0, "the index of names is incomplete", references);
}

template <class Row, unsigned Words>
std::string difference(const transactions::Table<Row, Words>& left, const transactions::Table<Row, Words>& right) {
  std::vector<std::pair<Key<Words>, Row>> rows;
  left.for_each([&](const Key<Words>& key, const Row& row) { rows.emplace_back(key, row); });
  const auto name = std::string(left.name());
  std::string found;
  std::size_t at = 0;
  right.for_each([&](const Key<Words>& key, const Row& row) {
    if (!found.empty()) return;
    if (at == rows.size() || rows[at].first != key) {
      found = name + ": keys differ at row " + std::to_string(at);
    } else if (!(rows[at].second == row)) {
      found = name + ": contents differ at row " + std::to_string(at) + ", key " + std::to_string(key[0]);
    }
    ++at;
  });
  if (found.empty() && at < rows.size()) found = name + ": the numbers of rows differ";
  return found;
}

}  // namespace

std::string find_inconsistency(const Database& database) { return Check(database).run(); }

std::string find_difference(const Database& left, const Database& right) {
  std::string found;
  const auto compare = [&](const auto&... tables) { (void)((found = difference(left.*tables, right.*tables), !found.empty()) || ...); };
  compare(&Database::warehouse, &Database::district, &Database::customer, &Database::customer_information, &Database::customer_data,
          &Database::customer_by_name, &Database::history, &Database::new_order, &Database::order, &Database::order_by_customer,
          &Database::order_line, &Database::item, &Database::stock, &Database::stock_data);
  return found;
}

}  // namespace neap::tpcc
