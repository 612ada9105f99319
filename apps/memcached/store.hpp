// SPDX-License-Identifier: BSL-1.0
// The cache: all items of all cores.
//
// Most requests are reads, from every core, of the same few items; a lock or a shared counter on that way would be the whole cost of a
// request. So `find` takes neither: it walks an RCU chain (table.hpp) and leaves one mark, that the item was used, only if the mark is not
// there yet. Writers take one of a few dozen short locks. Which item goes when memory is short is found from those marks when it is needed:
// a clock hand over each shard's items in order of age, with a second chance for what was used since (Corbato, 1968), beginning with the
// shard whose oldest item was used the longest ago.
//
// Memory: items linked or being received, plus those that only unacknowledged replies still hold, never exceed the limit. On top of that
// come the items that wait for their grace period (`retired_bytes_max`, and one item for each core), a spare block for each core, and the
// table itself. Before each command the caller MUST ask `must_wait`: this is what keeps these bounds (store_relief.cpp).
//
// `now` is the caller's clock (clock.hpp). All calls inside an event; a pointer from `find` is good until its end, or until `hold` is
// undone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/hash.hpp"
#include "apps/memcached/item.hpp"
#include "apps/memcached/table.hpp"
#include "kernel/rcu.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memcached {

/// A key with its hash, which is computed once a request. Refers to the caller's bytes.
struct Key {
  std::string_view text;  ///< 1 to `key_bytes_max` bytes
  std::uint32_t hash;
};

namespace detail {
/// Makes `value` at least `least`, never less than it is, whatever other cores do to it.
inline void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t least) noexcept {
  std::uint64_t now = value.load(std::memory_order_relaxed);
  while (now < least && !value.compare_exchange_weak(now, least, std::memory_order_relaxed)) {
  }
}
}  // namespace detail

/// What came of a request that changes the store.
enum class Outcome : std::uint8_t {
  stored,      ///< done; also deleted, touched, counted
  not_stored,  ///< add of what is there, replace or append of what is not
  exists,      ///< the item has another CAS id than was asked for
  not_found,
  not_numeric,  ///< incr or decr of something else than a decimal number
  too_large,
  out_of_memory,  ///< nothing could be evicted for it
};

enum class Mode : std::uint8_t { set, add, replace, append, prepend, cas };

/// The allocator of a store's items.
struct StoreMemory {
  void* (*allocate)(std::size_t bytes) noexcept = [](std::size_t bytes) noexcept { return std::malloc(bytes); };
  void (*release)(void*) noexcept = [](void* memory) noexcept { std::free(memory); };
  bool (*shrink)(void*, std::size_t bytes) noexcept = nullptr;  ///< as `memory::shrink`; null: never
  std::uint64_t (*free_bytes)() noexcept = nullptr;             ///< of the machine, for `free_bytes_least`; null: not looked at
  std::uint64_t free_bytes_least = 0;                           ///< the store makes room when the machine has less
};

struct StoreOptions {
  std::size_t memory_bytes = std::size_t{64} << 20;
  std::uint32_t value_bytes_max = 1 << 20;
  std::uint32_t shards = 64;        ///< power of two, 1 to 64; locks and eviction queues
  std::uint32_t buckets = 1 << 14;  ///< power of two, at least `shards`; to begin with
  HashSeed seed;                    ///< random where clients are not trusted
  unsigned cores = 1;               ///< that allocate at the same time: each has a spare block
  StoreMemory memory;
  void (*retire)(rcu::Node&) noexcept = nullptr;  ///< null: rcu::retire. Tests on one thread reclaim at once.
};

/// Sums over all shards since start or `reset_counters`; a reader on another core sees a moment of each.
struct StoreCounters {
  std::uint64_t items = 0, items_ever = 0;
  std::uint64_t bytes = 0;              ///< of linked items, headers included
  std::uint64_t evictions = 0;          ///< of items not yet expired
  std::uint64_t evicted_unfetched = 0;  ///< and never read
  std::uint64_t expired_unfetched = 0;
  std::uint64_t reclaimed = 0;  ///< expired or flushed items whose room was taken back
  std::uint64_t second_chances = 0;
  std::uint64_t out_of_memory = 0;    ///< requests refused
  std::uint64_t chain_evictions = 0;  ///< evictions because too many keys fell into one bucket
  std::uint64_t moved = 0;            ///< items copied, so that the memory around them comes free
  std::uint64_t waits = 0;            ///< commands put off until memory is there
};

class Store {
 public:
  explicit Store(const StoreOptions& options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  /// False when there was no memory for the first table.
  [[nodiscard]] bool valid() const noexcept { return table_.valid(); }

  [[nodiscard]] Key key(std::string_view text) const noexcept { return {text, hash_key(text, seed_)}; }
  [[nodiscard]] std::uint32_t value_bytes_max() const noexcept { return value_bytes_max_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_bytes_; }

  /// Makes a delayed flush happen when its time has come. Called with each new `now`, before the requests that see it.
  void tick(Seconds now) noexcept {
    if (now >= flush_due_.load(std::memory_order_relaxed)) [[unlikely]]
      flush_due(now);
  }

  struct Found {
    Item* item = nullptr;
    bool expired = false;  ///< it was there, and is no more
    bool flushed = false;
  };
  /// Marks the item as used.
  [[nodiscard]] Found find(const Key& key, Seconds now) noexcept {
    Item* const item = table_.find(key.text, key.hash);
    if (item == nullptr) return {};
    if (is_dead(*item, now)) [[unlikely]]
      return discard(*item, now);
    const std::uint32_t used_now = now << 1 | 1;
    if (item->accessed.load(std::memory_order_relaxed) != used_now) item->accessed.store(used_now, std::memory_order_relaxed);
    return {.item = item};
  }
  /// True: commands that allocate ask `must_wait` first.
  [[nodiscard]] bool is_short_of_memory() const noexcept { return pressure_.load(std::memory_order_relaxed) != 0; }
  /// True: a command that allocates must not begin in this event. The caller ends the event and asks again in a later one: replaced items
  /// are freed between events only. One load when memory is not short.
  [[nodiscard]] bool must_wait(Seconds now) noexcept { return is_short_of_memory() && !relieve(now); }

  /// Finds, and lets it live until `expires`.
  [[nodiscard]] Found touch(const Key& key, Seconds expires, Seconds now) noexcept;

  struct Allocated {
    ItemPointer item;
    Outcome outcome;  ///< `stored`, `too_large` or `out_of_memory`
  };
  /// Room for an item, evicting others for it; the value is the caller's to fill, the key and the line end are in place.
  [[nodiscard]] Allocated allocate(const Key& key, std::uint32_t flags, Seconds expires, std::uint64_t value_bytes, Seconds now) noexcept;

  struct Done {
    Outcome outcome;
    std::uint64_t cas = 0;    ///< the new item's
    std::uint64_t value = 0;  ///< of `arithmetic`
  };
  /// Stores a filled item by the rules of `mode`. With `expected_cas` not 0 the item in place must have that id; for `append` and `prepend`
  /// too. In mode `cas` 0 is an id like others, which no item has.
  [[nodiscard]] Done commit(Mode mode, ItemPointer item, std::uint64_t expected_cas, Seconds now) noexcept;
  [[nodiscard]] Done remove(const Key& key, std::uint64_t expected_cas, Seconds now) noexcept;
  /// Adds (wraps at 2^64) or subtracts (stops at 0). The value keeps its length when the number gets shorter, padded by spaces, as
  /// memcached does.
  [[nodiscard]] Done arithmetic(const Key& key, bool up, std::uint64_t delta, std::uint64_t expected_cas, Seconds now) noexcept;
  /// Stores a decimal number if the key is not there (`not_stored` if it is).
  [[nodiscard]] Done create_number(const Key& key, std::uint64_t value, Seconds expires, Seconds now) noexcept;
  /// Everything stored before `when` ends then; 0 or the past: now. A new call replaces a pending one.
  void flush(Seconds when, Seconds now) noexcept;

  [[nodiscard]] StoreCounters counters() const noexcept;
  void reset_counters() noexcept;

  /// Items by size: class k has those of 2^(k-1) < bytes <= 2^k, header included.
  static constexpr unsigned size_classes = 32;
  struct SizeClass {
    std::uint64_t items = 0, bytes = 0, evictions = 0;
  };
  [[nodiscard]] std::array<SizeClass, size_classes> sizes() const noexcept;
  /// Seconds since the longest unused item at an eviction hand was used; 0 if there is none.
  [[nodiscard]] Seconds oldest_age(Seconds now) const noexcept;

  [[nodiscard]] std::size_t used_bytes() const noexcept {
    return used_bytes_.load(std::memory_order_relaxed);
  }  ///< linked or being received
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }  ///< by replies alone
  /// Memory of replies beside the items they refer to; it counts against the limit. On any core.
  void charge_held(std::size_t bytes) noexcept { held_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void discharge_held(std::size_t bytes) noexcept { held_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t retired_bytes() const noexcept { return retired_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t retired_bytes_max() const noexcept { return retired_bytes_max_; }
  /// Of each core's two spare blocks.
  [[nodiscard]] std::array<std::size_t, 2> spare_bytes() const noexcept {
    return {std::min(small_spare_bytes, spare_bytes_), spare_bytes_};
  }
  [[nodiscard]] const Table& table() const noexcept { return table_; }

  /// What an item takes, header and the allocator's rounding included.
  [[nodiscard]] static std::size_t footprint(std::size_t key_bytes, std::size_t value_bytes) noexcept;

 private:
  friend void release_item(void*) noexcept;
  static constexpr std::uint32_t shards_max = 64;
  static constexpr Seconds nothing_there = ~Seconds{0};
  static constexpr unsigned second_chances_a_look = 32;  // then the hand takes what is under it, used or not: an eviction has a bound
  static constexpr unsigned chain_items_max = 128;  // a chain that grows longer loses its oldest item: the work under a lock has a bound
  static constexpr std::size_t retired_share = 16;  // of the limit may wait for its grace period,
  static constexpr std::size_t retired_bytes_core = std::size_t{1} << 20;   // and so much for each core
  static constexpr std::size_t spare_share = 8;                             // of the limit are the large spare blocks at most
  static constexpr std::size_t small_spare_bytes = std::size_t{128} << 10;  // a slab fits in, however the block lies
  static constexpr std::size_t moved_bytes_max = 8192;                      // larger items lie in no slab
  static constexpr unsigned relief_evictions = 1024;                        // in one event
  static constexpr unsigned relief_rounds = 2;            // refills that fail before more is evicted: memory freed for another core travels
  static constexpr unsigned optimistic_tries_max = 1000;  // each failed one means that another writer of this key was served

  /// A part of the items by hash: a lock, and its items in the order in which the eviction hand meets them.
  struct alignas(64) Shard {
    SpinLock lock;
    Item* newest = nullptr;
    Item* oldest = nullptr;
    StoreCounters counters;
    std::array<SizeClass, size_classes> sizes{};
  };

  [[nodiscard]] bool is_dead(const Item& item, Seconds now) const noexcept {
    const Seconds expires = item.expires.load(std::memory_order_relaxed);
    return (expires != expires_never && expires <= now) || item.cas <= flushed_cas_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] Shard& shard_of(std::uint32_t hash) noexcept { return shards_[hash & (shard_count_ - 1)]; }
  [[nodiscard]] Item* find_live(const Key& key, Seconds now, Shard& shard) noexcept;
  Found discard(Item& item, Seconds now) noexcept;
  void flush_due(Seconds now) noexcept;
  void flush_up_to_now() noexcept;

  Done join(Item& piece, bool at_end, std::uint64_t expected_cas, Seconds now) noexcept;
  enum class Swap : std::uint8_t { done, changed };
  Swap swap_if_same(Item& old, ItemPointer& fresh, Seconds now, Done& done) noexcept;

  std::uint64_t link(Shard& shard, ItemPointer item, Item* instead, Seconds now) noexcept;
  void unlink(Shard& shard, Item& item) noexcept;
  void retire(Item& item) noexcept;
  void enqueue(Shard& shard, Item& item) noexcept;
  void dequeue(Shard& shard, Item& item) noexcept;
  void note_oldest(Shard& shard) noexcept;
  [[nodiscard]] static unsigned size_class(std::size_t bytes) noexcept { return static_cast<unsigned>(std::bit_width(bytes - 1)); }
  [[nodiscard]] std::uint64_t items_estimate(const Shard& shard) const noexcept { return shard.counters.items * shard_count_; }
  void grow_table(std::uint64_t items) noexcept;
  void take_back(Shard& shard, Item& item) noexcept;
  void evict(Shard& shard, Item& item, bool used) noexcept;
  [[nodiscard]] bool move(Shard& shard, Item& item) noexcept;
  [[nodiscard]] static std::size_t item_bytes(const Item& item) noexcept {
    return sizeof(Item) + item.key_bytes + std::size_t{item.value_bytes} + 2;
  }

  void raise_pressure() noexcept { pressure_.fetch_add(1, std::memory_order_seq_cst); }
  [[nodiscard]] void* allocate_bytes(std::size_t bytes) noexcept;
  [[nodiscard]] void* allocate_from_spare(std::size_t bytes) noexcept;
  [[nodiscard]] bool relieve(Seconds now) noexcept;
  [[nodiscard]] bool refill_spares() noexcept;
  [[nodiscard]] bool make_room(Seconds now) noexcept;
  [[nodiscard]] bool reserve(std::size_t bytes, Seconds now) noexcept;
  [[nodiscard]] bool evict_one(Seconds now) noexcept;
  [[nodiscard]] bool evict_from(Shard& shard, Seconds now) noexcept;
  static void reclaim(rcu::Node* node) noexcept;
  void release(Item& item) noexcept;
  void free(Item& item) noexcept;
  static std::size_t footprint(const Item& item) noexcept { return footprint(item.key_bytes, item.value_bytes); }

  const std::size_t memory_bytes_;
  const std::uint32_t value_bytes_max_;
  const std::uint32_t shard_count_;
  const HashSeed seed_;
  void (*const retire_)(rcu::Node&) noexcept;
  const StoreMemory memory_;
  const unsigned cores_;
  const std::size_t retired_bytes_max_;
  const std::size_t spare_bytes_;
  struct Spares {
    std::array<std::atomic<void*>, 2> blocks{};  // a small and a large one; null: used up
  };
  std::unique_ptr<Spares[]> spares_;  // by core
  Table table_;
  std::unique_ptr<Shard[]> shards_;
  std::atomic<std::uint64_t> flushed_cas_{0};  // items up to this id are gone
  std::atomic<Seconds> flush_due_{nothing_there};
  std::atomic<std::uint32_t> pressure_{0};  // not 0: memory is short, see `relieve`; counts the reasons, so that none is lost
  alignas(64) std::array<std::atomic<Seconds>, shards_max> oldest_used_;  // for each shard, what its hand would meet; read by all who evict
  alignas(64) std::atomic<std::uint64_t> cas_{0};
  alignas(64) std::atomic<std::size_t> used_bytes_{0};
  std::atomic<std::size_t> held_bytes_{0};
  std::atomic<std::size_t> retired_bytes_{0};
  std::atomic<std::uint32_t> next_victim_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<std::uint64_t> moves_left_{0};  // items that the hands copy before they stop to
  SpinLock relief_;
  unsigned relief_round_ = 0;
};

}  // namespace neap::memcached
