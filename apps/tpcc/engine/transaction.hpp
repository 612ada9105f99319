// SPDX-License-Identifier: BSL-1.0
// Serialisable transactions on tables that all cores share.
//
// Silo's protocol of optimistic concurrency control (Tu et al., SOSP 2013), for a machine where a transaction runs to its end within one
// event of one core. A transaction takes no locks while it reads. It records the version of each row, and the version of each leaf of an
// index where it found that a row does not exist. It changes copies of rows. The commit locks the rows that were changed, checks that all
// versions that were read are current, and stores the changes with a new version. The point between locking and checking is the place of
// the transaction in the serial order. A transaction that meets another core's change ends with `conflict`, and the caller repeats it.
//
//   transaction.begin();
//   if (is_failure(transaction.update(accounts, {from}, row))) { transaction.abort(); … }
//   row->balance -= amount;
//   if (transaction.commit() == Outcome::conflict) …  // again
//
// New records are in the index before the commit, locked and absent. A removed row's record is unlinked and freed after the commit.
//
// Differences from Silo: rows are locked without waiting, because a row that another core holds has almost always changed afterwards. They
// are locked in the order of their addresses only after repeated conflicts: the order guarantees progress, and sorting costs instructions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

#include "apps/tpcc/engine/record.hpp"
#include "apps/tpcc/engine/table.hpp"
#include "apps/tpcc/engine/worker.hpp"

namespace neap::transactions {

/// A key parameter: `Words` is deduced from the table only, so a key MAY be written in braces.
template <unsigned Words>
using KeyOf = std::type_identity_t<Key<Words>>;
template <unsigned Words>
using PlaceOf = std::type_identity_t<typename Index<Words>::Place>;

/// One for each core, used again and again: `begin`, operations, then `commit` or `abort`, all within one event. An operation that failed
/// (`is_failure`) leaves the transaction with this outcome: later operations MUST NOT be called, and `commit` aborts and returns it.
class Transaction {
 public:
  explicit Transaction(Worker& worker) noexcept : worker_(worker) {}
  Transaction& operator=(Transaction&&) = delete;

  void begin() noexcept;

  /// Copies the row. Outcomes: found, absent, or a failure (conflict, too_large). Without `found`, `row` is unspecified.
  template <class Row, unsigned Words>
  [[nodiscard]] Outcome read(const Table<Row, Words>& table, const KeyOf<Words>& key, Row& row) noexcept {
    const auto found = table.index_.find(key);
    if (found.record == nullptr) [[unlikely]]
      return note_absent(found.leaf, found.version);
    if (write_count_ != 0) {
      if (const Write* const own = find_write(found.record); own != nullptr) return read_own(*own, row);
    }
    return read_record(*static_cast<const Record<Row>*>(found.record), found.leaf, found.version, row);
  }

  /// Makes a copy of the row that the caller MAY change until `commit`, which stores it. A second call for the same row returns the same
  /// copy. Outcomes: found, absent, or a failure (conflict, too_large).
  template <class Row, unsigned Words>
  [[nodiscard]] Outcome update(Table<Row, Words>& table, const KeyOf<Words>& key, Row*& row) noexcept {
    return update_found(table, table.index_.find(key), row);
  }
  /// As above, cheaper for rows whose keys follow each other in the table. `place` MUST be empty (new) at the first such row, and MUST be
  /// used with this table in this transaction only.
  template <class Row, unsigned Words>
  [[nodiscard]] Outcome update(Table<Row, Words>& table, const KeyOf<Words>& key, Row*& row, PlaceOf<Words>& place) noexcept {
    return update_found(table, table.index_.find_after(place, key), row);
  }

  /// Outcomes: done, exists, or a failure (conflict, no_memory, too_large).
  template <class Row, unsigned Words>
  [[nodiscard]] Outcome insert(Table<Row, Words>& table, const KeyOf<Words>& key, const std::type_identity_t<Row>& row) noexcept {
    return insert_by(table, key, row, [&](RecordHeader* record) { return table.index_.insert(key, record); });
  }
  /// As above, cheaper for ascending keys between which the table has no others. `place`: as for `update`.
  template <class Row, unsigned Words>
  [[nodiscard]] Outcome insert(Table<Row, Words>& table, const KeyOf<Words>& key, const std::type_identity_t<Row>& row,
                               PlaceOf<Words>& place) noexcept {
    return insert_by(table, key, row, [&](RecordHeader* record) { return table.index_.insert_after(place, key, record); });
  }

  /// Outcomes: done, absent, or a failure (conflict, no_memory, too_large).
  template <class Row, unsigned Words>
  [[nodiscard]] Outcome remove(Table<Row, Words>& table, const KeyOf<Words>& key) noexcept {
    const auto found = table.index_.find(key);
    if (found.record == nullptr) [[unlikely]]
      return note_absent(found.leaf, found.version);
    if (const Outcome outcome = prepare_unlink(); outcome != Outcome::done) [[unlikely]]
      return outcome;
    std::uint64_t* const words = copy_key<Words>(key);
    if (words == nullptr) [[unlikely]]
      return fail(Outcome::too_large);
    return remove_record(table, found.record, words, found.leaf, found.version);
  }

  /// Calls `function(key, row)` for the rows with `first` <= key <= `last` in ascending order until it returns false. Rows of this
  /// transaction's own insertions and updates are included. The keys up to the end of the scan are protected against phantoms. The function
  /// MAY read, update and remove rows. It MUST NOT insert into this table. Outcomes: done, or a failure (conflict, too_large).
  template <class Row, unsigned Words, class F>
  [[nodiscard]] Outcome scan(const Table<Row, Words>& table, const KeyOf<Words>& first, const KeyOf<Words>& last, F&& function) noexcept {
    return scan_in<true>(table, first, last, function);
  }
  /// As `scan`, in descending order.
  template <class Row, unsigned Words, class F>
  [[nodiscard]] Outcome scan_back(const Table<Row, Words>& table, const KeyOf<Words>& first, const KeyOf<Words>& last,
                                  F&& function) noexcept {
    return scan_in<false>(table, first, last, function);
  }

  /// Outcomes: committed, or conflict. After a failure, `commit` returns that failure. In each case the transaction is over.
  [[nodiscard]] Outcome commit() noexcept;
  /// Ends the transaction. Nothing remains of it. Has no effect after `commit`.
  void abort() noexcept;

  // --- For tests ---
  /// From now on, each commit that has locked its rows takes the next number of `counter`. The numbers of committed transactions are a
  /// serial order. MUST be null, the default, outside of tests: all cores write to the counter.
  void number_commits(std::atomic<std::uint64_t>* counter) noexcept { commit_counter_ = counter; }
  [[nodiscard]] std::uint64_t commit_number() const noexcept { return commit_number_; }
  /// Commits do not check what was read. A test of isolation MUST find this fault.
  void skip_validation(bool skip) noexcept { skips_validation_ = skip; }

 private:
  using Write = Worker::Write;

  template <bool Forward, class Row, unsigned Words, class F>
  Outcome scan_in(const Table<Row, Words>& table, const KeyOf<Words>& first, const KeyOf<Words>& last, F& function) noexcept {
    Key<Words> at = Forward ? first : last;
    if (last < first) return Outcome::done;
    Row row;
    for (;;) {
      const auto position = table.index_.template seek<Forward>(at);
      const Leaf<Words>& leaf = *position.leaf;
      const unsigned count = leaf.count.load(std::memory_order_acquire);
      // Forward: `entry` is the next one; backward: the next one is below it.
      unsigned entry = Forward ? leaf.keys.template rank<false>(count, at) : leaf.keys.template rank<true>(count, at);
      if (!add_leaf(&leaf, position.version)) [[unlikely]]
        return fail(Outcome::too_large);
      while (Forward ? entry < count : entry > 0) {
        const unsigned this_one = Forward ? entry++ : --entry;
        const Key<Words> key = leaf.keys.get(this_one);
        RecordHeader* const record = leaf.records[this_one].load(std::memory_order_acquire);
        if (!leaf.is_still(position.version)) [[unlikely]]
          return fail(Outcome::conflict);
        if (Forward ? last < key : key < first) return Outcome::done;
        const Row* seen = &row;
        if (const Write* const own = write_count_ == 0 ? nullptr : find_write(record); own != nullptr) {
          if (own->change == Worker::Change::remove || own->change == Worker::Change::cancelled) continue;
          seen = reinterpret_cast<const Row*>(own->row);
        } else {
          const std::uint64_t word = copy_row(*static_cast<const Record<Row>*>(record), row);
          if ((word & RecordHeader::locked) != 0) [[unlikely]]
            return fail(Outcome::conflict);
          if (!add_read(record, word)) [[unlikely]]
            return fail(Outcome::too_large);
          if ((word & RecordHeader::absent) != 0) continue;
        }
        if (!function(static_cast<const Key<Words>&>(key), *seen)) return Outcome::done;
        if (failed_ != Outcome::done) return failed_;  // an operation of the function
      }
      // An old mixture of entries could end too early.
      if (!leaf.is_still(position.version)) [[unlikely]]
        return fail(Outcome::conflict);
      if (!position.bounded) return Outcome::done;
      if (Forward ? last < position.bound : !(first < position.bound)) return Outcome::done;
      at = Forward ? position.bound : predecessor<Words>(position.bound);
    }
  }

  template <class Row, unsigned Words>
  [[gnu::always_inline]] Outcome update_found(Table<Row, Words>& table, const typename Index<Words>::Found& found, Row*& row) noexcept {
    if (found.record == nullptr) [[unlikely]]
      return note_absent(found.leaf, found.version);
    if (write_count_ != 0) {
      if (const Write* const own = find_write(found.record); own != nullptr) {
        if (own->change != Worker::Change::update && own->change != Worker::Change::insert) return Outcome::absent;
        row = reinterpret_cast<Row*>(own->row);
        return Outcome::found;
      }
    }
    auto* const record = static_cast<Record<Row>*>(found.record);
    RowWord* const copy = allocate_words(row_words<Row>);
    if (copy == nullptr || write_count_ == worker_.limits_.writes) [[unlikely]]
      return fail(Outcome::too_large);
    row = reinterpret_cast<Row*>(copy);
    const std::uint64_t word = copy_row(*record, *row);
    if ((word & RecordHeader::flags) != 0) [[unlikely]]
      return note_unreadable(record, word, found.leaf, found.version);
    add_write({.record = record,
               .seen = word,
               .row = copy,
               .key = nullptr,
               .table = &table,
               .words = row_words<Row>,
               .slot = 0,
               .change = Worker::Change::update});
    return Outcome::found;
  }
  template <class Row, unsigned Words, class F>
  [[gnu::always_inline]] Outcome insert_by(Table<Row, Words>& table, const KeyOf<Words>& key, const Row& row, F&& insert_record) noexcept {
    if (const Outcome outcome = prepare_unlink(); outcome != Outcome::done) [[unlikely]]
      return outcome;
    std::uint64_t* const words = copy_key<Words>(key);
    if (words == nullptr || write_count_ == worker_.limits_.writes) [[unlikely]]
      return fail(Outcome::too_large);
    auto* const record = new (std::nothrow) Record<Row>(RecordHeader::flags, row);
    if (record == nullptr) [[unlikely]]
      return fail(Outcome::no_memory);
    const auto inserted = insert_record(record);
    if (inserted.outcome != Outcome::done) [[unlikely]] {
      delete record;
      if (inserted.outcome == Outcome::no_memory) return fail(Outcome::no_memory);
      return insert_existing<Row>(inserted.existing, row);
    }
    add_write({.record = record,
               .seen = RecordHeader::flags,
               .row = reinterpret_cast<RowWord*>(&record->row),
               .key = words,
               .table = &table,
               .words = row_words<Row>,
               .slot = 0,
               .change = Worker::Change::insert});
    ++unlinks_;
    return leaf_count_ == 0 ? Outcome::done : note_leaf_change(inserted.change);
  }

  template <class Row>
  [[gnu::always_inline]] Outcome read_record(const Record<Row>& record, const Node* leaf, std::uint64_t version, Row& row) noexcept {
    const std::uint64_t word = copy_row(record, row);
    if ((word & RecordHeader::flags) != 0) [[unlikely]]
      return note_unreadable(&record, word, leaf, version);
    if (!add_read(&record, word)) [[unlikely]]
      return fail(Outcome::too_large);
    return Outcome::found;
  }
  template <class Row>
  static Outcome read_own(const Write& own, Row& row) noexcept {
    if (own.change != Worker::Change::update && own.change != Worker::Change::insert) return Outcome::absent;
    row = *reinterpret_cast<const Row*>(own.row);
    return Outcome::found;
  }

  /// The key exists. It is this transaction's own removal, or another record.
  template <class Row>
  [[gnu::noinline]] Outcome insert_existing(RecordHeader* existing, const Row& row) noexcept {
    Write* const own = find_write(existing);
    if (own == nullptr) return note_existing(existing);
    if (own->change == Worker::Change::update || own->change == Worker::Change::insert) return Outcome::exists;
    if (own->change == Worker::Change::remove) {
      RowWord* const copy = allocate_words(row_words<Row>);
      if (copy == nullptr) return fail(Outcome::too_large);
      own->row = copy;
      own->words = row_words<Row>;
    }
    *reinterpret_cast<Row*>(own->row) = row;
    own->change = own->change == Worker::Change::remove ? Worker::Change::update : Worker::Change::insert;
    return Outcome::done;
  }

  [[gnu::always_inline]] Write* find_write(const RecordHeader* record) const noexcept {
    for (unsigned slot = slot_of(record);; slot = (slot + 1) & slot_mask()) {
      const unsigned number = worker_.slots_[slot];
      if (number == 0) return nullptr;
      if (worker_.writes_[number - 1].record == record) return &worker_.writes_[number - 1];
    }
  }
  [[nodiscard]] unsigned slot_of(const RecordHeader* record) const noexcept {
    return static_cast<unsigned>((reinterpret_cast<std::uintptr_t>(record) * 0x9E37'79B9'7F4A'7C15U) >> worker_.slot_shift_);
  }
  [[nodiscard]] unsigned slot_mask() const noexcept { return (1U << (64U - worker_.slot_shift_)) - 1; }

  [[gnu::always_inline]] bool add_read(const RecordHeader* record, std::uint64_t seen) noexcept {
    if (read_count_ == worker_.limits_.reads) [[unlikely]]
      return false;
    worker_.reads_[read_count_++] = {record, seen};
    return true;
  }
  bool add_leaf(const Node* leaf, std::uint64_t version) noexcept;
  void add_write(const Write& write) noexcept;
  [[gnu::always_inline]] RowWord* allocate_words(std::size_t words) noexcept {
    if (arena_used_ + words > worker_.limits_.arena_bytes / sizeof(RowWord)) [[unlikely]]
      return nullptr;
    RowWord* const first = &worker_.arena_[arena_used_];
    arena_used_ += words;
    return first;
  }
  template <unsigned Words>
  std::uint64_t* copy_key(const Key<Words>& key) noexcept {
    RowWord* const words = allocate_words(Words);
    if (words != nullptr) std::memcpy(words, key.data(), sizeof key);
    return words;
  }

  Outcome fail(Outcome outcome) noexcept {
    failed_ = outcome;
    return outcome;
  }
  /// No record has the key, and none will as long as the leaf has this version.
  Outcome note_absent(const Node* leaf, std::uint64_t version) noexcept;
  /// The record is new, held for too long, or removed.
  Outcome note_unreadable(const RecordHeader* record, std::uint64_t word, const Node* leaf, std::uint64_t version) noexcept;
  Outcome note_existing(const RecordHeader* record) noexcept;
  /// This transaction's own insertion has changed a leaf, which it may have scanned.
  Outcome note_leaf_change(const LeafChange& change) noexcept;
  Outcome remove_record(TableBase& table, RecordHeader* record, std::uint64_t* key, const Node* leaf, std::uint64_t version) noexcept;
  /// Makes sure that one more record can be retired.
  Outcome prepare_unlink() noexcept;

  [[nodiscard]] bool lock_writes() noexcept;
  void unlock_writes(unsigned count) noexcept;
  [[nodiscard]] bool validate(std::uint64_t& version) const noexcept;
  void install(std::uint64_t version) noexcept;
  void unlink_and_retire(const Write& write) noexcept;
  void end() noexcept;

  Worker& worker_;
  unsigned read_count_ = 0, write_count_ = 0, leaf_count_ = 0;
  unsigned unlinks_ = 0;  // insertions and removals
  std::size_t arena_used_ = 0;
  Outcome failed_ = Outcome::done;  // done: none has failed
  bool begun_ = false, sorted_ = false, skips_validation_ = false;
  std::atomic<std::uint64_t>* commit_counter_ = nullptr;
  std::uint64_t commit_number_ = 0;
};

}  // namespace neap::transactions
