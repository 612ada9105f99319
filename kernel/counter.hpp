// SPDX-License-Identifier: BSL-1.0
// A counter that one core writes and any core may read.
//
// A plain integer would cause a data race, and a locked add costs about twenty cycles. With a single writer, a relaxed load and a relaxed
// store are enough. A reader on another core sees a recent value.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace neap {

class Counter {
 public:
  void add(std::uint64_t amount = 1) noexcept {
#ifdef __x86_64__
    // GCC makes three instructions of an atomic load, an addition and an atomic store, and a GET counts some 20 times.
    asm("addq %1, %0" : "+m"(value_) : "er"(amount) : "cc");
#else
    __atomic_store_n(&value_, value() + amount, __ATOMIC_RELAXED);
#endif
  }
  void subtract(std::uint64_t amount) noexcept {
#ifdef __x86_64__
    asm("subq %1, %0" : "+m"(value_) : "er"(amount) : "cc");
#else
    add(0 - amount);
#endif
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }

 private:
  alignas(8) std::uint64_t value_ = 0;
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
