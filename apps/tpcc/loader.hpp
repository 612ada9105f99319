// SPDX-License-Identifier: BSL-1.0
// The initial population of the database (clause 4.3.3).
//
// A warehouse of full scale has 900,000 rows and takes about a second to load, which is too long for one event. So a loader works in steps,
// and each core has a loader of its own share. Every row has its own random sequence, made of the seed and the row's key. The tables
// therefore do not depend on the number of cores.
#pragma once

#include <cstdint>
#include <memory>

#include "apps/tpcc/inputs.hpp"
#include "apps/tpcc/random.hpp"
#include "apps/tpcc/schema.hpp"

namespace neap::tpcc {

/// O_ENTRY_D, C_SINCE and H_DATE of all loaded rows. A constant, so that equal seeds load equal tables.
inline constexpr std::uint64_t load_date_us = 1'700'000'000'000'000;

class Loader {
 public:
  /// Loads the share of `core`: some of the items, and the warehouses of `home_warehouses` with all that belongs to them. A warehouse that
  /// several cores share is loaded by the first of them.
  Loader(Database& database, std::uint64_t seed, unsigned core, unsigned cores) noexcept;
  Loader& operator=(Loader&&) = delete;

  enum class Progress : std::uint8_t { more, done, no_memory };
  /// Loads some hundred rows. Loaders of different cores MAY run at once. After no_memory, the database MUST NOT be used.
  [[nodiscard]] Progress step() noexcept;

 private:
  enum class Phase : std::uint8_t { items, warehouse, stock, customers, orders, done };

  [[nodiscard]] Random random_for(Phase phase, Key<1> key) const noexcept {
    return Random(seed_, std::uint64_t{static_cast<std::uint8_t>(phase)} << 56 | key[0]);
  }
  [[nodiscard]] bool load_item(std::uint32_t item) noexcept;
  [[nodiscard]] bool load_warehouse() noexcept;
  [[nodiscard]] bool load_stock(std::uint32_t item) noexcept;
  [[nodiscard]] bool load_customer(std::uint32_t customer) noexcept;
  [[nodiscard]] bool load_order(std::uint32_t order) noexcept;
  [[nodiscard]] bool shuffle_customers() noexcept;
  [[nodiscard]] bool load_row() noexcept;
  void enter(Phase phase, std::uint32_t first, std::uint32_t last) noexcept;
  void leave_phase() noexcept;

  Database& database_;
  const std::uint64_t seed_;
  const NurandConstants constants_;
  std::uint32_t warehouse_, warehouse_last_;
  std::uint32_t district_ = 1;
  Phase phase_ = Phase::items;
  std::uint32_t next_ = 1, last_ = 0;          // rows of the phase that are left
  std::unique_ptr<std::uint32_t[]> shuffled_;  // customers of the district's orders
};

/// Calls `step` until the share of `core` is loaded. Returns false if memory ran out.
[[nodiscard]] bool load(Database& database, std::uint64_t seed, unsigned core, unsigned cores) noexcept;

}  // namespace neap::tpcc
