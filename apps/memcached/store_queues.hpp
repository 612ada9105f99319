// SPDX-License-Identifier: BSL-1.0
// The queues of a shard, from which eviction takes items, and the way of an unlinked item to its grace period.
//
// Each stored item enters and leaves a queue under its shard's lock, so these functions are inlined into their callers. Only the store
// includes this file.
#pragma once

#include <new>
#include <utility>

#include "apps/memcached/store.hpp"

namespace neap::memcached {

/// Appends `item` as the newest of `queue`.
[[gnu::always_inline]] inline void Store::enqueue(Shard& shard, Shard::Queue& queue, Item& item) noexcept {
  Item* const newest = std::exchange(queue.newest, &item);
  item.place.order = {.newer = nullptr, .older = newest};
  if (newest != nullptr) {
    newest->place.order.newer = &item;
  } else {
    queue.oldest = &item;
    note_candidate(shard, item.hash);
  }
}

[[gnu::always_inline]] inline void Store::dequeue(Shard& shard, Shard::Queue& queue, Item& item) noexcept {
  const auto [newer, older] = item.place.order;
  (newer != nullptr ? newer->place.order.older : queue.newest) = older;
  if (older != nullptr) {
    older->place.order.newer = newer;
  } else {
    queue.oldest = newer;
    note_candidate(shard, item.hash);
  }
}

/// Removes `item`, whose footprint is `bytes`, from its queue.
[[gnu::always_inline]] inline void Store::dequeue(Shard& shard, Item& item, std::size_t bytes) noexcept {
  if (item.standing == Item::Standing::main) [[unlikely]] {
    shard.main_bytes -= bytes;
    dequeue(shard, shard.main, item);
  } else {
    dequeue(shard, shard.probation, item);
  }
}

/// Called after the item was unlinked. `bytes`: its footprint. Counts the item as retired, and reclaims it after a grace period.
[[gnu::always_inline]] inline void Store::retire(PerCore& own, Item& item, std::size_t bytes) noexcept {
  own.reserved_bytes.add(bytes);
  own.retired_bytes.add(bytes);
  if (own.reserved_bytes.value() > reserve_bytes_max_ || own.retired_bytes.value() > retired_bytes_core_max_) [[unlikely]]
    relieve_core(own);
  auto* const node = new (&item.place.retired) rcu::Node{};
  node->reclaim = &Store::reclaim;
  retire_(*node);
}

}  // namespace neap::memcached
