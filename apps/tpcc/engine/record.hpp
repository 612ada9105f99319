// SPDX-License-Identifier: BSL-1.0
// A row that transactions of several cores read and change, without a lock for readers.
//
// A reader MUST get a copy of one version of the row, and MUST later find out whether that version is still the current one. So each row
// has one word with a lock, a mark for rows that do not exist, and a version number that grows with each commit. This is the TID word of
// Silo (Tu et al., SOSP 2013). A reader loads the word, copies the row and loads the word again. Equal words without a lock mean that the
// copy is of one version.
//
// The row is copied by atomic 64-bit words, so a reader beside a writer is no data race. The loads are acquire loads and the stores are
// release stores: on x86 both are plain moves. A reader that has seen one word of a writer therefore also sees the writer's lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernel/spin_lock.hpp"

namespace neap::transactions {

/// A key of `Words` 64-bit words, compared lexicographically.
template <unsigned Words>
using Key = std::array<std::uint64_t, Words>;

/// The result of an operation of a transaction. After `conflict`, `no_memory` or `too_large` the transaction cannot commit. `abort` MUST
/// then be called, and the whole transaction MAY be repeated after `conflict`.
enum class Outcome : std::uint8_t {
  found,      ///< the row exists; it has been copied or may be changed
  done,       ///< the insertion, removal or scan is complete
  committed,  ///< the transaction is complete and other cores see it
  absent,     ///< no row has this key
  exists,     ///< a row has this key already; nothing was inserted
  conflict,   ///< another core's transaction is in the way
  no_memory,  ///< the heap has no memory for the row, for a node of the index or for the removal
  too_large,  ///< a limit of the worker (`Limits`) is reached
};

/// True if the transaction cannot commit after this outcome.
constexpr bool is_failure(Outcome outcome) noexcept { return outcome >= Outcome::conflict; }

/// The word in front of a row. Bit 0: locked by a commit. Bit 1: absent, i.e. not inserted yet, or removed. Above: 30 bits of sequence,
/// then 32 bits of epoch. A word with both bits is a new record whose transaction has not committed.
struct RecordHeader {
  static constexpr std::uint64_t locked = 1, absent = 2, flags = locked | absent, version_step = 4;
  static constexpr unsigned epoch_shift = 32;
  /// The word of a row that a loader has inserted. Every commit has a later version.
  static constexpr std::uint64_t loaded = std::uint64_t{1} << epoch_shift;

  explicit RecordHeader(std::uint64_t initial) noexcept : word(initial) {}
  std::atomic<std::uint64_t> word;
};

/// How often a reader looks at a locked record before it reports a conflict. A commit holds its locks for some thousand instructions.
constexpr unsigned lock_looks_max = 1000;

/// 64 bits of a row, whatever their type.
using RowWord [[gnu::may_alias]] = std::uint64_t;

template <class Row>
constexpr std::size_t row_words = sizeof(Row) / sizeof(RowWord);

template <class Row>
struct Record : RecordHeader {
  static_assert(std::is_trivially_copyable_v<Row>, "a row is copied word by word");
  static_assert(sizeof(Row) % sizeof(RowWord) == 0 && alignof(Row) == alignof(RowWord), "a row consists of 64-bit words");
  Record(std::uint64_t initial, const Row& with) noexcept : RecordHeader(initial), row(with) {}
  Row row;
};

/// Waits until no commit holds the record. Returns the word. The word has `locked` if the record is new, or if it is locked for too long.
inline std::uint64_t unlocked_word(const RecordHeader& record) noexcept {
  std::uint64_t word = record.word.load(std::memory_order_acquire);
  for (unsigned look = 0; (word & RecordHeader::flags) == RecordHeader::locked && look < lock_looks_max; ++look) {
    relax_cpu();
    word = record.word.load(std::memory_order_acquire);
  }
  return word;
}

/// Copies the row if it is present, and returns the word of the copied version. The row is not copied if the word has `absent` or `locked`;
/// `locked` is as for `unlocked_word`.
template <class Row>
[[gnu::always_inline]] inline std::uint64_t copy_row(const Record<Row>& record, Row& to) noexcept {
  for (;;) {
    std::uint64_t before = record.word.load(std::memory_order_acquire);
    if ((before & RecordHeader::flags) != 0) [[unlikely]] {
      before = unlocked_word(record);
      if ((before & RecordHeader::flags) != 0) return before;
    }
    const auto* const from = reinterpret_cast<const RowWord*>(&record.row);
    auto* const into = reinterpret_cast<RowWord*>(&to);
#pragma GCC unroll 8
    for (std::size_t at = 0; at < row_words<Row>; ++at) into[at] = __atomic_load_n(from + at, __ATOMIC_ACQUIRE);
    if (record.word.load(std::memory_order_acquire) == before) [[likely]]
      return before;
  }
}

/// Changes the row of a record that the caller has locked.
inline void store_row(RowWord* to, const RowWord* from, std::size_t words) noexcept {
#pragma GCC unroll 4
  for (std::size_t at = 0; at < words; ++at) __atomic_store_n(to + at, from[at], __ATOMIC_RELEASE);
}

}  // namespace neap::transactions
