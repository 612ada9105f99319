// SPDX-License-Identifier: BSL-1.0
// Relief when memory is short. It is done before the next command, not within a command.
//
// The memory of a replaced or evicted item is free only after a grace period, so a command cannot evict to make room for its own item.
// There are three shortages:
//
// Retired items. A client that pipelines `append` on a large value retires a copy with each command. When more than half of
// `retired_bytes_max` is retired, further commands wait: their session ends its event, so that the grace period can end.
//
// A large item in a full store of small items. Evicting thousands of items for it in one event would delay all other clients of the core.
// So a large item may exceed the limit, by a bounded amount, and later commands evict. A command with an item above `long_item_bytes` waits
// until the excess would be below that bound. Other commands may take the room that it waits for, but each of them evicts a step, too.
//
// Fragmentation. Slabs that keep one item each have no room for a longer value or its pieces, although the limit is not reached. Each core
// has spare blocks of one size: room for a piece of the largest value, and for a slab. The first block is only for small items.
// The other blocks hold 1 MiB, or less if the largest item is smaller. The blocks of all cores together have room for the largest item.
// An allocation that fails uses a block, and no further command with a larger item begins before the block is replaced. To replace a block,
// items are evicted in their usual order. Small items that were used recently are copied to new memory instead of evicted. So slabs whose
// items were examined become empty, even if some of their items stay in the cache.
//
// Relief is done in steps of `step_evictions` items, one step for each command that allocates or waits. A command with a small item (from a
// slab) performs a step and then begins. A command with a larger item waits until the shortage ends.
#include <cstring>
#include <mutex>
#include <new>

#include "apps/memcached/store.hpp"
#include "apps/memcached/store_queues.hpp"
#include "kernel/machine.hpp"

namespace neap::memcached {

static_assert(Item::contiguous_bytes(key_bytes_max, contiguous_bytes_max, Item::own_cas_bytes) <= Pieces::bytes_min);  // fits a spare block

/// Returns the bytes of a core's spare blocks without the first one, before the share of the limit bounds them.
std::size_t Store::spare_bytes_wanted() const noexcept {
  const std::size_t largest =
      is_in_pieces(value_bytes_max_) ? value_bytes_max_ : footprint(key_bytes_max, value_bytes_max_, Item::own_cas_bytes);
  const std::size_t block = std::max(Pieces(value_bytes_max_).bytes, spare_block_bytes_min);
  const std::size_t wanted = std::max(std::min(largest, spare_bytes_core), largest / cores_);
  return (wanted + block - 1) / block * block;
}

/// Allocates from a spare block. Tries this core's blocks first, then those of other cores. For a small item, the heap makes a slab of the
/// released block. The rest of a block is free for the next piece. If another core takes the block's memory first, the next block is tried.
void* Store::allocate_from_spare(std::size_t bytes) noexcept {
  raise_pressure();
  const unsigned own = machine::this_core();
  for (unsigned step = 0; step < cores_; ++step) {
    for (unsigned index = bytes > slab_item_bytes_max ? 1 : 0; index < spare_blocks_; ++index) {
      std::atomic<void*>& place = parts_[(own + step) % cores_].blocks[index];
      if (place.load(std::memory_order_relaxed) == nullptr || bytes > spare_block_bytes_) continue;
      void* const block = place.exchange(nullptr, std::memory_order_seq_cst);
      raise_pressure();  // after the exchange, so that a `relieve` on another core does not end the shortage before this block is replaced
      if (block == nullptr) continue;
      if (memory_.shrink != nullptr && memory_.shrink(block, bytes)) return block;
      memory_.release(block);
      if (void* const memory = memory_.allocate(bytes); memory != nullptr) return memory;
    }
  }
  return nullptr;
}

/// Returns true if a command that allocates `bytes` may begin.
bool Store::relieve(std::size_t bytes, Seconds now) noexcept {
  PerCore& own = own_part();
  give_back_reserve(own);
  if (bytes > long_item_bytes) want_room(bytes);
  if (!is_short_of_memory()) return true;
  if (relief_.try_lock()) {  // otherwise another core performs a step now
    const std::lock_guard unlock(relief_, std::adopt_lock);
    if (relieve_a_little(now)) return true;
  }
  const bool may_pass = bytes <= slab_item_bytes_max && retired_bytes() <= backlog_bytes_max(bytes) &&
                        own.blocks[0].load(std::memory_order_relaxed) != nullptr &&
                        (memory_.free_bytes == nullptr || memory_.free_bytes() >= memory_.free_bytes_min / 2);
  if (!may_pass) waits_.fetch_add(1, std::memory_order_relaxed);
  return may_pass;
}

/// Causes evictions until the store has room for an item of `bytes`. An item that never has room is refused when it is allocated.
void Store::want_room(std::size_t bytes) noexcept {
  if (bytes > limit_bytes_.load(std::memory_order_relaxed) || bytes_over_limit(bytes) <= backlog_bytes_max(bytes)) return;
  detail::raise_to(room_wanted_, bytes);
  raise_pressure();
}

/// Performs one step of relief. Returns true if commands of any size may begin.
bool Store::relieve_a_little(Seconds now) noexcept {
  std::uint32_t reasons = pressure_.load(std::memory_order_seq_cst);
  if (retired_bytes() > retired_bytes_max_ / 2) return false;
  const bool over_limit = bytes_over_limit(room_wanted()) != 0;
  if (!over_limit && refill_spares()) {
    relief_round_ = 0;
    room_wanted_.store(0, std::memory_order_relaxed);
    // If another core used a block or retired more bytes meanwhile, `pressure_` has changed and the exchange fails.
    return pressure_.compare_exchange_strong(reasons, 0, std::memory_order_seq_cst);
  }
  // Evict more only once the items that were evicted before are free, because their memory may be enough.
  if (!over_limit && (retired_bytes() > step_retired_bytes || ++relief_round_ % relief_rounds != 0)) return false;
  if (make_room(now)) return false;
  room_wanted_.store(0, std::memory_order_relaxed);
  return true;  // the cache is empty, so waiting would free no memory
}

/// Replaces spare blocks that were used. The first blocks of all cores come first, because commands with small items need no others.
bool Store::refill_spares() noexcept {
  for (unsigned index = 0; index < spare_blocks_; ++index) {
    for (unsigned core = 0; core < cores_; ++core) {
      std::atomic<void*>& place = parts_[core].blocks[index];
      if (place.load(std::memory_order_seq_cst) != nullptr) continue;
      void* const block = memory_.allocate(spare_block_bytes_);
      if (block == nullptr) return false;
      // Blocks are stored only here. The caller is the constructor, or holds the lock `relief_`.
      require(place.exchange(block, std::memory_order_release) == nullptr, "memcached: a spare block is stored twice");
    }
  }
  return memory_.free_bytes == nullptr || memory_.free_bytes() >= memory_.free_bytes_min + spare_bytes_;
}

/// Evicts some items, or copies them out of their slabs. Returns false if no item is stored.
bool Store::make_room(Seconds now) noexcept {
  if (bytes_over_limit(room_wanted()) == 0) moves_left_.store(counters().items, std::memory_order_relaxed);
  const std::size_t retired = retired_bytes();
  for (unsigned count = 0; count < step_evictions && retired_bytes() <= retired + step_retired_bytes; ++count) {
    if (!evict_one(now)) return count != 0;
  }
  return true;
}

/// Replaces `item` by a copy, which is the shard's newest item and not marked as used. MUST be called under the shard's lock. Returns false
/// if the item is not in a slab, or if there is no memory.
bool Store::move(Shard& shard, Item& item) noexcept {
  const std::size_t bytes = item.memory_bytes();
  if (bytes > slab_item_bytes_max) return false;
  void* const memory = memory_.allocate(bytes);
  if (memory == nullptr) return false;
  auto* const copy = new (memory) Item{.next = {nullptr, nullptr},
                                       .hash = item.hash,
                                       .value_bytes = item.value_bytes,
                                       .expires = item.expires.load(std::memory_order_relaxed),
                                       .accessed = item.accessed.load(std::memory_order_relaxed) & ~std::uint32_t{1},
                                       .cas = item.cas.load(std::memory_order_relaxed),
                                       .flags = item.flags,
                                       .references = 1,
                                       .place = {},
                                       .store = index_,
                                       .key_bytes = item.key_bytes,
                                       .marks = static_cast<std::uint8_t>(item.marks.load(std::memory_order_relaxed) | Item::mark_fetched),
                                       .standing = Item::Standing::main};
  require(copy->memory_bytes() == bytes, "memcached: a moved item keeps its size", bytes);
  std::memcpy(copy->key_data(), item.key_data(), bytes - Item::header_bytes);
  const std::size_t counted_bytes = footprint(item);
  taken_bytes_.fetch_add(counted_bytes, std::memory_order_relaxed);
  shard.main_bytes += counted_bytes;
  enqueue(shard, shard.main, *copy);
  table_.replace(item, *copy);
  dequeue(shard, item, counted_bytes);
  retire(own_part(), item, counted_bytes);
  ++shard.counters.moved;
  const std::uint64_t left = moves_left_.load(std::memory_order_relaxed);
  if (left != 0) moves_left_.store(left - 1, std::memory_order_relaxed);  // a count lost in a race of two cores is harmless
  return true;
}

}  // namespace neap::memcached
