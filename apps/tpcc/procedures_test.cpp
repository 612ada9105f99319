// SPDX-License-Identifier: BSL-1.0
// Each transaction on one thread: results and rows that are computed by hand, and roll-backs that leave nothing.
#include "apps/tpcc/procedures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/tpcc/consistency.hpp"
#include "apps/tpcc/test_database.hpp"

namespace neap::tpcc {
namespace {

using test::LoadedDatabase;
constexpr std::uint64_t date = 1'800'000'000'000'000;

class Procedures : public testing::Test {
 protected:
  /// Three lines of known items: 10.00 * 3, 0.99 * 10, and 2.50 * 1 from warehouse 2.
  NewOrderInputs three_lines() {
    one.change(one.database.warehouse, warehouse_key(1), [](Warehouse& row) { row.tax = 1'000; });
    one.change(one.database.district, district_key(1, 2), [](District& row) { row.tax = 550; });
    one.change(one.database.customer, customer_key(1, 2, 5), [](Customer& row) { row.discount = 2'500; });
    constexpr std::uint32_t prices[] = {1'000, 99, 250};
    for (std::uint32_t item = 1; item <= 3; ++item)
      one.change(one.database.item, item_key(item), [&](Item& row) {
        row.price = prices[item - 1];
        row.data.assign(item == 2 ? "no such word" : "xxORIGINALxx");
      });
    one.change(one.database.stock, stock_key(1, 1), [](Stock& row) { row.quantity = 13; });
    one.change(one.database.stock, stock_key(1, 2), [](Stock& row) { row.quantity = 19; });
    one.change(one.database.stock_data, stock_key(1, 1), [](StockData& row) { row.data.assign("ORIGINAL"); });
    one.change(one.database.stock_data, stock_key(2, 3), [](StockData& row) { row.data.assign("ORIGINA"); });
    NewOrderInputs inputs{.warehouse = 1, .district = 2, .customer = 5, .lines = 3, .date = date, .line = {}};
    inputs.line[0] = {1, 1, 3};
    inputs.line[1] = {2, 1, 10};
    inputs.line[2] = {3, 2, 1};
    return inputs;
  }
  PaymentInputs payment_of(std::uint32_t customer) {
    return {.warehouse = 1,
            .district = 3,
            .customer = {.warehouse = 2, .district = 1, .customer = customer, .last = {}},
            .amount = 12'305,
            .date = date,
            .history = std::uint64_t{1} << 40};
  }
  std::uint64_t rows() {
    return one.database.order.rows() + one.database.new_order.rows() + one.database.order_line.rows() +
           one.database.order_by_customer.rows() + one.database.history.rows();
  }

  LoadedDatabase one;
};

TEST_F(Procedures, NewOrder) {
  const NewOrderInputs inputs = three_lines();
  const Stock remote = one.row(one.database.stock, stock_key(2, 3));
  ASSERT_EQ(one.run(inputs), Outcome::committed);

  const NewOrderResult& result = one.result.new_order;
  EXPECT_FALSE(result.rolled_back);
  EXPECT_EQ(result.order, 31U);
  EXPECT_EQ(result.last, last_name(4));
  EXPECT_EQ(result.discount, 2'500U);
  EXPECT_EQ(result.warehouse_tax, 1'000U);
  EXPECT_EQ(result.district_tax, 550U);
  // (30.00 + 9.90 + 2.50) * 0.75 * 1.155 = 36.729
  EXPECT_EQ(result.total, 3'673);
  EXPECT_EQ(result.line[0].amount, 3'000U);
  EXPECT_EQ(result.line[0].stock, 10);  // 13 - 3 needs no replenishment
  EXPECT_EQ(result.line[0].brand, 'B');
  EXPECT_EQ(result.line[1].amount, 990U);
  EXPECT_EQ(result.line[1].stock, 100);  // 19 - 10 + 91
  EXPECT_EQ(result.line[1].brand, 'G');
  EXPECT_EQ(result.line[2].price, 250U);
  EXPECT_EQ(result.line[2].brand, 'G');
  EXPECT_EQ(result.line[2].name, one.row(one.database.item, item_key(3)).name);

  EXPECT_EQ(one.row(one.database.district, district_key(1, 2)).next_order, 32U);
  EXPECT_EQ(one.row(one.database.order, order_key(1, 2, 31)),
            (Order{.entry_date = date, .customer = 5, .carrier = 0, .lines = 3, .all_local = 0}));
  EXPECT_TRUE(one.has(one.database.new_order, order_key(1, 2, 31)));
  EXPECT_EQ(one.row(one.database.order_by_customer, order_by_customer_key(1, 2, 5, 31)).key, order_key(1, 2, 31)[0]);
  EXPECT_EQ(one.row(one.database.order_line, order_line_key(1, 2, 31, 3)),
            (OrderLine{.delivery_date = 0,
                       .item = 3,
                       .supply_warehouse = 2,
                       .amount = 250,
                       .quantity = 1,
                       .district_information = one.row(one.database.stock_data, stock_key(2, 3)).district[1]}));
  EXPECT_FALSE(one.has(one.database.order_line, order_line_key(1, 2, 31, 4)));
  EXPECT_EQ(one.row(one.database.stock, stock_key(1, 1)), (Stock{.quantity = 10, .ytd = 3, .orders = 1, .remote_orders = 0}));
  EXPECT_EQ(one.row(one.database.stock, stock_key(2, 3)),
            (Stock{.quantity = remote.quantity == 10 ? 100 : remote.quantity - 1, .ytd = 1, .orders = 1, .remote_orders = 1}));
  EXPECT_EQ(find_inconsistency(one.database), "");
}

TEST_F(Procedures, NewOrderWithTheSameItemTwiceReducesItsStockTwice) {
  NewOrderInputs inputs = three_lines();
  inputs.line[1] = {1, 1, 2};
  inputs.line[2] = {1, 1, 1};
  ASSERT_EQ(one.run(inputs), Outcome::committed);
  EXPECT_EQ(one.result.new_order.line[1].stock, 99);  // 10 - 2 + 91
  EXPECT_EQ(one.row(one.database.stock, stock_key(1, 1)), (Stock{.quantity = 98, .ytd = 6, .orders = 3, .remote_orders = 0}));
  EXPECT_EQ(one.row(one.database.order, order_key(1, 2, 31)).all_local, 1);
  EXPECT_EQ(find_inconsistency(one.database), "");
}

TEST_F(Procedures, NewOrderRollbackLeavesNothing) {
  LoadedDatabase untouched;
  NewOrderInputs inputs{.warehouse = 1, .district = 1, .customer = 1, .lines = 15, .date = date, .line = {}};
  for (std::uint32_t at = 0; at < 15; ++at) inputs.line[at] = {at + 1, at % 2 + 1, 5};
  inputs.line[14].item = one.database.scale.items + 1;
  EXPECT_EQ(one.run(inputs), Outcome::absent);
  EXPECT_TRUE(one.result.new_order.rolled_back);
  EXPECT_EQ(one.result.new_order.order, 31U);
  EXPECT_EQ(find_difference(one.database, untouched.database), "");
  inputs.line[14].item = 1;
  EXPECT_EQ(one.run(inputs), Outcome::committed);
  EXPECT_FALSE(one.result.new_order.rolled_back);
  EXPECT_EQ(one.result.new_order.order, 31U);
}

TEST_F(Procedures, NewOrderEndsWhenTheNumbersOfOrdersAreExhausted) {
  one.change(one.database.district, district_key(1, 2), [](District& row) { row.next_order = orders_max + 1; });
  const std::uint64_t before = rows();
  NewOrderInputs inputs{.warehouse = 1, .district = 2, .customer = 5, .lines = 5, .date = date, .line = {}};
  EXPECT_EQ(one.run(inputs), Outcome::too_large);
  EXPECT_EQ(rows(), before);
}

TEST_F(Procedures, PaymentByNumber) {
  one.change(one.database.customer, customer_key(2, 1, 7), [](Customer& row) { row.credit.assign("GC"); });
  const CustomerData data = one.row(one.database.customer_data, customer_key(2, 1, 7));
  ASSERT_EQ(one.run(payment_of(7)), Outcome::committed);

  const PaymentResult& result = one.result.payment;
  const Customer customer = one.row(one.database.customer, customer_key(2, 1, 7));
  EXPECT_EQ(result.customer, 7U);
  EXPECT_EQ(result.balance, -13'305);
  EXPECT_EQ(result.data_bytes, 0U);
  EXPECT_EQ(result.last, last_name(6));
  EXPECT_EQ(customer.balance, -13'305);
  EXPECT_EQ(customer.ytd_payment, 13'305);
  EXPECT_EQ(customer.payments, 2U);
  const Warehouse warehouse = one.row(one.database.warehouse, warehouse_key(1));
  const District district = one.row(one.database.district, district_key(1, 3));
  EXPECT_EQ(warehouse.ytd, 3 * 30 * 1'000 + 12'305);
  EXPECT_EQ(district.ytd, 30 * 1'000 + 12'305);
  EXPECT_EQ(result.warehouse, warehouse.address);
  EXPECT_EQ(result.district, district.address);
  EXPECT_EQ(result.address, one.row(one.database.customer_information, customer_key(2, 1, 7)).address);
  EXPECT_EQ(one.row(one.database.customer_data, customer_key(2, 1, 7)), data);
  const History history = one.row(one.database.history, Key<1>{std::uint64_t{1} << 40});
  EXPECT_EQ(history.amount, 12'305);
  EXPECT_EQ(history.date, date);
  EXPECT_EQ(history.customer_warehouse, 2U);
  EXPECT_EQ(history.customer_district, 1);
  EXPECT_EQ(history.customer, 7U);
  EXPECT_EQ(history.warehouse, 1U);
  EXPECT_EQ(history.district, 3);
  EXPECT_EQ(history.data.view(), std::string(warehouse.name.view()) + "    " + std::string(district.name.view()));
  EXPECT_EQ(find_inconsistency(one.database), "");
}

TEST_F(Procedures, PaymentOfBadCreditIsNotedInData) {
  one.change(one.database.customer, customer_key(2, 1, 7), [](Customer& row) { row.credit.assign("BC"); });
  one.change(one.database.customer_data, customer_key(2, 1, 7), [](CustomerData& row) {
    std::fill(std::begin(row.text), std::end(row.text), 'x');
    row.bytes = 490;
  });
  ASSERT_EQ(one.run(payment_of(7)), Outcome::committed);
  const std::string note = "7 1 2 3 1 123.05 ";
  CustomerData data = one.row(one.database.customer_data, customer_key(2, 1, 7));
  EXPECT_EQ(data.bytes, 500U);
  EXPECT_EQ(std::string(data.text, data.bytes), note + std::string(500 - note.size(), 'x'));
  EXPECT_EQ(std::string(one.result.payment.data, one.result.payment.data_bytes), note + std::string(200 - note.size(), 'x'));

  one.change(one.database.customer_data, customer_key(2, 1, 7), [](CustomerData& row) { row.bytes = 300; });
  PaymentInputs second = payment_of(7);
  ++second.history;
  ASSERT_EQ(one.run(second), Outcome::committed);
  data = one.row(one.database.customer_data, customer_key(2, 1, 7));
  EXPECT_EQ(data.bytes, 300 + note.size());
  EXPECT_EQ(std::string(data.text, data.bytes), note + note + std::string(300 - note.size(), 'x'));
}

// Clause 2.5.2.2: position n / 2, rounded up, in the order of the first names.
TEST(FindCustomer, ChoosesTheMiddleOfOneName) {
  LoadedDatabase one(Scale{.warehouses = 1, .items = 10, .customers_per_district = 1'500, .orders_per_district = 1, .districts = 2});
  std::vector<std::vector<std::pair<std::string, std::uint32_t>>> of_name(last_names);
  one.database.customer.for_each([&](const Key<1>& key, const Customer& row) {
    if (district_of_customer(key[0]) != district_key(1, 2)[0]) return;
    for (std::uint32_t number = 0; number < last_names; ++number)
      if (row.last == last_name(number)) of_name[number].emplace_back(row.first.view(), number_of_customer(key[0]));
  });
  std::size_t longest = 0;
  for (std::uint32_t number = 0; number < last_names; ++number) {
    auto& customers = of_name[number];
    std::ranges::sort(customers);
    longest = std::max(longest, customers.size());
    std::uint32_t found = 0;
    one.transaction.begin();
    EXPECT_EQ(
        find_customer(one.transaction, one.database, {.warehouse = 1, .district = 2, .customer = 0, .last = last_name(number)}, found),
        Outcome::done);
    one.transaction.abort();
    const std::size_t middle = (customers.size() + 1) / 2;  // counted from 1
    EXPECT_EQ(found, customers[middle - 1].second) << number;
  }
  EXPECT_GE(longest, 4U);
}

TEST_F(Procedures, PaymentByName) {
  PaymentInputs inputs = payment_of(0);
  inputs.customer.last = last_name(12);  // 30 customers have different names
  ASSERT_EQ(one.run(inputs), Outcome::committed);
  EXPECT_EQ(one.result.payment.customer, 13U);
  EXPECT_EQ(one.row(one.database.customer, customer_key(2, 1, 13)).payments, 2U);
}

TEST_F(Procedures, PaymentOfAnUnknownNameLeavesNothing) {
  LoadedDatabase untouched;
  PaymentInputs inputs = payment_of(0);
  inputs.customer.last.assign("UNKNOWN");
  EXPECT_EQ(one.run(inputs), Outcome::conflict);
  EXPECT_EQ(find_difference(one.database, untouched.database), "");
}

TEST_F(Procedures, OrderStatusShowsTheLastOrder) {
  const NewOrderInputs order = three_lines();
  ASSERT_EQ(one.run(order), Outcome::committed);
  const OrderStatusInputs inputs{.customer = {.warehouse = 1, .district = 2, .customer = 5, .last = {}}};
  ASSERT_EQ(one.run(inputs), Outcome::committed);
  const OrderStatusResult& result = one.result.order_status;
  EXPECT_EQ(result.customer, 5U);
  EXPECT_EQ(result.last, last_name(4));
  EXPECT_EQ(result.balance, -1'000);
  EXPECT_EQ(result.order, 31U);
  EXPECT_EQ(result.entry_date, date);
  EXPECT_EQ(result.carrier, 0U);
  ASSERT_EQ(result.lines, 3U);
  EXPECT_EQ(result.line[2], (OrderStatusResult::Line{.item = 3, .supply_warehouse = 2, .quantity = 1, .amount = 250, .delivery_date = 0}));
}

TEST_F(Procedures, OrderStatusOfALoadedOrderByName) {
  Order delivered{};
  std::uint32_t number = 0;
  one.database.order.for_each([&](const Key<1>& key, const Order& row) {
    if (district_of_order(key[0]) == district_key(2, 3)[0] && row.customer == 9) {
      delivered = row;
      number = number_of_order(key[0]);
    }
  });
  ASSERT_EQ(one.run(OrderStatusInputs{.customer = {.warehouse = 2, .district = 3, .customer = 0, .last = last_name(8)}}),
            Outcome::committed);
  EXPECT_EQ(one.result.order_status.order, number);
  EXPECT_EQ(one.result.order_status.carrier, delivered.carrier);
  EXPECT_EQ(one.result.order_status.lines, delivered.lines);
}

TEST_F(Procedures, DeliveryDeliversTheOldestOrderOfEachDistrict) {
  // Orders 22 to 30 of each district are not delivered.
  std::int64_t sum = 0;
  std::uint32_t lines = 0;
  one.database.order_line.for_each([&](const Key<1>& key, const OrderLine& row) {
    if (order_of_line(key[0]) != order_key(1, 2, 22)[0]) return;
    sum += row.amount;
    ++lines;
  });
  const std::uint32_t customer = one.row(one.database.order, order_key(1, 2, 22)).customer;
  ASSERT_EQ(one.run(DeliveryInputs{.warehouse = 1, .carrier = 4, .date = date}), Outcome::committed);
  for (std::uint32_t district = 1; district <= 3; ++district) {
    EXPECT_EQ(one.result.delivery.order[district - 1], 22U);
    EXPECT_FALSE(one.has(one.database.new_order, order_key(1, district, 22)));
    EXPECT_TRUE(one.has(one.database.new_order, order_key(1, district, 23)));
    EXPECT_EQ(one.row(one.database.order, order_key(1, district, 22)).carrier, 4);
  }
  EXPECT_TRUE(one.has(one.database.new_order, order_key(2, 1, 22)));  // the other warehouse
  EXPECT_EQ(one.row(one.database.customer, customer_key(1, 2, customer)).balance, sum - 1'000);
  EXPECT_EQ(one.row(one.database.customer, customer_key(1, 2, customer)).deliveries, 1U);
  for (std::uint32_t line = 1; line <= lines; ++line)
    EXPECT_EQ(one.row(one.database.order_line, order_line_key(1, 2, 22, line)).delivery_date, date);
  EXPECT_EQ(find_inconsistency(one.database), "");
}

TEST_F(Procedures, DeliverySkipsDistrictsWithoutOrders) {
  for (int round = 0; round < 9; ++round)
    ASSERT_EQ(one.run(DeliveryInputs{.warehouse = 1, .carrier = 1, .date = date}), Outcome::committed);
  ASSERT_EQ(one.run(three_lines()), Outcome::committed);  // district 2
  ASSERT_EQ(one.run(DeliveryInputs{.warehouse = 1, .carrier = 2, .date = date}), Outcome::committed);
  EXPECT_EQ(one.result.delivery.order[0], 0U);
  EXPECT_EQ(one.result.delivery.order[1], 31U);
  EXPECT_EQ(one.result.delivery.order[2], 0U);
  ASSERT_EQ(one.run(DeliveryInputs{.warehouse = 1, .carrier = 3, .date = date}), Outcome::committed);
  EXPECT_EQ(one.result.delivery.order[1], 0U);
  EXPECT_EQ(find_inconsistency(one.database), "");
}

TEST_F(Procedures, StockLevelCountsItemsOfTheLast20Orders) {
  const auto count = [&](std::int32_t threshold) {
    EXPECT_EQ(one.run(StockLevelInputs{.warehouse = 1, .district = 1, .threshold = threshold}), Outcome::committed);
    return one.result.stock_level.low_stock;
  };
  for (std::uint32_t item = 1; item <= 100; ++item)
    one.change(one.database.stock, stock_key(1, item), [](Stock& row) { row.quantity = 50; });
  EXPECT_EQ(count(20), 0U);
  // Orders 11 to 30 are the last 20. Item 1 is in order 10 only, item 2 twice in order 11, item 3 in order 30.
  const auto order_item = [&](std::uint32_t order, std::uint32_t line, std::uint32_t item) {
    one.change(one.database.order_line, order_line_key(1, 1, order, line), [&](OrderLine& row) { row.item = item; });
  };
  for (std::uint32_t order = 10; order <= 30; ++order)
    for (std::uint32_t line = 1; line <= one.row(one.database.order, order_key(1, 1, order)).lines; ++line) order_item(order, line, 50);
  order_item(10, 1, 1);
  order_item(11, 1, 2);
  order_item(11, 2, 2);
  order_item(30, 5, 3);
  for (std::uint32_t item = 1; item <= 3; ++item)
    one.change(one.database.stock, stock_key(1, item), [&](Stock& row) { row.quantity = 14; });
  one.change(one.database.stock, stock_key(2, 50), [&](Stock& row) { row.quantity = 0; });  // the other warehouse
  EXPECT_EQ(count(14), 0U);
  EXPECT_EQ(count(15), 2U);
  EXPECT_EQ(count(51), 3U);
}

TEST_F(Procedures, TheMixOnOneThreadIsConsistentAndRepeatable) {
  LoadedDatabase other;
  Generator generator(test::seed, 1, {1, 2}, one.database.scale);
  unsigned rolled_back = 0;
  for (unsigned number = 0; number < 3'000; ++number) {
    const Inputs& inputs = generator.next(date + number);
    const Outcome outcome = one.run(inputs);
    if (outcome == Outcome::absent) {
      ++rolled_back;
    } else {
      ASSERT_EQ(outcome, Outcome::committed) << number;
    }
    ASSERT_EQ(other.run(inputs), outcome);
    ASSERT_EQ(one.result.stock_level, other.result.stock_level);
    ASSERT_EQ(one.result.order_status, other.result.order_status);
  }
  EXPECT_GT(rolled_back, 3U);
  EXPECT_LT(rolled_back, 30U);
  EXPECT_EQ(find_inconsistency(one.database), "");
  EXPECT_EQ(find_difference(one.database, other.database), "");
}

}  // namespace
}  // namespace neap::tpcc
