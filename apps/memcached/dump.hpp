// SPDX-License-Identifier: BSL-1.0
// Lists of the stored keys: lru_crawler metadump and mgdump, and stats cachedump.
//
// A store may have millions of items. A dump looks at some hundred of them in one event, at any that are stored meanwhile too, and holds no
// lock (`Store::Walk`). Only one connection at a time gets a dump in memcached; here each connection has its own.
#pragma once

#include <cstdint>
#include <string_view>

#include "apps/memcached/long_answer.hpp"
#include "apps/memcached/service.hpp"

namespace neap::memcached {

/// Items of all classes.
constexpr std::uint32_t all_classes = ~std::uint32_t{0};
/// Returns a bit for each class of a list like "1,3", which MUST be valid, or of "all" or "hash".
[[nodiscard]] std::uint32_t class_bits(std::string_view classes) noexcept;

/// Looks at chains and items, some in each event.
class ItemList : public LongAnswer {
 public:
  [[nodiscard]] Step write(Reply& reply, Seconds now) final;

 protected:
  ItemList(Service& service, std::uint32_t classes) noexcept : service_(service), walk_(service.store), classes_(classes) {}
  /// Writes the line of a live item. Returns false if the list is complete.
  virtual bool show(Reply& reply, const Item& item) noexcept = 0;
  /// The line behind the list.
  [[nodiscard]] virtual std::string_view last_line() const noexcept { return "END\r\n"; }

  Service& service_;

 private:
  static constexpr unsigned budget = 256;  // chains and items in one event: some tens of microseconds
  Store::Walk walk_;
  const std::uint32_t classes_;
  bool complete_ = false;
};

class Dump final : public ItemList {
 public:
  /// `as_requests`: lines are requests of the meta protocol. `classes`: a bit for each class of items.
  Dump(Service& service, bool as_requests, std::uint32_t classes) noexcept : ItemList(service, classes), as_requests_(as_requests) {}

 private:
  bool show(Reply& reply, const Item& item) noexcept override;
  [[nodiscard]] std::string_view last_line() const noexcept override { return as_requests_ ? "EN\r\n" : "END\r\n"; }
  const bool as_requests_;
};

class CacheDump final : public ItemList {
 public:
  /// `limit`: 0: none.
  CacheDump(Service& service, unsigned class_id, std::uint32_t limit) noexcept
      : ItemList(service, std::uint32_t{1} << class_id), limit_(limit) {}

 private:
  bool show(Reply& reply, const Item& item) noexcept override;
  const std::uint32_t limit_;
  std::uint32_t shown_ = 0;
};

}  // namespace neap::memcached
