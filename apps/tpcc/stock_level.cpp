// SPDX-License-Identifier: BSL-1.0
// StockLevel: counts the items of a district's last 20 orders of which little is left (clause 2.8).
#include <array>
#include <bit>

#include "apps/tpcc/procedures.hpp"

namespace neap::tpcc {
namespace {

constexpr std::uint32_t orders_examined = 20;
constexpr std::uint32_t items_max = orders_examined * lines_max;

/// The different items of the orders: a hash table with linear probing, at most 30 % full.
class ItemSet {
 public:
  void add(std::uint32_t item) noexcept {
    std::size_t slot = static_cast<std::size_t>(item * 0x9e37'79b9U >> (32 - std::countr_zero(slots)));
    for (; slots_[slot] != 0; slot = (slot + 1) % slots)
      if (slots_[slot] == item) return;
    slots_[slot] = item;
    items_[count_++] = item;
  }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t operator[](std::uint32_t at) const noexcept { return items_[at]; }

 private:
  static constexpr std::size_t slots = 1024;
  std::array<std::uint32_t, slots> slots_{};
  std::array<std::uint32_t, items_max> items_;
  std::uint32_t count_ = 0;
};

}  // namespace

Outcome stock_level(Transaction& transaction, Database& database, const StockLevelInputs& inputs, StockLevelResult& result) noexcept {
  const std::uint32_t w = inputs.warehouse, d = inputs.district;
  result.low_stock = 0;
  District district;
  Outcome outcome = transaction.read(database.district, district_key(w, d), district);
  if (outcome != Outcome::found) return outcome;
  const std::uint32_t end = district.next_order;
  const std::uint32_t first = end > orders_examined ? end - orders_examined : 1;
  ItemSet items;
  std::uint32_t lines = 0;
  outcome = transaction.scan(database.order_line, order_line_key(w, d, first, 1), order_line_key(w, d, end - 1, lines_max),
                             [&](const Key<1>&, const OrderLine& line) noexcept {
                               items.add(line.item);
                               return ++lines < items_max;
                             });
  if (outcome != Outcome::done) return outcome;
  for (std::uint32_t at = 0; at < items.count(); ++at) {
    Stock stock;
    outcome = transaction.read(database.stock, stock_key(w, items[at]), stock);
    if (outcome != Outcome::found) return outcome;
    if (stock.quantity < inputs.threshold) ++result.low_stock;
  }
  return Outcome::done;
}

}  // namespace neap::tpcc
