// SPDX-License-Identifier: BSL-1.0
// The state of the transactions of one core: the sets of the transaction that runs, and counters.
//
// A core runs one transaction at a time, to its end within one event. So one set of arrays serves all of them, and an operation allocates
// nothing but new records. The arrays have fixed sizes: a transaction that needs more ends with `too_large`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "apps/tpcc/engine/epochs.hpp"
#include "apps/tpcc/engine/index_node.hpp"
#include "apps/tpcc/engine/record.hpp"
#include "kernel/counter.hpp"
#include "kernel/rcu.hpp"

namespace neap::transactions {

class TableBase;

/// The size of the largest transaction.
struct Limits {
  unsigned reads = 4096;                   ///< rows that are read, each time anew
  unsigned writes = 1024;                  ///< rows that are changed, inserted or removed; at most 32,767
  unsigned leaves = 512;                   ///< leaves of the indexes in scans and unsuccessful reads
  std::size_t arena_bytes = 256UL << 10U;  ///< copies of rows that are changed, and keys of rows that are inserted or removed
};

/// Counts of one core. The core itself writes them; every core MAY read them.
struct WorkerCounters {
  Counter committed;
  Counter conflicts;  ///< transactions that ended with `conflict`
  Counter aborted;    ///< transactions that the caller ended
  Counter no_memory;
  Counter too_large;
};

/// A record that has been unlinked and waits for its grace period.
struct Retirement : rcu::Node {
  RecordHeader* record = nullptr;
};

class Worker {
 public:
  /// Returns null without memory.
  [[nodiscard]] static std::unique_ptr<Worker> make(const Epochs& epochs, const Limits& limits = {}) noexcept;
  Worker& operator=(Worker&&) = delete;
  /// MUST NOT run while a transaction of this worker has begun.
  ~Worker();

  [[nodiscard]] const WorkerCounters& counters() const noexcept { return counters_; }

 private:
  friend class Transaction;

  enum class Change : std::uint8_t {
    update,
    remove,
    insert,
    cancelled,  // inserted and removed by the same transaction
  };
  struct Read {
    const RecordHeader* record;
    std::uint64_t seen;
  };
  struct LeafRead {
    const Node* leaf;
    std::uint64_t seen;
  };
  struct Write {
    RecordHeader* record;
    std::uint64_t seen;        // the record's word when it was read
    RowWord* row;              // the changed row: in the arena, or in a new record
    const std::uint64_t* key;  // null for an update
    TableBase* table;
    std::uint32_t words;  // of the row
    std::uint16_t slot;   // in `slots_`
    Change change;
  };

  Worker(const Epochs& epochs, const Limits& limits) noexcept : epochs_(epochs), limits_(limits) {}

  const Epochs& epochs_;
  const Limits limits_;
  std::uint64_t last_version_ = 0;
  std::unique_ptr<Read[]> reads_;
  std::unique_ptr<Write[]> writes_;
  std::unique_ptr<LeafRead[]> leaves_;
  std::unique_ptr<std::uint64_t[]> arena_;
  // A hash table from records to numbers of `writes_`, plus one; zero is free. It has at least twice as many slots as there are writes.
  std::unique_ptr<std::uint16_t[]> slots_;
  std::unique_ptr<std::uint16_t[]> order_;  // the writes in the order of their addresses
  unsigned slot_shift_ = 0;
  unsigned conflicts_in_row_ = 0;
  // Memory for the retirements of this transaction's insertions and removals: neither a commit nor an abort may fail.
  rcu::Node* reserve_ = nullptr;
  unsigned reserved_ = 0;
  WorkerCounters counters_;
};

}  // namespace neap::transactions
