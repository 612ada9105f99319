// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/engine/transaction.hpp"

#include <algorithm>

#include "kernel/panic.hpp"

namespace neap::transactions {

namespace {
/// After so many conflicts without a commit, a core locks rows in the order of their addresses.
constexpr unsigned unordered_attempts = 2;
}  // namespace

void Transaction::begin() noexcept {
  require(!begun_, "a transaction begins while one runs");
  begun_ = true;
  failed_ = Outcome::done;
}

bool Transaction::add_leaf(const Node* leaf, std::uint64_t version) noexcept {
  if (leaf_count_ != 0 && worker_.leaves_[leaf_count_ - 1].leaf == leaf && worker_.leaves_[leaf_count_ - 1].seen == version) return true;
  if (leaf_count_ == worker_.limits_.leaves) return false;
  worker_.leaves_[leaf_count_++] = {leaf, version};
  return true;
}

void Transaction::add_write(const Write& write) noexcept {
  unsigned slot = slot_of(write.record);
  while (worker_.slots_[slot] != 0) slot = (slot + 1) & slot_mask();
  Write& entry = worker_.writes_[write_count_];
  entry = write;
  entry.slot = static_cast<std::uint16_t>(slot);
  worker_.slots_[slot] = static_cast<std::uint16_t>(++write_count_);
}

Outcome Transaction::note_absent(const Node* leaf, std::uint64_t version) noexcept {
  return add_leaf(leaf, version) ? Outcome::absent : fail(Outcome::too_large);
}

Outcome Transaction::note_unreadable(const RecordHeader* record, std::uint64_t word, const Node* leaf, std::uint64_t version) noexcept {
  if ((word & RecordHeader::locked) != 0) return fail(Outcome::conflict);
  // A removed row's record is about to be unlinked, and another core may then insert the key with another record. So the leaf is recorded.
  if (!add_read(record, word)) return fail(Outcome::too_large);
  return note_absent(leaf, version);
}

Outcome Transaction::note_existing(const RecordHeader* record) noexcept {
  const std::uint64_t word = unlocked_word(*record);
  // New, held for too long, or removed and not unlinked yet.
  if ((word & RecordHeader::flags) != 0) return fail(Outcome::conflict);
  return add_read(record, word) ? Outcome::exists : fail(Outcome::too_large);
}

Outcome Transaction::note_leaf_change(const LeafChange& change) noexcept {
  const unsigned count = leaf_count_;
  bool recorded = false;
  for (unsigned at = 0; at < count; ++at) {
    auto& [leaf, seen] = worker_.leaves_[at];
    if (leaf != change.leaf) continue;
    if (seen != change.before) return fail(Outcome::conflict);  // another core has changed the leaf
    seen = change.after;
    recorded = true;
  }
  if (recorded && change.right != nullptr && !add_leaf(change.right, change.right_version)) return fail(Outcome::too_large);
  return Outcome::done;
}

Outcome Transaction::prepare_unlink() noexcept {
  if (worker_.reserved_ > unlinks_) return Outcome::done;
  auto* const made = new (std::nothrow) Retirement;
  if (made == nullptr) return fail(Outcome::no_memory);
  made->next = worker_.reserve_;
  worker_.reserve_ = made;
  ++worker_.reserved_;
  return Outcome::done;
}

Outcome Transaction::remove_record(TableBase& table, RecordHeader* record, std::uint64_t* key, const Node* leaf,
                                   std::uint64_t version) noexcept {
  if (Write* const own = find_write(record); own != nullptr) {
    switch (own->change) {
      case Worker::Change::update:
        if (own->key == nullptr) {  // a row that was removed and inserted again has been counted before
          own->key = key;
          ++unlinks_;
        }
        own->change = Worker::Change::remove;
        return Outcome::done;
      case Worker::Change::insert:
        own->change = Worker::Change::cancelled;
        return Outcome::done;
      case Worker::Change::remove:
      case Worker::Change::cancelled:
        return Outcome::absent;
    }
  }
  if (write_count_ == worker_.limits_.writes) return fail(Outcome::too_large);
  const std::uint64_t word = unlocked_word(*record);
  if ((word & RecordHeader::flags) != 0) return note_unreadable(record, word, leaf, version);
  add_write({.record = record,
             .seen = word,
             .row = nullptr,
             .key = key,
             .table = &table,
             .words = 0,
             .slot = 0,
             .change = Worker::Change::remove});
  ++unlinks_;
  return Outcome::done;
}

// A new record has been locked since its insertion. A row that is not as it was when it was read makes a conflict, held or not.
bool Transaction::lock_writes() noexcept {
  sorted_ = worker_.conflicts_in_row_ >= unordered_attempts;
  if (sorted_) {
    for (unsigned at = 0; at < write_count_; ++at) worker_.order_[at] = static_cast<std::uint16_t>(at);
    std::sort(worker_.order_.get(), worker_.order_.get() + write_count_,
              [this](unsigned left, unsigned right) { return worker_.writes_[left].record < worker_.writes_[right].record; });
  }
  for (unsigned at = 0; at < write_count_; ++at) {
    Write& write = worker_.writes_[sorted_ ? worker_.order_[at] : at];
    if ((write.seen & RecordHeader::locked) != 0) continue;
    std::uint64_t expected = write.seen;
    if (!write.record->word.compare_exchange_strong(expected, expected | RecordHeader::locked, std::memory_order_seq_cst)) [[unlikely]] {
      unlock_writes(at);
      return false;
    }
  }
  return true;
}

void Transaction::unlock_writes(unsigned count) noexcept {
  for (unsigned at = 0; at < count; ++at) {
    const Write& write = worker_.writes_[sorted_ ? worker_.order_[at] : at];
    if ((write.seen & RecordHeader::locked) == 0) write.record->word.store(write.seen, std::memory_order_release);
  }
}

// The loads are sequentially consistent, as are the locks. So of two transactions, each of which has read what the other one has locked, at
// least one sees the other's lock.
bool Transaction::validate(std::uint64_t& version) const noexcept {
  std::uint64_t latest = version;
  const Worker::Read* const end = worker_.reads_.get() + read_count_;
  for (const Worker::Read* read = worker_.reads_.get(); read != end; ++read) {
    const std::uint64_t now = read->record->word.load(std::memory_order_seq_cst);
    if (now != read->seen) [[unlikely]] {
      if (now != (read->seen | RecordHeader::locked) || find_write(read->record) == nullptr) return false;
    }
    latest = std::max(latest, read->seen);
  }
  version = latest;
  for (unsigned at = 0; at < leaf_count_; ++at) {
    const auto [leaf, seen] = worker_.leaves_[at];
    if (leaf->version.load(std::memory_order_seq_cst) != seen) return false;
  }
  return true;
}

void Transaction::install(std::uint64_t version) noexcept {
  for (unsigned at = 0; at < write_count_; ++at) {
    const Write& write = worker_.writes_[at];
    switch (write.change) {
      case Worker::Change::update:
        store_row(reinterpret_cast<RowWord*>(write.record + 1), write.row, write.words);
        [[fallthrough]];
      case Worker::Change::insert:
        write.record->word.store(version, std::memory_order_release);
        break;
      case Worker::Change::remove:
        write.record->word.store(version | RecordHeader::absent, std::memory_order_release);
        break;
      case Worker::Change::cancelled:
        break;
    }
  }
}

void Transaction::unlink_and_retire(const Write& write) noexcept {
  write.table->unlink(write.key, write.record);
  auto* const retirement = static_cast<Retirement*>(worker_.reserve_);
  worker_.reserve_ = retirement->next;
  --worker_.reserved_;
  retirement->next = nullptr;
  retirement->record = write.record;
  retirement->reclaim = [](rcu::Node* node) noexcept {
    auto* const retired = static_cast<Retirement*>(node);
    ::operator delete(static_cast<void*>(retired->record));
    delete retired;
  };
  rcu::retire(*retirement);
}

Outcome Transaction::commit() noexcept {
  require(begun_, "a transaction commits that has not begun");
  if (failed_ != Outcome::done) {
    const Outcome outcome = failed_;
    abort();
    return outcome;
  }
  if (write_count_ != 0 && !lock_writes()) {
    failed_ = Outcome::conflict;
    abort();
    return Outcome::conflict;
  }
  if (commit_counter_ != nullptr) commit_number_ = commit_counter_->fetch_add(1, std::memory_order_seq_cst);
  const std::uint64_t epoch = worker_.epochs_.current();
  std::uint64_t version = worker_.last_version_;
  if (!validate(version) && !skips_validation_) {
    if (write_count_ != 0) unlock_writes(write_count_);
    failed_ = Outcome::conflict;
    abort();
    return Outcome::conflict;
  }
  if (write_count_ != 0) {
    // Later than all versions that this transaction has read or replaces, later than this core's last one, and not before the epoch.
    for (unsigned at = 0; at < write_count_; ++at) version = std::max(version, worker_.writes_[at].seen);
    version = std::max((version & ~RecordHeader::flags) + RecordHeader::version_step, epoch << RecordHeader::epoch_shift);
    worker_.last_version_ = version;
    install(version);
    if (unlinks_ != 0) {
      for (unsigned at = 0; at < write_count_; ++at) {
        const Write& write = worker_.writes_[at];
        if (write.change == Worker::Change::remove || write.change == Worker::Change::cancelled) unlink_and_retire(write);
      }
    }
  }
  worker_.conflicts_in_row_ = 0;
  worker_.counters_.committed.add();
  end();
  return Outcome::committed;
}

void Transaction::abort() noexcept {
  if (!begun_) return;
  if (unlinks_ != 0) {
    for (unsigned at = 0; at < write_count_; ++at) {
      const Write& write = worker_.writes_[at];
      if (write.change == Worker::Change::insert || write.change == Worker::Change::cancelled) unlink_and_retire(write);
    }
  }
  WorkerCounters& counters = worker_.counters_;
  switch (failed_) {
    case Outcome::conflict:
      ++worker_.conflicts_in_row_;
      counters.conflicts.add();
      break;
    case Outcome::no_memory:
      counters.no_memory.add();
      break;
    case Outcome::too_large:
      counters.too_large.add();
      break;
    default:
      worker_.conflicts_in_row_ = 0;
      counters.aborted.add();
  }
  end();
}

void Transaction::end() noexcept {
  for (unsigned at = 0; at < write_count_; ++at) worker_.slots_[worker_.writes_[at].slot] = 0;
  read_count_ = write_count_ = leaf_count_ = unlinks_ = 0;
  arena_used_ = 0;
  begun_ = false;
}

}  // namespace neap::transactions
