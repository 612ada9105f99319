// SPDX-License-Identifier: BSL-1.0
// A check for the unit tests of all drivers: each counter has a name.
//
// A counter that is missing in the tables of queue_counters.hpp and of the drivers is never reported, which no other test finds.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "kernel/counter.hpp"

namespace neap::test {

/// Adds the names in `tables`, which together MUST name each counter of `Struct` once.
template <class Struct, class... Tables>
void add_counter_names(std::multiset<std::string_view>& names, const Tables&... tables) {
  const Struct counters;
  std::set<const Counter*> counted;
  const auto add = [&](const auto& table) {
    for (const auto& [name, count] : table) {
      counted.insert(&(counters.*count));
      names.insert(name);
    }
  };
  (add(tables), ...);
  EXPECT_EQ(counted.size(), sizeof(Struct) / sizeof(Counter)) << "a counter is in no table, near " << *names.rbegin();
}

}  // namespace neap::test
