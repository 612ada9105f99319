// SPDX-License-Identifier: BSL-1.0
// The inputs of transactions, as a terminal's user enters them (clauses 2.4.1 to 2.8.1), and the mix of their types (clause 5.2.3).
//
// Inputs have everything on which a transaction depends, the date included. Equal inputs in equal order therefore give equal tables, so a
// test can repeat a run of several cores on one thread.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "apps/tpcc/random.hpp"
#include "apps/tpcc/schema.hpp"
#include "apps/tpcc/transaction_type.hpp"

namespace neap::tpcc {

/// The customer of a Payment or OrderStatus: by number, or by last name if the number is 0.
struct CustomerChoice {
  std::uint32_t warehouse, district, customer;
  Name last;
};

struct NewOrderInputs {
  struct Line {
    std::uint32_t item, supply_warehouse, quantity;
  };
  std::uint32_t warehouse, district, customer, lines;
  std::uint64_t date;
  std::array<Line, lines_max> line;
};

struct PaymentInputs {
  std::uint32_t warehouse, district;
  CustomerChoice customer;
  std::int64_t amount;
  std::uint64_t date;
  std::uint64_t history;  ///< key of the new row of HISTORY, which has no primary key in the specification
};

struct OrderStatusInputs {
  CustomerChoice customer;
};

struct DeliveryInputs {
  std::uint32_t warehouse, carrier;
  std::uint64_t date;
};

struct StockLevelInputs {
  std::uint32_t warehouse, district;
  std::int32_t threshold;
};

/// The alternatives have the order of `TransactionType`.
using Inputs = std::variant<NewOrderInputs, PaymentInputs, OrderStatusInputs, DeliveryInputs, StockLevelInputs>;
[[nodiscard]] inline TransactionType type_of(const Inputs& inputs) noexcept { return static_cast<TransactionType>(inputs.index()); }

/// The warehouses of a core's terminals, from `first` to `last`.
struct HomeWarehouses {
  std::uint32_t first, last;
};

/// Returns the share of `core`: as equal as possible, in the order of the cores. If there are fewer warehouses than cores, several cores
/// share one. `core` MUST be less than `cores`.
[[nodiscard]] HomeWarehouses home_warehouses(const Scale& scale, unsigned core, unsigned cores) noexcept;

/// Draws inputs. Each core has its own generator.
class Generator {
 public:
  /// Generators of one database MUST have the same `seed`, with which the database was loaded, and different `stream`s, from 1 to 2^20.
  Generator(std::uint64_t seed, std::uint32_t stream, HomeWarehouses home, const Scale& scale) noexcept;

  /// Returns the inputs of the next transaction, until the next call. Its type comes from a shuffled deck of 100 cards (clause 5.2.4.2): 45
  /// NewOrder, 43 Payment, 4 of each other type. `date_us` is the time of the transaction, and MUST NOT be 0.
  const Inputs& next(std::uint64_t date_us) noexcept;
  /// The same for a given type.
  const Inputs& next(TransactionType type, std::uint64_t date_us) noexcept;

 private:
  TransactionType draw_type() noexcept;
  std::uint32_t draw_home() noexcept { return random_.between(home_.first, home_.last); }
  std::uint32_t draw_district() noexcept { return random_.between(1, scale_.districts); }
  std::uint32_t draw_customer() noexcept { return nurand(random_, 1023, constants_.customer, 1, scale_.customers_per_district); }
  std::uint32_t draw_other_warehouse(std::uint32_t home) noexcept;
  void choose_customer(CustomerChoice& choice) noexcept;
  void draw(NewOrderInputs& inputs, std::uint64_t date_us) noexcept;
  void draw(PaymentInputs& inputs, std::uint64_t date_us) noexcept;
  void draw(OrderStatusInputs& inputs) noexcept;
  void draw(DeliveryInputs& inputs, std::uint64_t date_us) noexcept;
  void draw(StockLevelInputs& inputs) noexcept;

  static constexpr std::array<std::uint8_t, transaction_types> cards{45, 43, 4, 4, 4};
  static constexpr unsigned deck_cards = 100;

  const Scale scale_;
  const HomeWarehouses home_;
  const NurandConstants constants_;
  Random random_;
  std::uint64_t history_;  // key of the next row of HISTORY
  std::array<TransactionType, deck_cards> deck_;
  unsigned cards_left_ = 0;
  Inputs inputs_;
};

}  // namespace neap::tpcc
