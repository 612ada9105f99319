// SPDX-License-Identifier: BSL-1.0
// Named counters that all cores share.
//
// Clients look counters up at every request and seldom add or remove one. So the counters are in an RCU table. A look-up takes no lock; a
// removed counter is freed when no event can hold a pointer to it. A pointer from the table's `find` is valid until the end of the event,
// not across `co_await`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernel/counter.hpp"
#include "kernel/ebb.hpp"
#include "kernel/rcu_table.hpp"

namespace neap::counters {

/// Each core counts its own requests, so that the counters do not share a cache line.
struct CoreStatistics {
  Counter requests;
};
inline constexpr Ebb<CoreStatistics> statistics;

class Service {
 public:
  static constexpr std::size_t counters_max = 1000;

  /// Adds one to the counter; creates it if it does not exist. Returns the new value, or no value if there are `counters_max` counters.
  std::optional<std::uint64_t> add(const std::string& name) {
    for (;;) {
      if (const auto* const counter = table_.find(name)) return (*counter)->fetch_add(1) + 1;
      if (table_.size() >= counters_max) return std::nullopt;
      table_.insert(name, std::make_unique<std::atomic<std::uint64_t>>(0));  // fails if another core has inserted the name meanwhile
    }
  }
  /// Returns no value if there is no such counter.
  [[nodiscard]] std::optional<std::uint64_t> value(const std::string& name) const {
    const auto* const counter = table_.find(name);
    return counter == nullptr ? std::nullopt : std::optional((*counter)->load());
  }
  /// Returns false if there is no such counter.
  bool remove(const std::string& name) { return table_.erase(name); }

  /// Returns the names of all counters, each followed by a blank.
  [[nodiscard]] std::string names() const {
    std::string all;
    table_.for_each([&all](const std::string& name, const auto&) { all += name + ' '; });
    return all;
  }

  [[nodiscard]] static std::uint64_t requests() {
    std::uint64_t sum = 0;
    for (unsigned core = 0; core < machine::core_count(); ++core) {
      if (const CoreStatistics* const own = statistics.on(core)) sum += own->requests.value();
    }
    return sum;
  }

  std::atomic<std::uint64_t> requests_last_second{0};

 private:
  rcu::Table<std::string, std::unique_ptr<std::atomic<std::uint64_t>>> table_{counters_max};
};

}  // namespace neap::counters
