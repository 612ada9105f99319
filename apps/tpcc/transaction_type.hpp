// SPDX-License-Identifier: BSL-1.0
// The five transactions of TPC-C, by type. Inputs, counters, answers and the log use the same numbers and names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace neap::tpcc {

/// In the order of the specification (clauses 2.4 to 2.8).
enum class TransactionType : std::uint8_t { new_order, payment, order_status, delivery, stock_level };
inline constexpr std::array<std::string_view, 5> transaction_names{"new_order", "payment", "order_status", "delivery", "stock_level"};
inline constexpr std::size_t transaction_types = transaction_names.size();

[[nodiscard]] constexpr std::string_view name_of(TransactionType type) noexcept {
  return transaction_names[static_cast<std::size_t>(type)];
}

}  // namespace neap::tpcc
