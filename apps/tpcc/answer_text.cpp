// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/answer_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <variant>

namespace neap::tpcc {
namespace {

/// Appends words. Text beyond the room is dropped.
class Words {
 public:
  explicit Words(std::span<char, answer_bytes_max> room) noexcept : first_(room.data()), at_(first_), end_(first_ + room.size()) {}

  Words& put(std::string_view text) noexcept {
    const std::size_t bytes = std::min(text.size(), static_cast<std::size_t>(end_ - at_));
    if (bytes != 0) std::memcpy(at_, text.data(), bytes);
    at_ += bytes;
    return *this;
  }
  Words& number(std::int64_t value) noexcept {
    char digits[20];
    return put({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits)});
  }
  Words& field(std::string_view name, std::int64_t value) noexcept { return put(" ").put(name).put("=").number(value); }
  Words& field(std::string_view name, std::string_view value) noexcept { return put(" ").put(name).put("=").put(value); }
  [[nodiscard]] std::size_t bytes() const noexcept { return static_cast<std::size_t>(at_ - first_); }

 private:
  char* first_;
  char* at_;
  char* end_;
};

void write(const NewOrderInputs& inputs, const NewOrderResult& result, Words& words) noexcept {
  words.field("w", inputs.warehouse).field("d", inputs.district).field("c", inputs.customer).field("o", result.order);
  words.field("last", result.last.view()).field("credit", result.credit.view());
  if (result.rolled_back) {
    words.put(" Item number is not valid");  // the message of clause 2.4.3.4
    return;
  }
  words.field("discount", result.discount).field("w_tax", result.warehouse_tax).field("d_tax", result.district_tax);
  words.field("total", result.total).put(" lines=");
  for (std::uint32_t i = 0; i < std::min(inputs.lines, lines_max); ++i) {
    const NewOrderInputs::Line& line = inputs.line[i];
    const NewOrderResult::Line& shown = result.line[i];
    words.put(i == 0 ? "" : ",").number(line.supply_warehouse).put(":").number(line.item).put(":").number(line.quantity);
    words.put(":").number(shown.stock).put(":").put({&shown.brand, 1}).put(":").number(shown.price).put(":").number(shown.amount);
  }
}

void write(const PaymentInputs& inputs, const PaymentResult& result, Words& words) noexcept {
  words.field("w", inputs.warehouse).field("d", inputs.district).field("c_w", inputs.customer.warehouse);
  words.field("c_d", inputs.customer.district).field("c", result.customer).field("amount", inputs.amount);
  words.field("last", result.last.view()).field("credit", result.credit.view()).field("discount", result.discount);
  words.field("limit", result.credit_limit).field("balance", result.balance);
  if (result.data_bytes != 0) words.field("data", {result.data, std::min<std::size_t>(result.data_bytes, sizeof result.data)});
}

void write(const OrderStatusInputs& inputs, const OrderStatusResult& result, Words& words) noexcept {
  words.field("w", inputs.customer.warehouse).field("d", inputs.customer.district).field("c", result.customer);
  words.field("last", result.last.view()).field("balance", result.balance).field("o", result.order);
  if (result.order == 0) return;
  words.field("carrier", result.carrier).put(" lines=");
  for (std::uint32_t i = 0; i < std::min(result.lines, lines_max); ++i) {
    const OrderStatusResult::Line& line = result.line[i];
    words.put(i == 0 ? "" : ",").number(line.supply_warehouse).put(":").number(line.item).put(":").number(line.quantity);
    words.put(":").number(line.amount).put(":").number(static_cast<std::int64_t>(line.delivery_date / 1'000'000));
  }
}

void write(const DeliveryInputs& inputs, const DeliveryResult& result, Words& words) noexcept {
  words.field("w", inputs.warehouse).field("carrier", inputs.carrier).put(" orders=");
  for (std::size_t i = 0; i < result.order.size(); ++i) words.put(i == 0 ? "" : ",").number(result.order[i]);
}

void write(const StockLevelInputs& inputs, const StockLevelResult& result, Words& words) noexcept {
  words.field("w", inputs.warehouse).field("d", inputs.district).field("threshold", inputs.threshold).field("low", result.low_stock);
}

}  // namespace

std::size_t write_answer(const Inputs& inputs, const Result& result, std::span<char, answer_bytes_max> text) noexcept {
  Words words(text);
  words.put(transaction_names[inputs.index()]);
  switch (type_of(inputs)) {
    case TransactionType::new_order:
      write(*std::get_if<NewOrderInputs>(&inputs), result.new_order, words);
      break;
    case TransactionType::payment:
      write(*std::get_if<PaymentInputs>(&inputs), result.payment, words);
      break;
    case TransactionType::order_status:
      write(*std::get_if<OrderStatusInputs>(&inputs), result.order_status, words);
      break;
    case TransactionType::delivery:
      write(*std::get_if<DeliveryInputs>(&inputs), result.delivery, words);
      break;
    case TransactionType::stock_level:
      write(*std::get_if<StockLevelInputs>(&inputs), result.stock_level, words);
      break;
  }
  return words.bytes();
}

}  // namespace neap::tpcc
