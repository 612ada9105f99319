// SPDX-License-Identifier: BSL-1.0
// Tables: rows of one type, found by a unique key.
//
// A secondary index is a table whose row is the primary key. A table without a natural order has keys of a core's number and a counter.
// Transactions read and change a table (transaction.hpp). Loaders fill it before without the cost of a transaction.
#pragma once

#include <cstdint>
#include <new>
#include <string_view>

#include "apps/tpcc/engine/index.hpp"
#include "apps/tpcc/engine/record.hpp"

namespace neap::transactions {

/// The part of a table that does not depend on its row's type.
class TableBase {
 public:
  explicit TableBase(std::string_view name) noexcept : name_(name) {}
  TableBase& operator=(TableBase&&) = delete;
  [[nodiscard]] std::string_view name() const noexcept { return name_; }

 protected:
  virtual ~TableBase() = default;

 private:
  friend class Transaction;
  /// Removes the record from the index. The record is not freed.
  virtual void unlink(const std::uint64_t* key, const RecordHeader* record) noexcept = 0;

  std::string_view name_;
};

template <class Row, unsigned Words = 1>
class Table final : public TableBase {
 public:
  using RowType = Row;
  using KeyType = Key<Words>;

  /// `name` MUST outlive the table. Throws `bad_alloc`.
  explicit Table(std::string_view name) : TableBase(name) {}
  /// MUST NOT run beside transactions.
  ~Table() {
    index_.for_each([](const KeyType&, RecordHeader* record) { delete static_cast<Record<Row>*>(record); });
  }

  /// Inserts a row without a transaction, for loaders. Several cores MAY load at the same time. MUST NOT run beside transactions that use
  /// the same keys. Returns false without memory, or if the key exists.
  [[nodiscard]] bool load(const KeyType& key, const Row& row) noexcept {
    auto* const record = new (std::nothrow) Record<Row>(RecordHeader::loaded, row);
    if (record == nullptr) return false;
    if (index_.insert(key, record).outcome == Outcome::done) return true;
    delete record;
    return false;
  }

  /// The number of rows. It visits all leaves, and it is approximate while transactions run.
  [[nodiscard]] std::uint64_t rows() const noexcept { return index_.size(); }

  /// Calls `function(key, row)` for all rows in the order of the keys. MUST NOT run beside transactions.
  template <class F>
  void for_each(F&& function) const {
    index_.for_each([&](const KeyType& key, const RecordHeader* record) { function(key, static_cast<const Record<Row>*>(record)->row); });
  }

  [[nodiscard]] const Index<Words>& index() const noexcept { return index_; }

 private:
  friend class Transaction;
  void unlink(const std::uint64_t* words, const RecordHeader* record) noexcept override {
    KeyType key;
    for (unsigned word = 0; word < Words; ++word) key[word] = words[word];
    index_.remove(key, record);
  }

  Index<Words> index_;
};

}  // namespace neap::transactions
