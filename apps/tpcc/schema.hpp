// SPDX-License-Identifier: BSL-1.0
// The tables of TPC-C (specification 5.11, clause 1.3).
//
// A transaction copies each row that it reads, and writes the whole row back at its commit. So rows are short: columns that change are
// apart from long columns that are rarely read. This vertical partitioning is allowed by clause 1.4.5. CUSTOMER is three tables and STOCK
// is two.
//
// Money is in cents. Tax rates and discounts are in 1/10,000. Times are in microseconds since 1970, and 0 stands for null.
//
// Each primary key fits a word: its parts are concatenated, the warehouse in the highest bits. `scale_fits` has the limits. Secondary
// indexes are tables whose rows have the primary key.
#pragma once

#include <cstdint>

#include "apps/tpcc/engine/table.hpp"
#include "apps/tpcc/text.hpp"

namespace neap::tpcc {

/// The size of the database. The defaults are those of clause 1.2.1; tests use smaller ones.
struct Scale {
  std::uint32_t warehouses = 1;
  std::uint32_t items = 100'000;
  std::uint32_t customers_per_district = 3'000;
  std::uint32_t orders_per_district = 3'000;
  std::uint32_t districts = 10;
};

inline constexpr std::uint32_t warehouses_max = 65'535;
inline constexpr std::uint32_t districts_max = 10;
inline constexpr std::uint32_t customers_max = (1U << 20) - 1;  // customers of a district
inline constexpr std::uint32_t orders_max = (1U << 24) - 1;     // orders of a district. Clause 1.3.1 asks for 10^7 orders.
inline constexpr std::uint32_t lines_min = 5, lines_max = 15;   // lines of an order

/// Returns true if every number of `scale` is at least 1 and fits its keys, and if each order at the beginning has a customer of its own.
[[nodiscard]] constexpr bool scale_fits(const Scale& scale) noexcept {
  return scale.warehouses >= 1 && scale.warehouses <= warehouses_max && scale.districts >= 1 && scale.districts <= districts_max &&
         scale.items >= 1 && scale.items < UINT32_MAX && scale.customers_per_district >= 1 &&
         scale.customers_per_district <= customers_max && scale.orders_per_district >= 1 &&
         scale.orders_per_district <= scale.customers_per_district;
}

/// The number of each district's first orders that are delivered when the database is loaded: 70 % (clause 4.3.3.1).
[[nodiscard]] constexpr std::uint32_t delivered_orders(const Scale& scale) noexcept { return scale.orders_per_district * 7 / 10; }

// --- Rows --------------------------------------------------------------------------------------------------------------------------------

struct Address {
  Text<20> street_1, street_2, city;
  Text<2> state;
  Text<9> zip;

  bool operator==(const Address&) const = default;
};

struct alignas(8) Warehouse {
  std::int64_t ytd;
  std::uint32_t tax;
  Text<10> name;
  Address address;

  bool operator==(const Warehouse&) const = default;
};

struct alignas(8) District {
  std::int64_t ytd;
  std::uint32_t next_order;  ///< D_NEXT_O_ID
  std::uint32_t tax;
  Text<10> name;
  Address address;

  bool operator==(const District&) const = default;
};

struct alignas(8) Customer {
  std::int64_t balance;
  std::int64_t ytd_payment;
  std::uint32_t payments;    ///< C_PAYMENT_CNT
  std::uint32_t deliveries;  ///< C_DELIVERY_CNT
  std::uint32_t discount;
  Text<2> credit;  ///< "GC" or "BC"
  Text<2> middle;
  Name first, last;

  bool operator==(const Customer&) const = default;
};

/// Columns of CUSTOMER that do not change, read by Payment.
struct alignas(8) CustomerInformation {
  std::int64_t credit_limit;
  std::uint64_t since;
  Address address;
  Text<16> phone;

  bool operator==(const CustomerInformation&) const = default;
};

struct alignas(8) CustomerData {
  std::uint32_t bytes;  ///< length of the text
  char text[500];

  bool operator==(const CustomerData&) const = default;
};

struct alignas(8) History {
  std::uint64_t date;
  std::int64_t amount;
  std::uint32_t customer_warehouse;
  std::uint32_t customer;
  std::uint32_t warehouse;
  std::uint8_t customer_district;
  std::uint8_t district;
  Text<24> data;

  bool operator==(const History&) const = default;
};

/// NEW-ORDER has a key only.
struct alignas(8) NewOrder {
  std::uint64_t unused;

  bool operator==(const NewOrder&) const = default;
};

struct alignas(8) Order {
  std::uint64_t entry_date;
  std::uint32_t customer;
  std::uint8_t carrier;  ///< 0: null
  std::uint8_t lines;    ///< O_OL_CNT
  std::uint8_t all_local;

  bool operator==(const Order&) const = default;
};

struct alignas(8) OrderLine {
  std::uint64_t delivery_date;  ///< 0: null
  std::uint32_t item;
  std::uint32_t supply_warehouse;
  std::uint32_t amount;
  std::uint32_t quantity;
  Text<24> district_information;

  bool operator==(const OrderLine&) const = default;
};

struct alignas(8) Item {
  std::uint32_t image;
  std::uint32_t price;
  Text<24> name;
  Text<50> data;

  bool operator==(const Item&) const = default;
};

struct alignas(8) Stock {
  std::int32_t quantity;
  std::uint32_t ytd;
  std::uint32_t orders;         ///< S_ORDER_CNT
  std::uint32_t remote_orders;  ///< S_REMOTE_CNT

  bool operator==(const Stock&) const = default;
};

/// Columns of STOCK that do not change, read by NewOrder.
struct alignas(8) StockData {
  Text<24> district[districts_max];  ///< S_DIST_01 to S_DIST_10
  Text<50> data;

  bool operator==(const StockData&) const = default;
};

/// A row of a secondary index: the primary key.
struct alignas(8) Reference {
  std::uint64_t key;

  bool operator==(const Reference&) const = default;
};

// --- Keys --------------------------------------------------------------------------------------------------------------------------------

using transactions::Key;

constexpr Key<1> warehouse_key(std::uint32_t warehouse) noexcept { return {warehouse}; }
constexpr Key<1> district_key(std::uint32_t warehouse, std::uint32_t district) noexcept {
  return {std::uint64_t{warehouse} << 4 | district};
}
/// CUSTOMER's three tables.
constexpr Key<1> customer_key(std::uint32_t warehouse, std::uint32_t district, std::uint32_t customer) noexcept {
  return {district_key(warehouse, district)[0] << 20 | customer};
}
/// ORDER and NEW-ORDER.
constexpr Key<1> order_key(std::uint32_t warehouse, std::uint32_t district, std::uint32_t order) noexcept {
  return {district_key(warehouse, district)[0] << 24 | order};
}
constexpr Key<1> order_line_key(std::uint32_t warehouse, std::uint32_t district, std::uint32_t order, std::uint32_t line) noexcept {
  return {order_key(warehouse, district, order)[0] << 4 | line};
}
constexpr Key<1> order_by_customer_key(std::uint32_t warehouse, std::uint32_t district, std::uint32_t customer,
                                       std::uint32_t order) noexcept {
  return {customer_key(warehouse, district, customer)[0] << 24 | order};
}
constexpr Key<1> item_key(std::uint32_t item) noexcept { return {item}; }
/// STOCK's two tables.
constexpr Key<1> stock_key(std::uint32_t warehouse, std::uint32_t item) noexcept { return {std::uint64_t{warehouse} << 32 | item}; }

/// Order of clause 2.5.2.2: the customers of one last name are sorted by their first names.
inline Key<6> customer_by_name_key(std::uint32_t warehouse, std::uint32_t district, const Name& last, const Name& first,
                                   std::uint32_t customer) noexcept {
  const auto last_words = key_words(last), first_words = key_words(first);
  return {district_key(warehouse, district)[0], last_words[0], last_words[1], first_words[0], first_words[1], customer};
}

// Parts of keys, for checks of whole tables.
constexpr std::uint32_t warehouse_of_district(std::uint64_t key) noexcept { return static_cast<std::uint32_t>(key >> 4); }
constexpr std::uint32_t district_of_district(std::uint64_t key) noexcept { return static_cast<std::uint32_t>(key & 0xf); }
constexpr std::uint64_t district_of_customer(std::uint64_t key) noexcept { return key >> 20; }
constexpr std::uint32_t number_of_customer(std::uint64_t key) noexcept { return static_cast<std::uint32_t>(key & customers_max); }
constexpr std::uint64_t district_of_order(std::uint64_t key) noexcept { return key >> 24; }
constexpr std::uint32_t number_of_order(std::uint64_t key) noexcept { return static_cast<std::uint32_t>(key & orders_max); }
constexpr std::uint64_t order_of_line(std::uint64_t key) noexcept { return key >> 4; }
constexpr std::uint32_t number_of_line(std::uint64_t key) noexcept { return static_cast<std::uint32_t>(key & 0xf); }

// --- The database ------------------------------------------------------------------------------------------------------------------------

struct Database {
  /// Throws `bad_alloc`.
  explicit Database(const Scale& size) : scale(size) {}
  Database& operator=(Database&&) = delete;

  const Scale scale;
  transactions::Table<Warehouse> warehouse{"warehouse"};
  transactions::Table<District> district{"district"};
  transactions::Table<Customer> customer{"customer"};
  transactions::Table<CustomerInformation> customer_information{"customer_information"};
  transactions::Table<CustomerData> customer_data{"customer_data"};
  transactions::Table<Reference, 6> customer_by_name{"customer_by_name"};
  transactions::Table<History> history{"history"};  // keys: see inputs.hpp
  transactions::Table<NewOrder> new_order{"new_order"};
  transactions::Table<Order> order{"order"};
  transactions::Table<Reference> order_by_customer{"order_by_customer"};
  transactions::Table<OrderLine> order_line{"order_line"};
  transactions::Table<Item> item{"item"};
  transactions::Table<Stock> stock{"stock"};
  transactions::Table<StockData> stock_data{"stock_data"};
};

}  // namespace neap::tpcc
