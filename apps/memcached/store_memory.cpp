// SPDX-License-Identifier: BSL-1.0
// The store's room: what goes when it is full, and when memory really comes back.
//
// An item passes through three accounts. `used`: being received, or linked. `retired`: unlinked, readers of this moment may still see it.
// `held`: past that, but replies on their way refer to it. `used + held` stays under the limit, so a crowd of slow readers makes the cache
// smaller, not the machine fail. `retired` has a bound of its own, and eviction cannot make it less: commands wait for it
// (store_relief.cpp).
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

#include "apps/memcached/store.hpp"

namespace neap::memcached {

bool Store::reserve(std::size_t bytes, Seconds now) noexcept {
  std::size_t used = used_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  while (used + held_bytes() > memory_bytes_) {
    if (!evict_one(now)) {
      used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
      return false;
    }
    used = used_bytes();
  }
  return true;
}

/// Takes the item that the hands of all shards find the longest unused. False if nothing is linked anywhere.
bool Store::evict_one(Seconds now) noexcept {
  const std::uint32_t first = next_victim_.fetch_add(1, std::memory_order_relaxed);  // shards with items of one second take turns
  for (std::uint32_t attempt = 0; attempt < shard_count_; ++attempt) {
    Seconds best_used = nothing_there;
    std::uint32_t best = 0;
    for (std::uint32_t step = 0; step < shard_count_; ++step) {
      const std::uint32_t shard = (first + step) & (shard_count_ - 1);
      const Seconds used = oldest_used_[shard].load(std::memory_order_relaxed);
      if (used < best_used) {
        best_used = used;
        best = shard;
      }
    }
    if (best_used == nothing_there) return false;
    if (evict_from(shards_[best], now)) return true;  // else another core emptied it meanwhile
  }
  return false;
}

bool Store::evict_from(Shard& shard, Seconds now) noexcept {
  const std::lock_guard lock(shard.lock);
  for (unsigned look = 0; shard.oldest != nullptr; ++look) {
    Item& item = *shard.oldest;
    if (is_dead(item, now)) {
      take_back(shard, item);
      return true;
    }
    const std::uint32_t accessed = item.accessed.load(std::memory_order_relaxed);
    const bool used = (accessed & 1) != 0;
    if (used && look < second_chances_a_look) {
      ++shard.counters.second_chances;
      if (moves_left_.load(std::memory_order_relaxed) != 0 && move(shard, item)) continue;
      item.accessed.store(accessed & ~std::uint32_t{1}, std::memory_order_relaxed);
      item.fetched = true;
      dequeue(shard, item);
      enqueue(shard, item);
      continue;
    }
    evict(shard, item, used);
    return true;
  }
  return false;
}

void Store::evict(Shard& shard, Item& item, bool used) noexcept {
  ++shard.counters.evictions;
  if (!used && !item.fetched) ++shard.counters.evicted_unfetched;
  ++shard.sizes[size_class(footprint(item))].evictions;
  unlink(shard, item);
}

/// Unlinks what is expired or flushed.
void Store::take_back(Shard& shard, Item& item) noexcept {
  ++shard.counters.reclaimed;
  if (!item.fetched && (item.accessed.load(std::memory_order_relaxed) & 1) == 0) ++shard.counters.expired_unfetched;
  unlink(shard, item);
}

/// Tells those who evict how long this shard's next candidate has been unused.
void Store::note_oldest(Shard& shard) noexcept {
  const Item* const oldest = shard.oldest;
  const Seconds used = oldest != nullptr ? oldest->accessed.load(std::memory_order_relaxed) >> 1 : nothing_there;
  std::atomic<Seconds>& noted = oldest_used_[static_cast<std::size_t>(&shard - shards_.get())];
  if (noted.load(std::memory_order_relaxed) != used) noted.store(used, std::memory_order_relaxed);
}

// --- The way back to the allocator -------------------------------------------------------------------------------------------------------

/// Unlinked: it counts as gone, and is reclaimed once no event can still see it.
void Store::retire(Item& item) noexcept {
  const std::size_t bytes = footprint(item);
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  const std::size_t waiting = retired_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (waiting > retired_bytes_max_) [[unlikely]]
    raise_pressure();
  auto* const node = new (&item.place.retired) rcu::Node{};
  node->reclaim = &Store::reclaim;
  retire_(*node);
}

void Store::reclaim(rcu::Node* node) noexcept {
  auto& item = *reinterpret_cast<Item*>(reinterpret_cast<std::byte*>(node) - offsetof(Item, place));
  Store& store = *item.store;
  const std::size_t bytes = footprint(item);
  store.retired_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  if (item.references.load(std::memory_order_acquire) == 1) {  // only ours is left, and nobody can find the item to take another
    store.free(item);
    return;
  }
  item.counted_as_held = true;
  store.held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  release_item(&item);
}

/// The last reference is gone: of an item that never was in the table, or of one that only replies still held.
void Store::release(Item& item) noexcept {
  (item.counted_as_held ? held_bytes_ : used_bytes_).fetch_sub(footprint(item), std::memory_order_relaxed);
  free(item);
}

void Store::free(Item& item) noexcept {
  item.~Item();
  memory_.release(&item);
}

// --- What it tells about itself ----------------------------------------------------------------------------------------------------------

StoreCounters Store::counters() const noexcept {
  StoreCounters sum;
  for (std::uint32_t index = 0; index < shard_count_; ++index) {
    Shard& shard = shards_[index];
    const std::lock_guard lock(shard.lock);
    sum.items += shard.counters.items;
    sum.items_ever += shard.counters.items_ever;
    sum.bytes += shard.counters.bytes;
    sum.evictions += shard.counters.evictions;
    sum.evicted_unfetched += shard.counters.evicted_unfetched;
    sum.expired_unfetched += shard.counters.expired_unfetched;
    sum.reclaimed += shard.counters.reclaimed;
    sum.second_chances += shard.counters.second_chances;
    sum.chain_evictions += shard.counters.chain_evictions;
    sum.moved += shard.counters.moved;
  }
  sum.out_of_memory = refused_.load(std::memory_order_relaxed);
  sum.waits = waits_.load(std::memory_order_relaxed);
  return sum;
}

void Store::reset_counters() noexcept {
  for (std::uint32_t index = 0; index < shard_count_; ++index) {
    Shard& shard = shards_[index];
    const std::lock_guard lock(shard.lock);
    shard.counters = {.items = shard.counters.items, .bytes = shard.counters.bytes};
    for (SizeClass& size : shard.sizes) size.evictions = 0;
  }
  refused_.store(0, std::memory_order_relaxed);
  waits_.store(0, std::memory_order_relaxed);
}

std::array<Store::SizeClass, Store::size_classes> Store::sizes() const noexcept {
  std::array<SizeClass, size_classes> sum{};
  for (std::uint32_t index = 0; index < shard_count_; ++index) {
    Shard& shard = shards_[index];
    const std::lock_guard lock(shard.lock);
    for (unsigned at = 0; at < size_classes; ++at) {
      sum[at].items += shard.sizes[at].items;
      sum[at].bytes += shard.sizes[at].bytes;
      sum[at].evictions += shard.sizes[at].evictions;
    }
  }
  return sum;
}

Seconds Store::oldest_age(Seconds now) const noexcept {
  Seconds oldest = nothing_there;
  for (std::uint32_t index = 0; index < shard_count_; ++index) {
    oldest = std::min(oldest, oldest_used_[index].load(std::memory_order_relaxed));
  }
  return oldest >= now ? 0 : now - oldest;
}

}  // namespace neap::memcached
