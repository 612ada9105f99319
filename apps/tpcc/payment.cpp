// SPDX-License-Identifier: BSL-1.0
// Payment: a customer pays, at its own or at another warehouse (clause 2.5).
#include <algorithm>
#include <charconv>
#include <cstring>

#include "apps/tpcc/procedures.hpp"

namespace neap::tpcc {
namespace {

/// Clause 2.5.2.2: the payment is noted at the beginning of C_DATA, and the text is cut at 500 characters.
void note_payment(CustomerData& data, const PaymentInputs& inputs, std::uint32_t customer) noexcept {
  char note[6 * 21];
  char* end = note;
  const auto append = [&](std::uint64_t number, char separator) {
    end = std::to_chars(end, note + sizeof note - 1, number).ptr;
    *end++ = separator;
  };
  append(customer, ' ');
  append(inputs.customer.district, ' ');
  append(inputs.customer.warehouse, ' ');
  append(inputs.district, ' ');
  append(inputs.warehouse, ' ');
  const auto cents = static_cast<std::uint64_t>(inputs.amount);
  append(cents / 100, '.');
  *end++ = static_cast<char>('0' + cents % 100 / 10);
  *end++ = static_cast<char>('0' + cents % 10);
  *end++ = ' ';
  const auto bytes = static_cast<std::size_t>(end - note);
  const std::size_t kept = std::min<std::size_t>(data.bytes, sizeof data.text - bytes);
  std::memmove(data.text + bytes, data.text, kept);
  std::memcpy(data.text, note, bytes);
  data.bytes = static_cast<std::uint32_t>(bytes + kept);
}

/// H_DATA: W_NAME and D_NAME with four spaces between them.
Text<24> history_data(const Text<10>& warehouse, const Text<10>& district) noexcept {
  Text<24> data{};
  const std::string_view first = warehouse.view(), second = district.view();
  std::memcpy(data.bytes, first.data(), first.size());
  std::memset(data.bytes + first.size(), ' ', 4);
  std::memcpy(data.bytes + first.size() + 4, second.data(), second.size());
  return data;
}

}  // namespace

Outcome payment(Transaction& transaction, Database& database, const PaymentInputs& inputs, PaymentResult& result) noexcept {
  const CustomerChoice& choice = inputs.customer;
  if (const Outcome outcome = find_customer(transaction, database, choice, result.customer); outcome != Outcome::done) return outcome;
  const Key<1> key = customer_key(choice.warehouse, choice.district, result.customer);

  Customer* customer;
  if (const Outcome outcome = transaction.update(database.customer, key, customer); outcome != Outcome::found) return outcome;
  customer->balance -= inputs.amount;
  customer->ytd_payment += inputs.amount;
  ++customer->payments;
  result.first = customer->first;
  result.middle = customer->middle;
  result.last = customer->last;
  result.credit = customer->credit;
  result.discount = customer->discount;
  result.balance = customer->balance;

  CustomerInformation information;
  if (const Outcome outcome = transaction.read(database.customer_information, key, information); outcome != Outcome::found) return outcome;
  result.address = information.address;
  result.phone = information.phone;
  result.since = information.since;
  result.credit_limit = information.credit_limit;

  result.data_bytes = 0;
  if (result.credit.bytes[0] == 'B') {
    CustomerData* data;
    if (const Outcome outcome = transaction.update(database.customer_data, key, data); outcome != Outcome::found) return outcome;
    note_payment(*data, inputs, result.customer);
    result.data_bytes = std::min<std::uint32_t>(data->bytes, sizeof result.data);
    std::memcpy(result.data, data->text, result.data_bytes);
  }

  District* district;
  if (const Outcome outcome = transaction.update(database.district, district_key(inputs.warehouse, inputs.district), district);
      outcome != Outcome::found)
    return outcome;
  district->ytd += inputs.amount;
  result.district = district->address;
  const Text<10> district_name = district->name;
  Warehouse* warehouse;
  if (const Outcome outcome = transaction.update(database.warehouse, warehouse_key(inputs.warehouse), warehouse); outcome != Outcome::found)
    return outcome;
  warehouse->ytd += inputs.amount;
  result.warehouse = warehouse->address;

  const History history{.date = inputs.date,
                        .amount = inputs.amount,
                        .customer_warehouse = choice.warehouse,
                        .customer = result.customer,
                        .warehouse = inputs.warehouse,
                        .customer_district = static_cast<std::uint8_t>(choice.district),
                        .district = static_cast<std::uint8_t>(inputs.district),
                        .data = history_data(warehouse->name, district_name)};
  return transaction.insert(database.history, Key<1>{inputs.history}, history);
}

}  // namespace neap::tpcc
