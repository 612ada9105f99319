// SPDX-License-Identifier: BSL-1.0
// What the store does when memory is short, before the next command rather than in the middle of one.
//
// Memory of a replaced or evicted item is free after a grace period, so no command can obtain it for itself. Two shortages follow:
//
// Replaced items wait. A client that pipelines `append` on a large value retires a copy with each command. When more than
// `retired_bytes_max` waits, further commands wait too: their session ends its event, and the grace period ends with it.
//
// Memory lies in pieces. Slabs that keep one item each are no room for a large value, although the limit is not reached. Each core has
// spare blocks, one with room for the largest item. An allocation that fails takes the smallest that will do, and no further command begins
// before the block is there again. To get it back, items are evicted in their usual order; small ones that were used are copied instead. So
// the slabs that the hand has passed become empty, however few of their items stay. The price is a copy for each of them, and only while
// memory is short.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "apps/memcached/store.hpp"
#include "kernel/machine.hpp"

namespace neap::memcached {

void* Store::allocate_bytes(std::size_t bytes) noexcept {
  void* const memory = memory_.allocate(bytes);
  if (memory == nullptr) [[unlikely]]
    return allocate_from_spare(bytes);
  if (memory_.free_bytes != nullptr && memory_.free_bytes() < memory_.free_bytes_least) [[unlikely]]
    raise_pressure();
  return memory;
}

/// This core's blocks first. Small items need a slab, and another core may take the block that is released for it: then the other cores'
/// blocks have to do.
void* Store::allocate_from_spare(std::size_t bytes) noexcept {
  raise_pressure();
  const unsigned own = machine::this_core();
  for (unsigned step = 0; step < cores_; ++step) {
    for (std::size_t size = 0; size < spare_bytes().size(); ++size) {
      std::atomic<void*>& place = spares_[(own + step) % cores_].blocks[size];
      if (bytes > spare_bytes()[size]) continue;
      void* const block = place.exchange(nullptr, std::memory_order_seq_cst);
      raise_pressure();  // after the exchange, so that `relieve` misses no block
      if (block == nullptr) continue;
      if (memory_.shrink != nullptr && memory_.shrink(block, bytes)) return block;
      memory_.release(block);
      if (void* const memory = memory_.allocate(bytes); memory != nullptr) return memory;
    }
  }
  return nullptr;
}

/// True if commands may begin.
bool Store::relieve(Seconds now) noexcept {
  const auto wait = [&] {
    waits_.fetch_add(1, std::memory_order_relaxed);
    return false;
  };
  if (retired_bytes() > retired_bytes_max_ / 2) return wait();
  if (!relief_.try_lock()) return wait();  // another core is at it
  const std::lock_guard unlock(relief_, std::adopt_lock);
  std::uint32_t reasons = pressure_.load(std::memory_order_seq_cst);
  if (refill_spares() && retired_bytes() <= retired_bytes_max_) {
    relief_round_ = 0;
    // If another core took a block or retired more meanwhile, that is a new reason.
    return pressure_.compare_exchange_strong(reasons, 0, std::memory_order_seq_cst) || wait();
  }
  if (retired_bytes() != 0 || ++relief_round_ % relief_rounds != 0) return wait();
  if (make_room(now)) return wait();
  return true;  // the cache is empty: memory is in other hands, and waiting brings none
}

bool Store::refill_spares() noexcept {
  for (unsigned core = 0; core < cores_; ++core) {
    for (std::size_t size = 0; size < spare_bytes().size(); ++size) {
      std::atomic<void*>& place = spares_[core].blocks[size];
      if (place.load(std::memory_order_seq_cst) != nullptr) continue;
      void* const block = memory_.allocate(spare_bytes()[size]);
      if (block == nullptr) return false;
      place.store(block, std::memory_order_release);  // only this function, under its lock, stores a block
    }
  }
  return memory_.free_bytes == nullptr || memory_.free_bytes() >= memory_.free_bytes_least + spare_bytes_;
}

/// Evicts as much as a spare block has, within the bounds of one event. False if nothing is stored.
bool Store::make_room(Seconds now) noexcept {
  moves_left_.store(counters().items, std::memory_order_relaxed);
  const std::size_t used = used_bytes();
  for (unsigned count = 0; count < relief_evictions && retired_bytes() <= retired_bytes_max_ / 2; ++count) {
    if (!evict_one(now)) return count != 0;
    if (used - std::min(used, used_bytes()) >= spare_bytes_) break;
  }
  return true;
}

/// Under the shard's lock: a copy takes the place of `item`, as the newest of its shard and not yet used again. False for an
/// item that lies in no slab, or without memory.
bool Store::move(Shard& shard, Item& item) noexcept {
  const std::size_t bytes = item_bytes(item);
  if (bytes > moved_bytes_max) return false;
  void* const memory = memory_.allocate(bytes);
  if (memory == nullptr) return false;
  auto* const copy = new (memory) Item{};
  copy->hash = item.hash;
  copy->value_bytes = item.value_bytes;
  copy->expires.store(item.expires.load(std::memory_order_relaxed), std::memory_order_relaxed);
  copy->accessed.store(item.accessed.load(std::memory_order_relaxed) & ~std::uint32_t{1}, std::memory_order_relaxed);
  copy->cas = item.cas;
  copy->flags = item.flags;
  copy->references.store(1, std::memory_order_relaxed);
  copy->store = this;
  copy->key_bytes = item.key_bytes;
  copy->fetched = true;
  std::memcpy(copy->key_data(), item.key_data(), bytes - sizeof(Item));
  used_bytes_.fetch_add(footprint(item), std::memory_order_relaxed);
  enqueue(shard, *copy);
  table_.replace(item, *copy);
  dequeue(shard, item);
  retire(item);
  ++shard.counters.moved;
  const std::uint64_t left = moves_left_.load(std::memory_order_relaxed);
  if (left != 0) moves_left_.store(left - 1, std::memory_order_relaxed);  // a count lost between two cores makes no difference
  return true;
}

}  // namespace neap::memcached
