// SPDX-License-Identifier: BSL-1.0
// The generator draws what the specification asks for: types, home warehouses, shares of remote accesses, names and rollbacks.
#include "apps/tpcc/inputs.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

namespace neap::tpcc {
namespace {

constexpr std::uint64_t seed = 7, date = 1'800'000'000'000'000;
constexpr Scale scale{.warehouses = 4};

template <class Kinds>
const Kinds& get(const Inputs& inputs) {
  return *std::get_if<Kinds>(&inputs);
}

/// The number of hits is within four standard deviations of `share * count`.
void expect_share(double hits, double count, double share) {
  const double expected = count * share, deviation = std::sqrt(count * share * (1 - share));
  EXPECT_NEAR(hits, expected, 4 * deviation);
}

TEST(Generator, EachDeckHasTheExactMix) {
  Generator generator(seed, 1, {1, 4}, scale);
  std::set<std::size_t> places;  // of the first Delivery of each deck
  for (int deck = 0; deck < 50; ++deck) {
    std::array<unsigned, transaction_types> counts{};
    std::size_t first = 0;
    for (std::size_t card = 0; card < 100; ++card) {
      const TransactionType type = type_of(generator.next(date));
      if (++counts[static_cast<unsigned>(type)] == 1 && type == TransactionType::delivery) first = card;
    }
    EXPECT_EQ(counts, (std::array<unsigned, transaction_types>{45, 43, 4, 4, 4}));
    places.insert(first);
  }
  EXPECT_GT(places.size(), 20U);
}

TEST(Generator, EqualSeedsGiveEqualInputsAndStreamsDiffer) {
  Generator one(seed, 1, {1, 4}, scale), same(seed, 1, {1, 4}, scale), other(seed, 2, {1, 4}, scale);
  unsigned equal = 0;
  for (int draw = 0; draw < 1'000; ++draw) {
    const auto& left = get<NewOrderInputs>(one.next(TransactionType::new_order, date));
    const auto& right = get<NewOrderInputs>(same.next(TransactionType::new_order, date));
    const auto& third = get<NewOrderInputs>(other.next(TransactionType::new_order, date));
    ASSERT_EQ(left.customer, right.customer);
    ASSERT_EQ(left.line[4].item, right.line[4].item);
    equal += left.customer == third.customer ? 1 : 0;
  }
  EXPECT_LT(equal, 50U);
}

TEST(Generator, NewOrder) {
  Generator generator(seed, 1, {2, 3}, scale);
  double lines = 0, remote = 0, rolled_back = 0;
  constexpr int draws = 20'000;
  std::set<std::uint32_t> warehouses, districts, line_counts, quantities, remote_warehouses;
  for (int draw = 0; draw < draws; ++draw) {
    const auto& inputs = get<NewOrderInputs>(generator.next(TransactionType::new_order, date + 1));
    warehouses.insert(inputs.warehouse);
    districts.insert(inputs.district);
    line_counts.insert(inputs.lines);
    EXPECT_EQ(inputs.date, date + 1);
    ASSERT_TRUE(inputs.customer >= 1 && inputs.customer <= 3'000);
    for (std::uint32_t at = 0; at < inputs.lines; ++at) {
      const auto& line = inputs.line[at];
      quantities.insert(line.quantity);
      ++lines;
      if (line.supply_warehouse != inputs.warehouse) {
        ++remote;
        remote_warehouses.insert(line.supply_warehouse);
      }
      if (line.item == scale.items + 1) {
        EXPECT_EQ(at, inputs.lines - 1);  // the last line only
        ++rolled_back;
      } else {
        ASSERT_TRUE(line.item >= 1 && line.item <= scale.items);
      }
    }
  }
  EXPECT_EQ(warehouses, (std::set<std::uint32_t>{2, 3}));
  EXPECT_EQ(remote_warehouses, (std::set<std::uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(districts.size(), 10U);
  EXPECT_EQ(*line_counts.begin(), 5U);
  EXPECT_EQ(line_counts.size(), 11U);
  EXPECT_EQ(*quantities.begin(), 1U);
  EXPECT_EQ(quantities.size(), 10U);
  EXPECT_NEAR(lines / draws, 10, 0.1);
  expect_share(remote, lines, 0.01);
  expect_share(rolled_back, draws, 0.01);
}

TEST(Generator, Payment) {
  Generator generator(seed, 3, {1, 1}, scale);
  double remote = 0, by_name = 0;
  constexpr int draws = 20'000;
  std::set<std::uint64_t> histories;
  for (int draw = 0; draw < draws; ++draw) {
    const auto& inputs = get<PaymentInputs>(generator.next(TransactionType::payment, date));
    EXPECT_EQ(inputs.warehouse, 1U);
    ASSERT_TRUE(inputs.amount >= 100 && inputs.amount <= 500'000);
    histories.insert(inputs.history);
    EXPECT_EQ(inputs.history >> 40, 3U);
    if (inputs.customer.warehouse != 1) {
      ++remote;
    } else {
      EXPECT_EQ(inputs.customer.district, inputs.district);
    }
    if (inputs.customer.customer == 0) {
      ++by_name;
      EXPECT_FALSE(inputs.customer.last.view().empty());
    }
  }
  EXPECT_EQ(histories.size(), std::size_t{draws});
  expect_share(remote, draws, 0.15);
  expect_share(by_name, draws, 0.6);
}

TEST(Generator, OtherTypes) {
  Generator generator(seed, 3, {4, 4}, scale);
  double by_name = 0;
  constexpr int draws = 10'000;
  std::set<std::uint32_t> carriers;
  std::set<std::int32_t> thresholds;
  for (int draw = 0; draw < draws; ++draw) {
    const auto& status = get<OrderStatusInputs>(generator.next(TransactionType::order_status, date)).customer;
    EXPECT_EQ(status.warehouse, 4U);
    by_name += status.customer == 0 ? 1 : 0;
    carriers.insert(get<DeliveryInputs>(generator.next(TransactionType::delivery, date)).carrier);
    thresholds.insert(get<StockLevelInputs>(generator.next(TransactionType::stock_level, date)).threshold);
  }
  expect_share(by_name, draws, 0.6);
  EXPECT_EQ(carriers.size(), 10U);
  EXPECT_EQ(*carriers.rbegin(), 10U);
  EXPECT_EQ(thresholds.size(), 11U);
  EXPECT_EQ(*thresholds.begin(), 10);
}

TEST(Generator, OneWarehouseHasNoRemoteAccess) {
  Generator generator(seed, 1, {1, 1}, Scale{});
  for (int draw = 0; draw < 5'000; ++draw) {
    const auto& order = get<NewOrderInputs>(generator.next(TransactionType::new_order, date));
    for (std::uint32_t at = 0; at < order.lines; ++at) ASSERT_EQ(order.line[at].supply_warehouse, 1U);
    ASSERT_EQ(get<PaymentInputs>(generator.next(TransactionType::payment, date)).customer.warehouse, 1U);
  }
}

TEST(HomeWarehouses, CoverAllOnce) {
  for (std::uint32_t warehouses = 1; warehouses < 20; ++warehouses) {
    for (unsigned cores = 1; cores <= 9; ++cores) {
      std::map<std::uint32_t, unsigned> covered;
      for (unsigned core = 0; core < cores; ++core) {
        const HomeWarehouses home = home_warehouses(Scale{.warehouses = warehouses}, core, cores);
        EXPECT_LE(home.first, home.last);
        for (std::uint32_t at = home.first; at <= home.last; ++at) ++covered[at];
      }
      EXPECT_EQ(covered.size(), warehouses);
      if (cores <= warehouses) {
        for (const auto& [warehouse, times] : covered) EXPECT_EQ(times, 1U) << warehouse;
      }
    }
  }
}

}  // namespace
}  // namespace neap::tpcc
