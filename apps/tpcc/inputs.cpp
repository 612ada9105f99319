// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/inputs.hpp"

#include <utility>

#include "kernel/panic.hpp"

namespace neap::tpcc {
namespace {

/// Sequences of generators are apart from those of the loader, which has a sequence for each row.
constexpr std::uint64_t generator_part = 0x6e'0000'0000'0000;

}  // namespace

HomeWarehouses home_warehouses(const Scale& scale, unsigned core, unsigned cores) noexcept {
  require(core < cores, "a core's share of the warehouses needs an existing core", core);
  const std::uint64_t count = scale.warehouses;
  if (count < cores) {
    const auto only = static_cast<std::uint32_t>(core % count) + 1;
    return {only, only};
  }
  return {static_cast<std::uint32_t>(count * core / cores) + 1, static_cast<std::uint32_t>(count * (core + 1) / cores)};
}

Generator::Generator(std::uint64_t seed, std::uint32_t stream, HomeWarehouses home, const Scale& scale) noexcept
    : scale_(scale),
      home_(home),
      constants_(NurandConstants::for_run(seed)),
      random_(seed, generator_part + stream),
      history_(std::uint64_t{stream} << 40) {  // the loader's keys are below 2^40
  require(stream >= 1 && stream <= 1U << 20, "a generator's stream is from 1 to 2^20", stream);
  require(home.first >= 1 && home.first <= home.last && home.last <= scale.warehouses, "home warehouses exist", home.last);
  unsigned at = 0;
  for (unsigned type = 0; type < transaction_types; ++type)
    for (unsigned card = 0; card < cards[type]; ++card) deck_[at++] = static_cast<TransactionType>(type);
  require(at == deck_cards, "the deck is complete", at);
}

const Inputs& Generator::next(std::uint64_t date_us) noexcept { return next(draw_type(), date_us); }

const Inputs& Generator::next(TransactionType type, std::uint64_t date_us) noexcept {
  switch (type) {
    case TransactionType::new_order:
      draw(inputs_.emplace<NewOrderInputs>(), date_us);
      break;
    case TransactionType::payment:
      draw(inputs_.emplace<PaymentInputs>(), date_us);
      break;
    case TransactionType::order_status:
      draw(inputs_.emplace<OrderStatusInputs>());
      break;
    case TransactionType::delivery:
      draw(inputs_.emplace<DeliveryInputs>(), date_us);
      break;
    case TransactionType::stock_level:
      draw(inputs_.emplace<StockLevelInputs>());
      break;
  }
  return inputs_;
}

/// Draws a card that was not drawn since the deck was complete: a shuffle that is spread over the draws.
TransactionType Generator::draw_type() noexcept {
  if (cards_left_ == 0) cards_left_ = deck_cards;
  const std::uint32_t at = random_.between(0, cards_left_ - 1);
  --cards_left_;
  std::swap(deck_[at], deck_[cards_left_]);
  return deck_[cards_left_];
}

std::uint32_t Generator::draw_other_warehouse(std::uint32_t home) noexcept {
  const std::uint32_t other = random_.between(1, scale_.warehouses - 1);
  return other < home ? other : other + 1;
}

/// Clauses 2.5.1.2 and 2.6.1.2: 60 % by last name.
void Generator::choose_customer(CustomerChoice& choice) noexcept {
  choice.customer = 0;
  if (random_.percent(60)) {
    choice.last = last_name(nurand(random_, 255, constants_.last_name, 0, names_in_use(scale_.customers_per_district) - 1));
  } else {
    choice.customer = draw_customer();
  }
}

/// Clause 2.4.1.
void Generator::draw(NewOrderInputs& inputs, std::uint64_t date_us) noexcept {
  inputs.warehouse = draw_home();
  inputs.district = draw_district();
  inputs.customer = draw_customer();
  inputs.lines = random_.between(lines_min, lines_max);
  inputs.date = date_us;
  for (std::uint32_t at = 0; at < inputs.lines; ++at) {
    NewOrderInputs::Line& line = inputs.line[at];
    line.item = nurand(random_, 8191, constants_.item, 1, scale_.items);
    const bool remote = random_.percent(1) && scale_.warehouses > 1;
    line.supply_warehouse = remote ? draw_other_warehouse(inputs.warehouse) : inputs.warehouse;
    line.quantity = random_.between(1, 10);
  }
  if (random_.percent(1))
    inputs.line[inputs.lines - 1].item = scale_.items + 1;  // an unused number, so that the transaction is rolled back
}

/// Clause 2.5.1.
void Generator::draw(PaymentInputs& inputs, std::uint64_t date_us) noexcept {
  inputs.warehouse = draw_home();
  inputs.district = draw_district();
  const bool remote = random_.percent(15) && scale_.warehouses > 1;
  inputs.customer.warehouse = remote ? draw_other_warehouse(inputs.warehouse) : inputs.warehouse;
  inputs.customer.district = remote ? draw_district() : inputs.district;
  choose_customer(inputs.customer);
  inputs.amount = random_.between(100, 500'000);
  inputs.date = date_us;
  inputs.history = history_++;
}

/// Clause 2.6.1.
void Generator::draw(OrderStatusInputs& inputs) noexcept {
  inputs.customer.warehouse = draw_home();
  inputs.customer.district = draw_district();
  choose_customer(inputs.customer);
}

/// Clause 2.7.1.
void Generator::draw(DeliveryInputs& inputs, std::uint64_t date_us) noexcept {
  inputs.warehouse = draw_home();
  inputs.carrier = random_.between(1, 10);
  inputs.date = date_us;
}

/// Clause 2.8.1, with a random district: a generator stands for the terminals of all districts.
void Generator::draw(StockLevelInputs& inputs) noexcept {
  inputs.warehouse = draw_home();
  inputs.district = draw_district();
  inputs.threshold = static_cast<std::int32_t>(random_.between(10, 20));
}

}  // namespace neap::tpcc
