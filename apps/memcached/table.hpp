// SPDX-License-Identifier: BSL-1.0
// The hash table: read without a lock, grown while it is in use.
//
// A cache grows from zero to millions of items, and no event may take the time to move all items. So writers fill a table of twice the
// size, a few buckets at a time, while readers use the old table. If an item moved while a reader looks at it, the reader would continue in
// the wrong chain. Therefore each item has two `next` pointers, and the new table uses the one that the old table does not. When all
// buckets are copied, the pointer to the current table is switched. The old array is freed after a grace period. Only then may the table
// grow again, because the next array uses the same `next` pointers as the old array.
//
// Writers hold their shard's lock. The low bits of the hash choose the shard, and every table has at least as many buckets as there are
// shards. So a lock covers whole chains in the old and in the new table.
#pragma once

#include <emmintrin.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "apps/memcached/item.hpp"
#include "kernel/panic.hpp"
#include "kernel/rcu.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memcached {

class Table {
  struct Buckets {
    rcu::Node node;
    Table* table;
    std::uint32_t mask;
    std::uint32_t parity;  // index of the `next` pointer that this array's chains use
    [[nodiscard]] std::atomic<Item*>* heads() noexcept { return reinterpret_cast<std::atomic<Item*>*>(this + 1); }
    [[nodiscard]] const std::atomic<Item*>* heads() const noexcept { return reinterpret_cast<const std::atomic<Item*>*>(this + 1); }
  };

 public:
  using Retire = void (*)(rcu::Node&) noexcept;

  /// `buckets` MUST be a power of two. Without memory the table is not `valid()`.
  Table(std::uint32_t buckets, Retire retire) noexcept;
  ~Table();
  Table& operator=(Table&&) = delete;
  [[nodiscard]] bool valid() const noexcept { return current_.load(std::memory_order_relaxed) != nullptr; }

  /// Returns the item with this key, or null. Under the shard's lock it is valid until the unlock, otherwise until the end of the event.
  [[nodiscard]] [[gnu::always_inline]] Item* find(std::string_view key, std::uint32_t hash) const noexcept {
    const Buckets* const buckets = current_.load(std::memory_order_acquire);
    Item* item = buckets->heads()[hash & buckets->mask].load(std::memory_order_acquire);
    while (item != nullptr) {
      if (is(*item, key, hash)) return item;
      item = item->next[buckets->parity].load(std::memory_order_acquire);
    }
    return nullptr;
  }

  /// True if `item` has this key.
  [[nodiscard]] [[gnu::always_inline]] static bool is(const Item& item, std::string_view key, std::uint32_t hash) noexcept {
    return item.hash == hash && item.key_bytes == key.size() && same_bytes(item.key_data(), key.data(), key.size());
  }

  /// A place in a chain: the pointer to an item there. MUST be used under the shard's lock only.
  class Place {
   public:
    [[nodiscard]] Item* item() const noexcept { return link_->load(std::memory_order_relaxed); }
    /// Moves on to the place behind `item`. If `item` was at this place and was removed, the place need not be changed, but it MAY be.
    void move_behind(Item& item) noexcept { link_ = &item.next[buckets_->parity]; }
    /// Afterwards, `replace` does not rely on the place.
    void forget() noexcept { buckets_ = nullptr; }

   private:
    friend class Table;
    Buckets* buckets_ = nullptr;
    std::atomic<Item*>* link_ = nullptr;
  };
  /// Returns the first place of the chain of `hash`. The current table is read once, because another core may switch tables meanwhile.
  [[nodiscard]] Place first_place(std::uint32_t hash) const noexcept {
    Place place;
    place.buckets_ = current_.load(std::memory_order_acquire);
    place.link_ = &place.buckets_->heads()[hash & place.buckets_->mask];
    return place;
  }

  // The following functions change chains. The caller MUST hold the lock of the item's shard.
  void insert(Item& item) noexcept;
  /// Replaces `old` by `item`. At every moment, a reader finds either `old` or `item`.
  void replace(Item& old, Item& item) noexcept;
  /// The same, with fewer instructions. `place` MUST be where `old` was found since the lock was taken, or be forgotten. If an item that
  /// was in the chain before `old` has been removed since then, the place MUST be forgotten.
  void replace_at(const Place& place, Item& old, Item& item) noexcept;
  void remove(Item& item) noexcept;

  /// Starts to grow if `items` are too many, and copies a few buckets if the table is growing. MUST be called without a lock.
  template <typename LockOf>
  void grow_a_little(std::uint64_t items, LockOf lock_of) noexcept {
    if (growing_.load(std::memory_order_relaxed) == nullptr && !wants_to_grow(items)) return;
    grow_step(items, [](void* context, std::uint32_t hash) -> SpinLock& { return (*static_cast<LockOf*>(context))(hash); }, &lock_of);
  }

  /// Calls `visit(Item&)` for each item of one chain, and returns the position of the next chain. A pass begins at position 0 and ends at
  /// `end_position`. `visit` MAY remove the item that it gets. Positions are the bits of a hash in reverse order. So when the table has
  /// grown between two calls, the chains before the position have exactly the items that the pass has visited already.
  template <typename Visit>
  [[nodiscard]] std::uint64_t visit_chain(std::uint64_t position, Visit visit) const noexcept {
    const Buckets* const buckets = current_.load(std::memory_order_acquire);
    const std::uint32_t bucket = reversed(static_cast<std::uint32_t>(position)) & buckets->mask;
    for (Item* item = buckets->heads()[bucket].load(std::memory_order_acquire); item != nullptr;) {
      Item* const next = item->next[buckets->parity].load(std::memory_order_acquire);
      visit(*item);
      item = next;
    }
    return position + end_position / (std::uint64_t{buckets->mask} + 1);
  }
  static constexpr std::uint64_t end_position = std::uint64_t{1} << 32;

  [[nodiscard]] std::uint32_t bucket_count() const noexcept { return current_.load(std::memory_order_acquire)->mask + 1; }
  [[nodiscard]] bool is_growing() const noexcept { return growing_.load(std::memory_order_relaxed) != nullptr; }

 private:
  /// Compares without a call, except for keys of less than 8 bytes. The last vector or word overlaps the one before it.
  [[nodiscard]] [[gnu::always_inline]] static bool same_bytes(const char* one, const char* other, std::size_t bytes) noexcept {
    if (bytes >= 16) [[likely]] {
      const auto load = [](const char* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
      const std::size_t last = bytes - 16;
      __m128i same = _mm_cmpeq_epi8(load(one + last), load(other + last));
      for (std::size_t at = 0; at < last; at += 16) same = _mm_and_si128(same, _mm_cmpeq_epi8(load(one + at), load(other + at)));
      return _mm_movemask_epi8(same) == 0xFFFF;
    }
    if (bytes < 8) return std::memcmp(one, other, bytes) == 0;
    std::uint64_t first[2], last[2];
    std::memcpy(&first[0], one, 8);
    std::memcpy(&first[1], other, 8);
    std::memcpy(&last[0], one + bytes - 8, 8);
    std::memcpy(&last[1], other + bytes - 8, 8);
    return ((first[0] ^ first[1]) | (last[0] ^ last[1])) == 0;
  }
  /// Reverses the order of the bits.
  [[nodiscard]] static constexpr std::uint32_t reversed(std::uint32_t bits) noexcept {
    bits = (bits >> 1 & 0x5555'5555) | (bits & 0x5555'5555) << 1;
    bits = (bits >> 2 & 0x3333'3333) | (bits & 0x3333'3333) << 2;
    bits = (bits >> 4 & 0x0F0F'0F0F) | (bits & 0x0F0F'0F0F) << 4;
    return std::byteswap(bits);
  }
  static constexpr unsigned buckets_a_step = 8;  // copied at each write: the new table is complete long before it is too small
  static constexpr std::uint32_t buckets_max = 1u << 30;

  using LockFunction = SpinLock& (*)(void* context, std::uint32_t hash);

  static Buckets* allocate(Table* table, std::uint32_t buckets, std::uint32_t parity) noexcept;
  [[nodiscard]] bool wants_to_grow(std::uint64_t items) const noexcept { return items > std::uint64_t{bucket_count()} * 3 / 2; }
  void grow_step(std::uint64_t items, LockFunction lock_of, void* context) noexcept;
  void move_bucket(Buckets& from, Buckets& to, std::uint32_t bucket) noexcept;
  template <typename Change>
  void in_every_array(std::uint32_t hash, Change change) noexcept;
  static void unlink(Buckets& buckets, Item& item, Item* instead) noexcept;

  // Each request reads these two pointers. They are written only when the table grows.
  std::atomic<Buckets*> current_{nullptr};
  std::atomic<Buckets*> growing_{nullptr};
  std::atomic<std::uint32_t> moved_{0};       // buckets of `current_` that are copied to `growing_`
  std::atomic<bool> old_array_waits_{false};  // the old array waits for its grace period
  std::uint64_t refused_at_items_ = 0;        // items when there was no memory for a larger array; growth is retried at twice as many items
  SpinLock growth_;
  Retire retire_;
};

// --- Changes of chains -------------------------------------------------------------------------------------------------------------------
/// `growing_` is read before `current_`. If the new array becomes current in between, both reads return the new array, which is then
/// changed once. In the opposite order, the reads could return only the old array, and the change would be lost. No bucket of this shard
/// can be copied meanwhile, because the caller holds the shard's lock.
template <typename Change>
[[gnu::always_inline]] inline void Table::in_every_array(std::uint32_t hash, Change change) noexcept {
  Buckets* const growing = growing_.load(std::memory_order_acquire);
  Buckets* const current = current_.load(std::memory_order_acquire);
  change(*current);
  if (growing != nullptr && growing != current && (hash & current->mask) < moved_.load(std::memory_order_acquire)) change(*growing);
}

inline void Table::insert(Item& item) noexcept {
  in_every_array(item.hash, [&](Buckets& buckets) {
    std::atomic<Item*>& head = buckets.heads()[item.hash & buckets.mask];
    item.next[buckets.parity].store(head.load(std::memory_order_relaxed), std::memory_order_relaxed);
    head.store(&item, std::memory_order_release);
  });
}

inline void Table::unlink(Buckets& buckets, Item& item, Item* instead) noexcept {
  std::atomic<Item*>* link = &buckets.heads()[item.hash & buckets.mask];
  while (Item* const at = link->load(std::memory_order_relaxed)) {
    if (at == &item) {
      Item* const rest = item.next[buckets.parity].load(std::memory_order_relaxed);
      if (instead != nullptr) instead->next[buckets.parity].store(rest, std::memory_order_relaxed);
      link->store(instead != nullptr ? instead : rest, std::memory_order_release);
      return;
    }
    link = &at->next[buckets.parity];
  }
  require(false, "memcached: a linked item is not in its chain", item.hash);
}

/// If the table is not growing, and its array is that of `place`, then no other array has the chain (see `in_every_array`).
[[gnu::always_inline]] inline void Table::replace_at(const Place& place, Item& old, Item& item) noexcept {
  const bool grows = growing_.load(std::memory_order_acquire) != nullptr;
  if (grows || current_.load(std::memory_order_acquire) != place.buckets_) [[unlikely]]
    return replace(old, item);
  require(place.item() == &old, "memcached: an item is replaced at its place", old.hash);
  const std::uint32_t parity = place.buckets_->parity;
  item.next[parity].store(old.next[parity].load(std::memory_order_relaxed), std::memory_order_relaxed);
  place.link_->store(&item, std::memory_order_release);
}

}  // namespace neap::memcached
