// SPDX-License-Identifier: BSL-1.0
// A number that one core counts and any core may read.
//
// A plain integer would be a data race; a locked add costs twenty cycles. One writer needs neither: a relaxed load and store compile to an
// ordinary add, and a reader elsewhere sees some recent value.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

namespace neap {

/// Written by one core only; read from any.
class Counter {
 public:
  void add(std::uint64_t amount = 1) noexcept { value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed); }
  void subtract(std::uint64_t amount) noexcept { add(0 - amount); }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Takes counters one by one: a dotted name, a value.
using Emit = std::function<void(std::string_view name, std::uint64_t value)>;

/// A counter and the name under which it is told: a line of the one table that a struct of counters has. `Count`: a number, or what a core
/// counts with.
template <class Struct, class Count = std::uint64_t>
struct NamedCount {
  std::string_view name;
  Count Struct::* count;
};

}  // namespace neap
