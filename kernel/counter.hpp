// SPDX-License-Identifier: BSL-1.0
// A counter that one core writes and any core may read.
//
// A plain integer would cause a data race, and a locked add costs about twenty cycles. With a single writer, a relaxed load and a relaxed
// store are enough, and they compile to an ordinary add. A reader on another core sees a recent value.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

namespace neap {

class Counter {
 public:
  void add(std::uint64_t amount = 1) noexcept { value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed); }
  void subtract(std::uint64_t amount) noexcept { add(0 - amount); }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A function that is called once for each counter, with its dotted name and its value.
using Emit = std::function<void(std::string_view name, std::uint64_t value)>;

/// A counter and the name under which it is reported: one row of a table of counters. `Count` is a plain number or `Counter`.
template <class Struct, class Count = std::uint64_t>
struct NamedCount {
  std::string_view name;
  Count Struct::* count;
};

}  // namespace neap
