// SPDX-License-Identifier: BSL-1.0
// A hash table that is read without a lock while other cores change it.
//
// Every core looks up sessions, routes or names at every request, and sometimes a core adds or removes an entry. A reader walks a chain of
// pointers and has no other cost. It sees each entry as it was before or after a change, never in an intermediate state. A removed entry is
// freed after a grace period (rcu.hpp). Writers of one chain exclude each other by a lock that is held for a few instructions.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "kernel/panic.hpp"
#include "kernel/rcu.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::rcu {

/// The number of buckets is fixed. It should be close to the expected number of entries. All functions may be called on any core, within an
/// event. A returned pointer is valid until the end of that event, not across `co_await`. Values do not change in place: they are replaced.
template <typename Key, typename Value, typename Hash = std::hash<Key>>
class Table {
 public:
  /// `buckets` is rounded up to a power of two. Throws `bad_alloc`.
  explicit Table(std::size_t buckets)
      : mask_(std::bit_ceil(std::max<std::size_t>(buckets, 1)) - 1), buckets_(new std::atomic<Entry*>[mask_ + 1] {}) {
    require(buckets <= std::size_t{1} << 32, "more buckets than the hash has bits for", buckets);
  }
  Table& operator=(Table&&) = delete;
  /// MUST NOT run while a core uses the table.
  ~Table() {
    for (std::size_t i = 0; i <= mask_; ++i) {
      for (Entry* entry = buckets_[i].load(std::memory_order_relaxed); entry != nullptr;) {
        delete std::exchange(entry, entry->next.load(std::memory_order_relaxed));
      }
    }
  }

  /// The value of `key`; null if there is no such entry.
  [[nodiscard]] const Value* find(const Key& key) const noexcept {
    for (const Entry* entry = buckets_[bucket(key)].load(std::memory_order_acquire); entry != nullptr;
         entry = entry->next.load(std::memory_order_acquire)) {
      if (entry->key == key) return &entry->value;
    }
    return nullptr;
  }

  /// Returns false and changes nothing if the key exists. Throws `bad_alloc`.
  bool insert(Key key, Value value) {
    auto fresh = std::make_unique<Entry>(std::move(key), std::move(value));
    const std::size_t at = bucket(fresh->key);
    const std::lock_guard hold(lock_of(at));
    if (*find_link(at, fresh->key) != nullptr) return false;
    publish(buckets_[at], *fresh.release(), buckets_[at].load(std::memory_order_relaxed));
    size_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  /// Adds the entry, or replaces the one with this key. True if the key is new. Throws `bad_alloc`.
  bool replace(Key key, Value value) {
    auto fresh = std::make_unique<Entry>(std::move(key), std::move(value));
    const std::size_t at = bucket(fresh->key);
    const std::lock_guard hold(lock_of(at));
    std::atomic<Entry*>* const link = find_link(at, fresh->key);
    Entry* const old = *link;
    publish(*link, *fresh.release(), old == nullptr ? nullptr : old->next.load(std::memory_order_relaxed));
    if (old != nullptr) {
      retire(*old);
      return false;
    }
    size_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  /// Removes the entry with this key; returns false if there is none.
  bool erase(const Key& key) noexcept {
    const std::size_t at = bucket(key);
    const std::lock_guard hold(lock_of(at));
    std::atomic<Entry*>* const link = find_link(at, key);
    Entry* const old = *link;
    if (old == nullptr) return false;
    // The removed entry still points to the rest of its chain, so a reader at this entry can continue.
    link->store(old->next.load(std::memory_order_relaxed), std::memory_order_release);
    size_.fetch_sub(1, std::memory_order_relaxed);
    retire(*old);
    return true;
  }

  /// Number of entries; approximate while other cores write.
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

  /// Calls `visit(key, value)` for each entry. An entry that another core adds or removes meanwhile may be missed. A long table makes a
  /// long event.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i <= mask_; ++i) {
      for (const Entry* entry = buckets_[i].load(std::memory_order_acquire); entry != nullptr;
           entry = entry->next.load(std::memory_order_acquire)) {
        visit(entry->key, entry->value);
      }
    }
  }

 private:
  struct Entry : Node {
    Entry(Key&& with_key, Value&& with_value) : key(std::move(with_key)), value(std::move(with_value)) { reclaim = &Entry::free; }
    static void free(Node* node) noexcept { delete static_cast<Entry*>(node); }
    std::atomic<Entry*> next{nullptr};
    const Key key;
    const Value value;
  };

  // `std::hash` of a number is the number itself, so a multiplication mixes its bits (Fibonacci hashing).
  [[nodiscard]] std::size_t bucket(const Key& key) const noexcept {
    const std::uint64_t mixed = static_cast<std::uint64_t>(Hash{}(key)) * 0x9E3779B97F4A7C15;
    return (mixed >> 32 ^ mixed) & mask_;
  }
  [[nodiscard]] SpinLock& lock_of(std::size_t at) noexcept { return locks_[at % locks_.size()].lock; }
  /// The link to the entry with this key; without such an entry, the last link of the chain.
  [[nodiscard]] std::atomic<Entry*>* find_link(std::size_t at, const Key& key) noexcept {
    std::atomic<Entry*>* link = &buckets_[at];
    while (Entry* const entry = link->load(std::memory_order_relaxed)) {
      if (entry->key == key) break;
      link = &entry->next;
    }
    return link;
  }
  static void publish(std::atomic<Entry*>& link, Entry& entry, Entry* next) noexcept {
    entry.next.store(next, std::memory_order_relaxed);
    link.store(&entry, std::memory_order_release);
  }
  static void retire(Entry& entry) noexcept { rcu::retire(entry); }

  struct alignas(64) Lock {
    SpinLock lock;
  };
  std::size_t mask_;
  std::unique_ptr<std::atomic<Entry*>[]> buckets_;
  std::array<Lock, 16> locks_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace neap::rcu
