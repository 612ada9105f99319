// SPDX-License-Identifier: BSL-1.0
// The nodes of the index, and their version lock.
//
// Most operations only read the upper nodes, so reading a node must not write to its cache lines. A node therefore has a version: a reader
// loads it, reads the node and compares the version. A writer locks the node by a bit in the version and counts the version up when it
// unlocks (optimistic lock coupling: Leis et al., 2016). A reader may see any mixture of old and new entries until it has compared, so it
// MUST NOT follow a pointer before. Entries are atomic: acquire loads and release stores, which are plain moves on x86.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "apps/tpcc/engine/record.hpp"
#include "kernel/rcu.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::transactions {

/// The part of a node that has no keys. A leaf's version also protects transactions against phantoms: it changes with each insertion,
/// removal and split, and with nothing else.
struct Node : rcu::Node {
  static constexpr std::uint64_t locked = 1, obsolete = 2, step = 4;

  explicit Node(unsigned height) noexcept : level(static_cast<std::uint16_t>(height)) {}

  /// Returns the version once the node is not locked. Writers hold the lock for some hundred instructions.
  [[nodiscard]] std::uint64_t stable_version() const noexcept {
    std::uint64_t now = version.load(std::memory_order_acquire);
    while ((now & locked) != 0) [[unlikely]] {
      relax_cpu();
      now = version.load(std::memory_order_acquire);
    }
    return now;
  }
  [[nodiscard]] bool is_still(std::uint64_t seen) const noexcept { return version.load(std::memory_order_acquire) == seen; }
  /// Locks the node if its version is still `seen`.
  [[nodiscard]] bool try_lock(std::uint64_t seen) noexcept {
    return (seen & obsolete) == 0 && version.compare_exchange_strong(seen, seen | locked, std::memory_order_seq_cst);
  }
  /// Waits for the lock; returns the version before. The node MUST NOT become obsolete meanwhile.
  std::uint64_t lock() noexcept {
    for (;;) {
      const std::uint64_t seen = stable_version();
      if (try_lock(seen)) return seen;
    }
  }
  void unlock_unchanged(std::uint64_t seen) noexcept { version.store(seen, std::memory_order_release); }
  /// Returns the new version. The store is sequentially consistent. Otherwise two transactions, each of which inserts into a leaf that the
  /// other one has scanned, could both miss the other one's insertion when they validate.
  std::uint64_t unlock_changed(std::uint64_t seen) noexcept {
    version.store(seen + step, std::memory_order_seq_cst);
    return seen + step;
  }
  /// Unlocks a node that is no longer part of the index.
  void unlock_obsolete(std::uint64_t seen) noexcept { version.store((seen + step) | obsolete, std::memory_order_seq_cst); }

  std::atomic<std::uint64_t> version{step};
  std::atomic<std::uint32_t> count{0};  // keys in the node
  std::uint16_t level;                  // 0: a leaf; constant once the node is shared
  std::uint16_t next_expected = 0;      // the position after the last insertion; only the holder of the lock uses it
};

/// A look-up among half a million keys of one word passes three nodes. An insertion moves half a leaf's keys, so leaves are smaller than
/// the upper nodes, which rarely change.
constexpr std::size_t leaf_bytes = 1024, inner_bytes = 2048;

/// The keys of a node, in ascending order.
template <unsigned Words, unsigned Capacity>
struct Keys {
  std::atomic<std::uint64_t> words[Capacity][Words];

  [[gnu::always_inline]] Key<Words> get(unsigned at) const noexcept {
    Key<Words> key;
    for (unsigned word = 0; word < Words; ++word) key[word] = words[at][word].load(std::memory_order_acquire);
    return key;
  }
  void set(unsigned at, const Key<Words>& key) noexcept {
    for (unsigned word = 0; word < Words; ++word) words[at][word].store(key[word], std::memory_order_release);
  }
  [[gnu::always_inline]] bool equals(unsigned at, const Key<Words>& key) const noexcept {
    for (unsigned word = 0; word < Words; ++word) {
      if (words[at][word].load(std::memory_order_acquire) != key[word]) return false;
    }
    return true;
  }
  [[nodiscard]] bool is_less(unsigned at, const Key<Words>& key) const noexcept { return is_below<false>(words[at], key); }
  [[nodiscard]] bool is_at_most(unsigned at, const Key<Words>& key) const noexcept { return is_below<true>(words[at], key); }
  /// The number of keys below `key` (`OrEqual`: or equal) among the first `count`. Binary search whose steps have fixed sizes: the first
  /// comparison leaves a number of keys that is a power of two. So a step takes four instructions with keys of one word; a loop takes nine.
  template <bool OrEqual>
  [[gnu::always_inline]] unsigned rank(std::size_t count, const Key<Words>& key) const noexcept {
    static_assert(Capacity < 128);
    if (count == 0) [[unlikely]]
      return 0;
    const std::size_t window = std::bit_floor(count);
    const Entry* base = is_below<OrEqual>(words[window - 1], key) ? words + (count - window) : words;
    const auto halve = [&]<unsigned Half>(std::integral_constant<unsigned, Half>)
                           __attribute__((always_inline)) { base = is_below<OrEqual>(base[Half - 1], key) ? base + Half : base; };
    switch (window) {
      case 64:
        halve(std::integral_constant<unsigned, 32>());
        [[fallthrough]];
      case 32:
        halve(std::integral_constant<unsigned, 16>());
        [[fallthrough]];
      case 16:
        halve(std::integral_constant<unsigned, 8>());
        [[fallthrough]];
      case 8:
        halve(std::integral_constant<unsigned, 4>());
        [[fallthrough]];
      case 4:
        halve(std::integral_constant<unsigned, 2>());
        [[fallthrough]];
      case 2:
        halve(std::integral_constant<unsigned, 1>());
        [[fallthrough]];
      default:
        return static_cast<unsigned>(base - words) + (is_below<OrEqual>(*base, key) ? 1 : 0);
    }
  }

 private:
  using Entry = std::atomic<std::uint64_t>[Words];

  /// True if the entry is less than `key`, or, with `OrEqual`, not greater.
  template <bool OrEqual>
  [[gnu::always_inline]] static bool is_below(const Entry& entry, const Key<Words>& key) noexcept {
    for (unsigned word = 0; word + 1 < Words; ++word) {
      const std::uint64_t own = entry[word].load(std::memory_order_acquire);
      if (own != key[word]) return own < key[word];
    }
    const std::uint64_t own = entry[Words - 1].load(std::memory_order_acquire);
    return OrEqual ? own <= key[Words - 1] : own < key[Words - 1];
  }
};

template <unsigned Words>
struct Leaf : Node {
  static constexpr unsigned capacity = (leaf_bytes - sizeof(Node)) / (sizeof(std::uint64_t) * (Words + 1));
  Leaf() noexcept : Node(0) {}

  /// Moves the entries from `at` on by one place up and stores the new one. The node MUST be locked, or not be shared yet.
  void insert(unsigned at, const Key<Words>& key, RecordHeader* record) noexcept {
    const unsigned have = count.load(std::memory_order_relaxed);
    for (unsigned to = have; to > at; --to) copy(to, *this, to - 1);
    keys.set(at, key);
    records[at].store(record, std::memory_order_release);
    count.store(have + 1, std::memory_order_release);
    next_expected = static_cast<std::uint16_t>(at + 1);
  }
  void remove(unsigned at) noexcept {
    const unsigned have = count.load(std::memory_order_relaxed);
    for (unsigned to = at; to + 1 < have; ++to) copy(to, *this, to + 1);
    count.store(have - 1, std::memory_order_release);
    next_expected = 0;
  }
  /// Moves the entries from `at` on to the empty leaf `right`.
  void split(unsigned at, Leaf& right) noexcept {
    const unsigned have = count.load(std::memory_order_relaxed);
    for (unsigned from = at; from < have; ++from) right.copy(from - at, *this, from);
    right.count.store(have - at, std::memory_order_release);
    count.store(at, std::memory_order_release);
  }
  void copy(unsigned to, const Leaf& source, unsigned from) noexcept {
    for (unsigned word = 0; word < Words; ++word)
      keys.words[to][word].store(source.keys.words[from][word].load(std::memory_order_relaxed), std::memory_order_release);
    records[to].store(source.records[from].load(std::memory_order_relaxed), std::memory_order_release);
  }

  Keys<Words, capacity> keys;
  std::atomic<RecordHeader*> records[capacity];
};

/// Child i has the keys from key i - 1 (inclusive) to key i (exclusive). So there is one child more than there are keys.
template <unsigned Words>
struct Inner : Node {
  static constexpr unsigned capacity = (inner_bytes - sizeof(Node) - sizeof(Node*)) / (sizeof(std::uint64_t) * (Words + 1));
  explicit Inner(unsigned height) noexcept : Node(height) {}

  /// Inserts `key` at `at` and `child` to the right of it.
  void insert(unsigned at, const Key<Words>& key, Node* child) noexcept {
    const unsigned have = count.load(std::memory_order_relaxed);
    for (unsigned to = have; to > at; --to) copy(to, *this, to - 1);
    keys.set(at, key);
    children[at + 1].store(child, std::memory_order_release);
    count.store(have + 1, std::memory_order_release);
  }
  /// Removes child `at`. A neighbour takes over its keys. The node MUST have two children at least.
  void remove(unsigned at) noexcept {
    const unsigned have = count.load(std::memory_order_relaxed);
    if (at == 0) children[0].store(children[1].load(std::memory_order_relaxed), std::memory_order_release);
    for (unsigned to = at == 0 ? 0 : at - 1; to + 1 < have; ++to) copy(to, *this, to + 1);
    count.store(have - 1, std::memory_order_release);
  }
  /// Moves the keys above `at` to the empty node `right`, and returns the key at `at`, which separates the two.
  Key<Words> split(unsigned at, Inner& right) noexcept {
    const unsigned have = count.load(std::memory_order_relaxed);
    right.children[0].store(children[at + 1].load(std::memory_order_relaxed), std::memory_order_release);
    for (unsigned from = at + 1; from < have; ++from) right.copy(from - at - 1, *this, from);
    right.count.store(have - at - 1, std::memory_order_release);
    count.store(at, std::memory_order_release);
    return keys.get(at);
  }
  /// Copies a key and the child to the right of it.
  void copy(unsigned to, const Inner& source, unsigned from) noexcept {
    for (unsigned word = 0; word < Words; ++word)
      keys.words[to][word].store(source.keys.words[from][word].load(std::memory_order_relaxed), std::memory_order_release);
    children[to + 1].store(source.children[from + 1].load(std::memory_order_relaxed), std::memory_order_release);
  }

  Keys<Words, capacity> keys;
  std::atomic<Node*> children[capacity + 1];
};

/// Returns a key's predecessor. The key MUST NOT be zero.
template <unsigned Words>
constexpr Key<Words> predecessor(Key<Words> key) noexcept {
  for (unsigned word = Words; word-- > 0;) {
    if (key[word]-- != 0) break;
  }
  return key;
}

}  // namespace neap::transactions
