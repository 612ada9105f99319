// SPDX-License-Identifier: BSL-1.0
// A hash table that is read without a lock while others change it.
//
// Sessions, routes, names: every core looks them up at every request, and now and then one of them adds or takes one away. A reader here
// walks a chain of pointers and pays nothing else; it sees each entry whole, as it was before or after a change. What is removed is freed
// when no event that runs now can still hold it (rcu.hpp). Writers of one chain take turns by a lock that is held for a few instructions.
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
#include <new>
#include <utility>

#include "kernel/panic.hpp"
#include "kernel/rcu.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::rcu {

/// Buckets do not grow: choose about as many as there will be entries. Any core may call anything, within an event; a pointer that was
/// given out holds to the end of that event, not across `co_await`. Values do not change in place: they are replaced.
template <typename Key, typename Value, typename Hash = std::hash<Key>>
class Table {
 public:
  /// `buckets` is rounded up to a power of two. Throws `bad_alloc`.
  explicit Table(std::size_t buckets)
      : mask_(std::bit_ceil(std::max<std::size_t>(buckets, 1)) - 1), buckets_(new std::atomic<Entry*>[mask_ + 1] {}) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  /// Nobody uses it any more.
  ~Table() {
    for (std::size_t i = 0; i <= mask_; ++i) {
      for (Entry* entry = buckets_[i].load(std::memory_order_relaxed); entry != nullptr;) {
        delete std::exchange(entry, entry->next.load(std::memory_order_relaxed));
      }
    }
  }

  /// Null if there is no such entry.
  [[nodiscard]] const Value* find(const Key& key) const noexcept {
    for (const Entry* entry = buckets_[bucket(key)].load(std::memory_order_acquire); entry != nullptr;
         entry = entry->next.load(std::memory_order_acquire)) {
      if (entry->key == key) return &entry->value;
    }
    return nullptr;
  }

  /// False, and nothing changes, if the key is there already. Throws `bad_alloc`.
  bool insert(Key key, Value value) {
    auto fresh = std::make_unique<Entry>(std::move(key), std::move(value));
    const std::size_t at = bucket(fresh->key);
    const std::lock_guard hold(lock_of(at));
    if (*find_link(at, fresh->key) != nullptr) return false;
    publish(buckets_[at], *fresh.release(), buckets_[at].load(std::memory_order_relaxed));
    size_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  /// Adds the entry, or puts it in the place of the one with this key. True if it is a new one. Throws `bad_alloc`.
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

  /// True if it was there.
  bool erase(const Key& key) noexcept {
    const std::size_t at = bucket(key);
    const std::lock_guard hold(lock_of(at));
    std::atomic<Entry*>* const link = find_link(at, key);
    Entry* const old = *link;
    if (old == nullptr) return false;
    // The removed entry still leads to the rest of its chain: a reader that stands on it goes on.
    link->store(old->next.load(std::memory_order_relaxed), std::memory_order_release);
    size_.fetch_sub(1, std::memory_order_relaxed);
    retire(*old);
    return true;
  }

  /// Entries at about this moment.
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

  /// `visit(key, value)` for each entry; of those that others add or remove meanwhile some. Long tables make long events.
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

  // The lower bits of std::hash of a number are the number: others have to choose as well (Fibonacci hashing).
  [[nodiscard]] std::size_t bucket(const Key& key) const noexcept {
    const std::uint64_t mixed = static_cast<std::uint64_t>(Hash{}(key)) * 0x9E3779B97F4A7C15;
    return (mixed >> 32 ^ mixed) & mask_;
  }
  [[nodiscard]] SpinLock& lock_of(std::size_t at) noexcept { return locks_[at % locks_.size()].lock; }
  /// What points to the entry with this key, or the chain's end.
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
