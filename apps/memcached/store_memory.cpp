// SPDX-License-Identifier: BSL-1.0
// The store's memory: eviction when it is full, and reclamation of items.
//
// An item passes through three accounts. `used` has items that are being received or linked, and `retired` has unlinked items whose grace
// period is not over. `held` has items after the grace period to which replies in flight still refer. `used + held` stays under the limit,
// so slow readers make the cache smaller, but the machine does not run out of memory. `retired` has a separate bound. An evicted item is
// retired too, so eviction cannot keep `retired` below its bound. Instead, commands wait (store_relief.cpp). A command that needs many
// evictions leaves most of them to later commands. Until then `used` exceeds the limit, by at most `backlog_bytes_max`.
//
// Each shard has two queues of its items in order of age. New items are on probation, in the first queue. Eviction takes the oldest item of
// the first queue while that queue has more than a quarter of the shard's bytes, otherwise the oldest of the main queue. If the item was
// used since eviction last examined it, it gets a second chance at the end of the main queue, so keys that are requested only once, as by
// scans, do not displace used items (as the two queues of S3-FIFO, Yang et al., 2023, without its memory of evicted keys). `./neap bench
// hit-ratio` compares with the segmented LRU of stock memcached. A single queue with second chances had fewer hits than that in three rows
// of six. A share of a tenth has more hits if the popular keys stay the same, and fewer than a single queue if they change.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "apps/memcached/store.hpp"
#include "apps/memcached/store_queues.hpp"

namespace neap::memcached {

/// Evicts items for an item of `bytes`, which are counted already. Returns false, and uncounts them, if too few items are left.
bool Store::evict_for(PerCore& own, std::size_t bytes, Seconds now) noexcept {
  for (unsigned evicted = 0; bytes_over_limit() != 0; ++evicted) {
    if (evicted >= step_evictions && bytes_over_limit() <= backlog_bytes_max(bytes)) {
      raise_pressure();
      break;
    }
    if (!evict_one(now)) {
      taken_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
      return false;
    }
    give_back_reserve(own);
  }
  return true;
}

/// Called if the core's reserve is too small for `bytes`, or the limit is exceeded. Takes a new reserve, too, unless the limit is near.
bool Store::take_bytes(PerCore& own, std::size_t bytes, Seconds now) noexcept {
  const std::size_t more = bytes + reserve_bytes_;
  if (taken_bytes_.load(std::memory_order_relaxed) + held_bytes() + more <= limit_bytes_.load(std::memory_order_relaxed)) {
    const std::size_t taken = taken_bytes_.fetch_add(more, std::memory_order_relaxed) + more;
    if (taken + held_bytes() <= limit_bytes_.load(std::memory_order_relaxed)) {
      own.reserved_bytes.add(reserve_bytes_);
      return true;
    }
    taken_bytes_.fetch_sub(more, std::memory_order_relaxed);  // other cores took bytes at the same time
  }
  give_back_reserve(own);
  taken_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return evict_for(own, bytes, now);
}

void Store::check_memory(PerCore& own) noexcept {
  own.unchecked_bytes = 0;
  if (memory_.free_bytes != nullptr && memory_.free_bytes() < memory_.free_bytes_min) raise_pressure();
  if (memory_.unused_bytes != nullptr && ++own.checks % checks_a_limit == 0) set_limit();
}

/// Lowers the limit by what partly empty slabs take beyond `unused_share`, so that the items and these slabs together are within 1 % of
/// `memory=`. The limit is lowered in small steps, because each step is evicted, and by `unused_limit_share` at most: eviction empties
/// slabs only slowly.
void Store::set_limit() noexcept {
  const std::size_t all = memory_.unused_bytes(), unused = all - std::min(all, unused_before_);
  const std::size_t excess = unused - std::min(unused, memory_bytes_ / unused_share);
  const std::size_t wanted = memory_bytes_ - std::min(excess, memory_bytes_ / unused_limit_share);
  const std::size_t now = limit_bytes_.load(std::memory_order_relaxed);
  limit_bytes_.store(std::max(wanted, now - std::min(now, checked_bytes)), std::memory_order_relaxed);
}

void Store::give_back_reserve(PerCore& own) noexcept {
  const std::size_t bytes = own.reserved_bytes.value();
  if (bytes == 0) return;
  own.reserved_bytes.subtract(bytes);
  require(taken_bytes_.fetch_sub(bytes, std::memory_order_relaxed) >= bytes, "memcached: less is taken than is given back", bytes);
}

/// Called if this core's reserve is too large, or if too much of what it retired waits for the grace period. The bound of a core is its
/// share, so that the sum of all cores is below `retired_bytes_max_` while no core has noticed a shortage.
void Store::relieve_core(PerCore& own) noexcept {
  if (own.retired_bytes.value() > retired_bytes_core_max_) raise_pressure();
  if (own.reserved_bytes.value() > reserve_bytes_max_) give_back_reserve(own);
}

/// The ids that the core had before are dropped. They were used, or items with these ids would be flushed.
void Store::take_cas_ids(PerCore& own) noexcept {
  own.last_cas = cas_.fetch_add(cas_ids_core, std::memory_order_relaxed) + cas_ids_core;
  own.next_cas = own.last_cas - cas_ids_core + 1;
}

/// Evicts one item, or copies it out of its slab (`evict_from`). Each shard has one candidate, and the candidate that has been unused for
/// longest is chosen. Returns false if no item is linked.
bool Store::evict_one(Seconds now) noexcept {
  if (!evictions_) return false;
  const std::uint32_t first = next_victim_.fetch_add(1, std::memory_order_relaxed);  // if times of last use are equal, shards take turns
  unsigned chances = second_chances_max;
  for (std::uint32_t attempt = 0; attempt < shard_count_ + second_chances_max; ++attempt) {
    Seconds best_used = nothing_there, next_used = nothing_there;
    std::uint32_t best = 0;
    for (std::uint32_t step = 0; step < shard_count_; ++step) {
      const std::uint32_t shard = (first + step) & (shard_count_ - 1);
      const Seconds used = oldest_used_[shard].load(std::memory_order_relaxed);
      if (used < best_used) {
        next_used = std::exchange(best_used, used);
        best = shard;
      } else {
        next_used = std::min(next_used, used);
      }
    }
    if (best_used == nothing_there) return false;
    if (evict_from(shards_[best], now, next_used, chances)) return true;  // otherwise another shard may have an older candidate now
  }
  return false;
}

/// Returns the item that eviction examines next, null if the shard is empty. While items are copied out of their slabs, this is the older
/// one of the two queues' oldest. Otherwise the used items, which the main queue has, would stay in slabs that are nearly empty.
[[gnu::always_inline]] inline Item* Store::candidate(const Shard& shard) const noexcept {
  Item* const fresh = shard.probation.oldest;
  Item* const used = shard.main.oldest;
  if (used == nullptr) return fresh;
  if (fresh == nullptr) return used;
  if (moves_left_.load(std::memory_order_relaxed) != 0) return last_use(*used) <= last_use(*fresh) ? used : fresh;
  return (shard.counters.bytes - shard.main_bytes) * probation_share > shard.counters.bytes ? fresh : used;
}

/// Gives second chances to the shard's marked candidates, at most `chances` of them, and evicts the first other one. Returns false if the
/// shard is empty, or if its next candidate was used after `next_used`, which is when the next shard's candidate was last used.
bool Store::evict_from(Shard& shard, Seconds now, Seconds next_used, unsigned& chances) noexcept {
  const std::lock_guard lock(shard.lock);
  while (Item* const next = candidate(shard)) {
    Item& item = *next;
    if (is_dead(item, now)) {
      take_back(shard, item);
      return true;
    }
    const std::uint32_t accessed = item.accessed.load(std::memory_order_relaxed);
    const bool used = (accessed & 1) != 0;
    if (!used || chances == 0) {
      if (accessed >> 1 > next_used && chances != 0) {
        note_candidate(shard, item.hash);  // the noted time may be that of the other queue
        return false;
      }
      evict(shard, item, used);
      return true;
    }
    --chances;
    ++shard.counters.second_chances;
    if (moves_left_.load(std::memory_order_relaxed) != 0 && move(shard, item)) return true;
    item.add_marks(Item::mark_fetched);
    item.accessed.store(accessed & ~std::uint32_t{1}, std::memory_order_release);  // after the mark: see `Item::was_fetched`
    promote(shard, item);
  }
  return false;
}

/// Moves `item` to the end of the main queue.
void Store::promote(Shard& shard, Item& item) noexcept {
  const std::size_t bytes = footprint(item);
  dequeue(shard, item, bytes);
  item.standing = Item::Standing::main;
  shard.main_bytes += bytes;
  enqueue(shard, shard.main, item);
}

void Store::evict(Shard& shard, Item& item, bool used) noexcept {
  ++shard.counters.evictions;
  if (!used && !item.has_mark(Item::mark_fetched)) ++shard.counters.evicted_unfetched;
  SizeClass& size = shard.sizes[size_class(footprint(item))];
  ++size.evictions;
  if (item.expires.load(std::memory_order_relaxed) != expires_never) ++size.evicted_nonzero;
  if (!used && !item.has_mark(Item::mark_fetched)) ++size.evicted_unfetched;
  size.last_evicted_used = item.accessed.load(std::memory_order_relaxed) >> 1;
  if (EvictionObserver* const observer = eviction_observer_.load(std::memory_order_acquire); observer != nullptr) [[unlikely]]
    observer->evicted(item, used);
  unlink(shard, item);
}

/// Unlinks an expired or flushed item.
void Store::take_back(Shard& shard, Item& item) noexcept {
  SizeClass& size = shard.sizes[size_class(footprint(item))];
  ++shard.counters.reclaimed;
  ++size.reclaimed;
  if (!item.was_fetched()) {
    ++shard.counters.expired_unfetched;
    ++size.expired_unfetched;
  }
  unlink(shard, item);
}

/// Publishes when the next candidate for eviction of this shard, which is that of `hash`, was last used. So any core can compare shards.
/// The time is corrected when a queue has another oldest item, and not when the queues' shares change.
void Store::note_candidate(const Shard& shard, std::uint32_t hash) noexcept {
  const Item* const next = candidate(shard);
  const Seconds used = next != nullptr ? last_use(*next) : nothing_there;
  std::atomic<Seconds>& noted = oldest_used_[hash & (shard_count_ - 1)];
  if (noted.load(std::memory_order_relaxed) != used) noted.store(used, std::memory_order_relaxed);
}

bool Store::set_memory_bytes(std::size_t bytes) noexcept {
  const std::size_t before = memory_bytes();
  if (bytes > before && memory_.free_bytes != nullptr) {
    const std::uint64_t free_bytes = memory_.free_bytes();
    if (bytes - before > free_bytes - std::min(free_bytes, memory_.free_bytes_min)) return false;
  }
  memory_bytes_.store(bytes, std::memory_order_relaxed);
  limit_bytes_.store(bytes, std::memory_order_relaxed);
  raise_pressure();  // so that commands begin to evict, or notice that the shortage is over
  return true;
}

// --- Expiry -----------------------------------------------------------------------------------------------------------------------------
/// Called after an item that expires was linked, or its expiry was changed.
void Store::note_expiry(Seconds expires) noexcept {
  if (expires == expires_never) return;
  Seconds earliest = earliest_expiry_.load(std::memory_order_relaxed);
  while (expires < earliest) {
    if (!earliest_expiry_.compare_exchange_weak(earliest, expires, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
    if (report_expiry_ != nullptr) report_expiry_(report_context_);
    return;
  }
}

void Store::report_expiries(void (*report)(void*) noexcept, void* context) noexcept {
  report_context_ = context;
  report_expiry_ = report;
}

/// Takes each lock once. A writer that read the earlier time before the exchange had its item linked before it released its lock, so the
/// walk finds the item. Any other writer reads `no_expiry`, and notes its item.
void Store::begin_crawl() noexcept {
  crawling_.store(true, std::memory_order_relaxed);
  earliest_expiry_.exchange(no_expiry, std::memory_order_seq_cst);
  for (std::uint32_t index = 0; index < shard_count_; ++index) const std::lock_guard lock(shards_[index].lock);
  crawler_starts_.fetch_add(1, std::memory_order_relaxed);
}

Store::Crawled Store::crawl(Walk& walk, unsigned budget, Seconds now) noexcept {
  if (own_part().retired_bytes.value() > retired_bytes_core_max_ / 2)
    return {.more = true, .examined = 0};  // the grace period of freed items comes first
  std::uint64_t checked = 0;
  Seconds earliest = no_expiry;
  const bool more = walk.step(budget, [&](Item& item) {
    ++checked;
    if (is_dead(item, now)) {
      crawler_reclaimed_[size_class(footprint(item))].fetch_add(1, std::memory_order_relaxed);
      (void)discard(item, now);
    } else if (const Seconds expires = item.expires.load(std::memory_order_relaxed); expires != expires_never) {
      earliest = std::min(earliest, expires);
    }
  });
  crawler_checked_.fetch_add(checked, std::memory_order_relaxed);
  for (Seconds noted = earliest_expiry(); earliest < noted;) {  // without a report, because the crawler reads the time at the pass's end
    if (earliest_expiry_.compare_exchange_weak(noted, earliest, std::memory_order_relaxed)) break;
  }
  if (!more) crawling_.store(false, std::memory_order_relaxed);
  return {.more = more, .examined = checked};
}

// --- Reclamation -------------------------------------------------------------------------------------------------------------------------
void Store::reclaim(rcu::Node* node) noexcept {
  auto& item = *reinterpret_cast<Item*>(reinterpret_cast<std::byte*>(node) - offsetof(Item, place));
  Store& store = of(item);
  const std::size_t bytes = footprint(item);
  PerCore& own = store.own_part();
  require(own.retired_bytes.value() >= bytes, "memcached: a core reclaims what it has retired", bytes);
  own.retired_bytes.subtract(bytes);
  if (item.references.load(std::memory_order_acquire) == 1) {  // only the table's reference is left, and no reader can find the item
    store.free(item);
    return;
  }
  item.standing = Item::Standing::held;
  store.held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  release_item(&item);
}

/// Called when the last reference to an item was released. The item was never in the table, or only replies held it.
void Store::release(Item& item) noexcept {
  const std::size_t bytes = footprint(item);
  const std::size_t before =
      (item.standing == Item::Standing::held ? held_bytes_ : taken_bytes_).fetch_sub(bytes, std::memory_order_relaxed);
  require(before >= bytes, "memcached: an item is released that is in no account", bytes);
  free(item);
}

void Store::free(Item& item) noexcept {
  if (item.in_pieces()) [[unlikely]]
    free_pieces(item);
  item.~Item();
  memory_.release(&item);
}

/// Frees the first `count` pieces, or all if there are fewer.
[[gnu::noinline]] void Store::free_pieces(const Item& item, unsigned count) noexcept {
  count = std::min(count, Pieces(item.value_bytes).count);
  for (unsigned index = 0; index < count; ++index) memory_.release(item.piece(index));
}

[[gnu::noinline]] std::size_t Store::larger_footprint(std::size_t key_bytes, std::size_t value_bytes, std::size_t more_bytes) noexcept {
  const std::size_t first = memory::heap_bytes(Item::first_block_bytes(key_bytes, value_bytes, more_bytes));
  if (!is_in_pieces(value_bytes)) return first;
  const Pieces pieces(value_bytes);
  return first + (pieces.count - 1) * pieces.bytes + memory::heap_bytes(pieces.bytes_of(pieces.count - 1));
}

// --- Counters ----------------------------------------------------------------------------------------------------------------------------
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
  sum.waits = waits_.load(std::memory_order_relaxed);
  sum.crawler_starts = crawler_starts_.load(std::memory_order_relaxed);
  sum.crawler_checked = crawler_checked_.load(std::memory_order_relaxed);
  for (const auto& reclaimed : crawler_reclaimed_) sum.crawler_reclaimed += reclaimed.load(std::memory_order_relaxed);
  return sum;
}

void Store::reset_counters() noexcept {
  for (std::uint32_t index = 0; index < shard_count_; ++index) {
    Shard& shard = shards_[index];
    const std::lock_guard lock(shard.lock);
    shard.counters = {.items = shard.counters.items, .bytes = shard.counters.bytes};
    for (SizeClass& size : shard.sizes) size = {.items = size.items, .bytes = size.bytes};
  }
  for (auto* const count : {&waits_, &crawler_starts_, &crawler_checked_}) count->store(0, std::memory_order_relaxed);
  for (auto& reclaimed : crawler_reclaimed_) reclaimed.store(0, std::memory_order_relaxed);
}

std::array<Store::SizeClass, Store::size_classes> Store::sizes() const noexcept {
  std::array<SizeClass, size_classes> sum{};
  for (unsigned at = 0; at < size_classes; ++at) sum[at].crawler_reclaimed = crawler_reclaimed_[at].load(std::memory_order_relaxed);
  for (std::uint32_t index = 0; index < shard_count_; ++index) {
    Shard& shard = shards_[index];
    const std::lock_guard lock(shard.lock);
    for (unsigned at = 0; at < size_classes; ++at) {
      sum[at].items += shard.sizes[at].items;
      sum[at].bytes += shard.sizes[at].bytes;
      sum[at].evictions += shard.sizes[at].evictions;
      sum[at].evicted_nonzero += shard.sizes[at].evicted_nonzero;
      sum[at].evicted_unfetched += shard.sizes[at].evicted_unfetched;
      sum[at].expired_unfetched += shard.sizes[at].expired_unfetched;
      sum[at].reclaimed += shard.sizes[at].reclaimed;
      sum[at].last_evicted_used = std::max(sum[at].last_evicted_used, shard.sizes[at].last_evicted_used);
    }
  }
  return sum;
}

/// The sums are exact if no core stores at this moment. Otherwise they may differ by what the cores count meanwhile. `taken_bytes_` is read
/// first, so that bytes that a core takes meanwhile are not counted as used.
std::size_t Store::used_bytes() const noexcept {
  const std::size_t taken = taken_bytes_.load(std::memory_order_relaxed);
  std::size_t reserved = 0;
  for (unsigned core = 0; core < cores_; ++core) reserved += parts_[core].reserved_bytes.value();
  return taken - std::min(taken, reserved);
}

std::size_t Store::retired_bytes() const noexcept {
  std::size_t sum = 0;
  for (unsigned core = 0; core < cores_; ++core) sum += parts_[core].retired_bytes.value();
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
