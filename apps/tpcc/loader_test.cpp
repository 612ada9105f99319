// SPDX-License-Identifier: BSL-1.0
// The initial population has the rows, numbers and relations of clause 4.3.3, and depends on the seed only.
#include "apps/tpcc/loader.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "apps/tpcc/consistency.hpp"
#include "apps/tpcc/test_database.hpp"

namespace neap::tpcc {
namespace {

constexpr Scale scale{.warehouses = 2, .items = 500, .customers_per_district = 1'200, .orders_per_district = 300, .districts = 2};

class LoadedTables : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    loaded = std::make_unique<Database>(scale);
    ASSERT_TRUE(load(*loaded, test::seed, 0, 1));
  }
  static void TearDownTestSuite() { loaded.reset(); }
  static std::unique_ptr<Database> loaded;
};
std::unique_ptr<Database> LoadedTables::loaded;

TEST_F(LoadedTables, NumbersOfRows) {
  const std::uint64_t customers = 2 * 2 * 1'200, orders = 2 * 2 * 300;
  EXPECT_EQ(loaded->warehouse.rows(), 2U);
  EXPECT_EQ(loaded->district.rows(), 4U);
  EXPECT_EQ(loaded->item.rows(), 500U);
  EXPECT_EQ(loaded->stock.rows(), 1'000U);
  EXPECT_EQ(loaded->stock_data.rows(), 1'000U);
  EXPECT_EQ(loaded->customer.rows(), customers);
  EXPECT_EQ(loaded->customer_information.rows(), customers);
  EXPECT_EQ(loaded->customer_data.rows(), customers);
  EXPECT_EQ(loaded->customer_by_name.rows(), customers);
  EXPECT_EQ(loaded->history.rows(), customers);
  EXPECT_EQ(loaded->order.rows(), orders);
  EXPECT_EQ(loaded->order_by_customer.rows(), orders);
  EXPECT_EQ(loaded->new_order.rows(), orders * 3 / 10);
  EXPECT_NEAR(static_cast<double>(loaded->order_line.rows()), orders * 10.0, orders * 0.4);
}

TEST_F(LoadedTables, AreConsistent) { EXPECT_EQ(find_inconsistency(*loaded), ""); }

TEST_F(LoadedTables, ItemsAndStock) {
  unsigned original = 0, original_stock = 0;
  loaded->item.for_each([&](const Key<1>&, const Item& row) {
    EXPECT_TRUE(row.price >= 100 && row.price <= 10'000);
    EXPECT_TRUE(row.image >= 1 && row.image <= 10'000);
    EXPECT_TRUE(row.name.view().size() >= 14);
    EXPECT_TRUE(row.data.view().size() >= 26);
    original += row.data.view().contains("ORIGINAL") ? 1 : 0;
  });
  loaded->stock.for_each([&](const Key<1>&, const Stock& row) {
    EXPECT_TRUE(row.quantity >= 10 && row.quantity <= 100);
    EXPECT_TRUE(row.ytd == 0 && row.orders == 0 && row.remote_orders == 0);
  });
  loaded->stock_data.for_each([&](const Key<1>&, const StockData& row) {
    for (const auto& information : row.district) EXPECT_EQ(information.view().size(), 24U);
    original_stock += row.data.view().contains("ORIGINAL") ? 1 : 0;
  });
  EXPECT_NEAR(original, 50, 27);
  EXPECT_NEAR(original_stock, 100, 38);
}

TEST_F(LoadedTables, Customers) {
  std::map<std::string, unsigned> names;
  unsigned bad = 0;
  loaded->customer.for_each([&](const Key<1>& key, const Customer& row) {
    EXPECT_EQ(row.balance, -1'000);
    EXPECT_EQ(row.ytd_payment, 1'000);
    EXPECT_TRUE(row.payments == 1 && row.deliveries == 0);
    EXPECT_LE(row.discount, 5'000U);
    EXPECT_EQ(row.middle.view(), "OE");
    EXPECT_GE(row.first.view().size(), 8U);
    if (number_of_customer(key[0]) <= 1'000) EXPECT_EQ(row.last, last_name(number_of_customer(key[0]) - 1));
    if (district_of_customer(key[0]) == district_key(2, 1)[0]) ++names[std::string(row.last.view())];
    bad += row.credit.view() == "BC" ? 1 : 0;
    EXPECT_TRUE(row.credit.view() == "BC" || row.credit.view() == "GC");
  });
  EXPECT_NEAR(bad, 480, 84);
  EXPECT_EQ(names.size(), 1'000U);
  loaded->customer_information.for_each([&](const Key<1>&, const CustomerInformation& row) {
    EXPECT_EQ(row.credit_limit, 5'000'000);
    EXPECT_EQ(row.since, load_date_us);
    EXPECT_EQ(row.phone.view().size(), 16U);
    EXPECT_EQ(row.address.zip.view().substr(4), "11111");
    EXPECT_EQ(row.address.zip.view().size(), 9U);
    EXPECT_EQ(row.address.state.view().size(), 2U);
    EXPECT_GE(row.address.city.view().size(), 10U);
  });
  loaded->customer_data.for_each([&](const Key<1>&, const CustomerData& row) { EXPECT_TRUE(row.bytes >= 300 && row.bytes <= 500); });
}

TEST_F(LoadedTables, WarehousesAndDistricts) {
  loaded->warehouse.for_each([&](const Key<1>&, const Warehouse& row) {
    EXPECT_EQ(row.ytd, 2 * 1'200 * 1'000);
    EXPECT_LE(row.tax, 2'000U);
    EXPECT_TRUE(row.name.view().size() >= 6 && row.name.view().size() <= 10);
  });
  loaded->district.for_each([&](const Key<1>&, const District& row) {
    EXPECT_EQ(row.ytd, 1'200 * 1'000);
    EXPECT_EQ(row.next_order, 301U);
    EXPECT_LE(row.tax, 2'000U);
  });
}

TEST_F(LoadedTables, Orders) {
  std::set<std::pair<std::uint64_t, std::uint32_t>> customers;
  loaded->order.for_each([&](const Key<1>& key, const Order& row) {
    EXPECT_TRUE(customers.emplace(district_of_order(key[0]), row.customer).second);  // a permutation: no customer has two orders
    EXPECT_EQ(row.carrier != 0, number_of_order(key[0]) <= 210);
    EXPECT_LE(row.carrier, 10);
    EXPECT_TRUE(row.lines >= 5 && row.lines <= 15);
    EXPECT_EQ(row.all_local, 1);
  });
  loaded->order_line.for_each([&](const Key<1>& key, const OrderLine& row) {
    const bool delivered = number_of_order(order_of_line(key[0])) <= 210;
    EXPECT_EQ(row.delivery_date, delivered ? load_date_us : 0U);
    EXPECT_EQ(row.amount == 0, delivered);
    EXPECT_EQ(row.quantity, 5U);
    EXPECT_TRUE(row.item >= 1 && row.item <= 500);
  });
}

TEST_F(LoadedTables, DoNotDependOnTheNumberOfCores) {
  for (const unsigned cores : {2U, 3U}) {
    Database shared(scale);
    for (unsigned core = cores; core-- > 0;) ASSERT_TRUE(load(shared, test::seed, core, cores));
    EXPECT_EQ(find_difference(*loaded, shared), "");
  }
}

TEST_F(LoadedTables, DependOnTheSeed) {
  Database other(scale);
  ASSERT_TRUE(load(other, test::seed + 1, 0, 1));
  EXPECT_NE(find_difference(*loaded, other), "");
  EXPECT_EQ(find_inconsistency(other), "");
}

// Clause 4.3.3.1, at full scale.
TEST(Population, NumbersOfFullScale) {
  constexpr Scale full;
  EXPECT_EQ(delivered_orders(full), 2'100U);
  EXPECT_TRUE(scale_fits(full));
  EXPECT_EQ(std::int64_t{full.customers_per_district} * 1'000, 3'000'000);  // D_YTD: 30,000.00
}

TEST(Keys, OfDifferentPartsDoNotMeet) {
  EXPECT_LT(customer_key(1, 10, customers_max)[0], customer_key(2, 1, 1)[0]);
  EXPECT_LT(order_key(1, 1, orders_max)[0], order_key(1, 2, 0)[0]);
  EXPECT_LT(order_line_key(7, 3, 5, lines_max)[0], order_line_key(7, 3, 6, 1)[0]);
  EXPECT_LT(order_by_customer_key(warehouses_max, 10, 5, orders_max)[0], order_by_customer_key(warehouses_max, 10, 6, 0)[0]);
  EXPECT_LT(stock_key(1, UINT32_MAX)[0], stock_key(2, 1)[0]);
  EXPECT_LT(customer_key(warehouses_max, 10, customers_max)[0], std::uint64_t{1} << 40);  // loaded HISTORY has these keys
}

}  // namespace
}  // namespace neap::tpcc
