// SPDX-License-Identifier: BSL-1.0
// The cache: the items of all cores.
//
// Most requests are reads of the same few items, from every core. A lock or a shared counter would dominate their cost. So `find` uses
// neither a lock nor a shared counter. It walks an RCU chain (table.hpp) and marks the item as used, if it is not marked yet. Writers hold
// one of a few dozen locks for a short time. When memory is short, the marks decide which item is evicted (store_memory.cpp). Eviction
// begins with the shard whose candidate has been unused for longest.
//
// Each core counts bytes for itself, so that a command seldom writes to a cache line that other cores write. It reserves bytes for some
// items in advance. The limit of memory covers items that are linked or being received, items that only unacknowledged replies hold, and
// the reserves. So the reserves, at most 1/256 of the limit, make the cache smaller and never larger. The store takes this memory in
// addition:
// - items that wait for their grace period, at most `retired_bytes_max` and one item for each core;
// - at most three quarters of `retired_bytes_max`, when a large item was stored and the evictions for it are not complete;
// - the spare blocks of each core, which have room for pieces of long values (pieces.hpp, store_relief.cpp), and the table itself.
// To keep to these bounds, the caller MUST call `must_wait` before each command that allocates.
//
// The argument `now` is the time by the server's clock (clock.hpp). All calls MUST come from within an event. A pointer from `find` is
// valid until the event's end. After `Item::hold` it is valid until that reference is released.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/hash.hpp"
#include "apps/memcached/item.hpp"
#include "apps/memcached/store_types.hpp"
#include "apps/memcached/table.hpp"
#include "kernel/counter.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/size_classes.hpp"
#include "kernel/panic.hpp"
#include "kernel/rcu.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memcached {

namespace detail {
/// Raises `value` to `minimum` if `value` is less. Never lowers `value`, even if other cores change it at the same time.
inline void raise_to(std::atomic<std::uint64_t>& value, std::uint64_t minimum) noexcept {
  std::uint64_t now = value.load(std::memory_order_relaxed);
  while (now < minimum && !value.compare_exchange_weak(now, minimum, std::memory_order_relaxed)) {
  }
}
}  // namespace detail

class Store {
 public:
  explicit Store(const StoreOptions& options);
  ~Store();
  Store& operator=(Store&&) = delete;
  /// Returns the store that made `item`.
  [[nodiscard]] static Store& of(const Item& item) noexcept {
    Store* const store = stores_[item.store].load(std::memory_order_relaxed);
    require(store != nullptr, "memcached: an item outlives its store", item.store);
    return *store;
  }
  /// Returns false if there was no memory for the first table.
  [[nodiscard]] bool valid() const noexcept { return table_.valid(); }
  [[nodiscard]] Key key(std::string_view text) const noexcept;
  [[nodiscard]] const HashSeed& seed() const noexcept { return seed_; }
  [[nodiscard]] std::uint32_t value_bytes_max() const noexcept { return value_bytes_max_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept { return memory_bytes_.load(std::memory_order_relaxed); }
  /// Changes the limit. Later commands evict what is above a lower limit, a step for each command. Returns false if the machine has less
  /// memory than that. The bounds for retired items and spare blocks stay those of the first limit.
  [[nodiscard]] bool set_memory_bytes(std::size_t bytes) noexcept;
  [[nodiscard]] bool evictions() const noexcept { return evictions_; }

  /// Is told about each evicted item. It is called under a shard's lock, so it MUST NOT call the store.
  struct EvictionObserver {
    virtual void evicted(const Item& item, bool used) noexcept = 0;

   protected:
    ~EvictionObserver() = default;
  };
  /// Null: no observer. The observer MUST outlive the store.
  void observe_evictions(EvictionObserver* observer) noexcept { eviction_observer_.store(observer, std::memory_order_release); }

  /// Performs a delayed flush that is due. MUST be called with each new `now`, before the requests that use it.
  void tick(Seconds now) noexcept {
    if (now >= flush_due_.load(std::memory_order_relaxed)) [[unlikely]]
      flush_due(now);
  }

  struct Found {
    Item* item = nullptr;
    bool expired = false;  ///< there was an item, but it had expired
    bool flushed = false;  ///< there was an item, but it had been flushed
  };
  /// Returns the item with this key and marks it as used.
  [[nodiscard]] [[gnu::always_inline]] Found find(const Key& key, Seconds now) noexcept { return look_up<true>(key, now); }
  /// Returns the item with this key, and does not mark it as used.
  [[nodiscard]] [[gnu::always_inline]] Found peek(const Key& key, Seconds now) noexcept { return look_up<false>(key, now); }
  /// If true, the caller MUST call `must_wait` before each command that allocates.
  [[nodiscard]] bool is_short_of_memory() const noexcept { return pressure_.load(std::memory_order_relaxed) != 0; }
  /// The same for commands whose items may be longer than `long_item_bytes`.
  [[nodiscard]] bool may_be_short_of_memory() const noexcept { return has_long_items_ || is_short_of_memory(); }
  /// If true, a command that allocates an item of `bytes`, including the header, MUST NOT begin in this event. The caller ends the event
  /// and asks again in a later event, because replaced items are freed only between events. The call costs one load if memory is not short.
  [[nodiscard]] bool must_wait(std::size_t bytes, Seconds now) noexcept {
    return (is_short_of_memory() || bytes > long_item_bytes) && !relieve(bytes, now);
  }
  /// Returns the length of the value stored under `key`, 0 if there is none. Does not mark the item as used.
  [[nodiscard]] std::size_t stored_value_bytes(const Key& key) const noexcept {
    const Item* const item = table_.find(key.text, key.hash);
    return item != nullptr ? item->value_bytes : 0;
  }

  [[nodiscard]] Found touch(const Key& key, Seconds expires, Seconds now, bool marks_use = true) noexcept;

  struct Allocated {
    ItemPointer item;
    Outcome outcome;  ///< `stored`, `too_large` or `out_of_memory`
  };
  /// Allocates an item. Key and line end are filled in; the caller MUST fill the value (`Item::fill`).
  [[nodiscard]] Allocated allocate(const Key& key, std::uint32_t flags, Seconds expires, std::uint64_t value_bytes, Seconds now,
                                   OwnCas own_cas = {}) noexcept;

  struct Done {
    Outcome outcome;
    std::uint64_t cas = 0;         ///< the new item's CAS id; unless a client chose it, no other item has it, and it is above the old one's
    std::uint64_t value = 0;       ///< result of `arithmetic`
    std::size_t copied_bytes = 0;  ///< bytes that were copied from the old item
    std::uint32_t value_bytes = 0;       ///< of the new item, after `append` and `prepend`
    Seconds expired_at = expires_never;  ///< when the old item of `arithmetic` would have expired
  };
  /// Stores a filled item by the rules of `mode`. If `expected_cas` is not 0, the stored item must have that CAS id, also in `append` and
  /// `prepend`. In the modes `cas` and `cas_or_stale`, 0 matches no item.
  [[nodiscard]] Done commit(Mode mode, ItemPointer item, std::uint64_t expected_cas, Seconds now) noexcept;
  struct Stored {
    Outcome outcome;
    std::uint64_t cas = 0;  ///< as in `Done`
  };
  /// Stores `value` without a condition: `allocate` and `commit` in one call. Outcomes: `stored`, and those of `allocate`.
  [[nodiscard]] Stored set(const Key& key, std::uint32_t flags, Seconds expires, std::string_view value, Seconds now) noexcept;
  [[nodiscard]] Done remove(const Key& key, std::uint64_t expected_cas, Seconds now) noexcept;
  /// Adds (wraps at 2^64) or subtracts (stops at 0). A result shorter than the old value is padded with spaces, as in memcached.
  [[nodiscard]] Done arithmetic(const Key& key, bool up, std::uint64_t delta, std::uint64_t expected_cas, Seconds now,
                                const NumberExtras& extras = {}) noexcept;
  /// Stores a decimal number if the key does not exist (`not_stored` if it does).
  [[nodiscard]] Done create_number(const Key& key, std::uint64_t value, Seconds expires, Seconds now,
                                   const NumberExtras& extras = {}) noexcept;

  /// A change of an item that keeps its key (md with I or x).
  struct Revision {
    bool to_stale = false;       ///< the item becomes stale, and the next client that fetches it is told to make it anew
    bool without_value = false;  ///< the value becomes empty, and `flags` and `expires` (or never) are set
    std::uint32_t flags = 0;
    std::optional<Seconds> expires{};  ///< otherwise the expiry stays
    std::optional<std::uint64_t> expected_cas{};
    OwnCas own_cas{};  ///< otherwise a stale item gets a new id, and another item keeps its id
  };
  /// An item that only becomes stale is changed in place, without memory and without a copy; any other one is replaced.
  [[nodiscard]] Done revise(const Key& key, const Revision& revision, Seconds now) noexcept;
  struct Win {
    std::uint8_t marks;  ///< from before; if they lack `Item::mark_win_sent`, the caller is the winner, and the only one
    std::uint64_t cas;   ///< the id that clients see; the winner needs it to store the new value under its condition
  };
  /// Marks that the item's win was sent. Returns nothing if the item is no longer linked.
  [[nodiscard]] std::optional<Win> win(Item& item, Seconds now) noexcept;
  /// Drops, at `when`, all items stored before `when`. If `when` is 0 or past, drops them now. A new call replaces a pending one.
  void flush(Seconds when, Seconds now) noexcept;

  /// A pass over all linked items, in steps of bounded work, for example one in each event. Between two steps, items MAY change and the
  /// table MAY grow. Each key that is stored during the whole pass is visited exactly once, every other key at most once.
  class Walk {
   public:
    explicit Walk(const Store& store) noexcept : table_(store.table_) {}
    /// Calls `visit(Item&)` for the items of the next chains, until it has examined `budget` chains and items, or somewhat more, because
    /// chains are visited whole (`chain_items_max`). Returns false if the pass is complete. The items may be expired or flushed
    /// (`is_dead`). Other cores may unlink an item meanwhile. An item stays valid until the end of the event, or until it is released
    /// after `hold`. `visit` MAY read the item's key, value, and members that do not change, and MAY call the store for this item only.
    template <typename Visit>
    bool step(unsigned budget, Visit visit) noexcept {
      for (unsigned examined = 0; examined < budget && position_ < Table::end_position; ++examined) {
        position_ = table_.visit_chain(position_, [&](Item& item) {
          ++examined;
          visit(item);
        });
      }
      return position_ < Table::end_position;
    }

   private:
    const Table& table_;
    std::uint64_t position_ = 0;
  };
  /// True if `item` has expired, or was flushed. A dead item is not found, and is unlinked sooner or later.
  [[nodiscard]] [[gnu::always_inline]] bool is_dead(const Item& item, Seconds now) const noexcept {
    const Seconds expires = item.expires.load(std::memory_order_relaxed);
    return (expires != expires_never && expires <= now) ||
           item.cas.load(std::memory_order_relaxed) <= flushed_cas_.load(std::memory_order_relaxed);
  }

  /// For the crawler (crawler.hpp). No linked item expires before `earliest_expiry()`, which is `no_expiry` if no item expires. `report` is
  /// called with `context`, on any core, when that time becomes earlier. It MUST NOT call the store. Null: nothing is called.
  static constexpr Seconds no_expiry = ~Seconds{0};
  [[nodiscard]] Seconds earliest_expiry() const noexcept { return earliest_expiry_.load(std::memory_order_relaxed); }
  void report_expiries(void (*report)(void*) noexcept, void* context) noexcept;
  /// Begins a pass that frees dead items. Afterwards the caller MUST call `crawl` with a new walk until `more` is false. Until then
  /// `earliest_expiry` does not cover all items.
  void begin_crawl() noexcept;
  /// Performs a step of the walk: frees the dead items, and notes when the others expire. Frees less if this core has much to reclaim.
  struct Crawled {
    bool more;               ///< the pass is not complete
    std::uint64_t examined;  ///< items
  };
  [[nodiscard]] Crawled crawl(Walk& walk, unsigned budget, Seconds now) noexcept;
  /// True during a pass, and if one is due because an item has expired, or because it was requested.
  [[nodiscard]] bool crawl_is_due(Seconds now) const noexcept {
    return crawling_.load(std::memory_order_relaxed) || earliest_expiry() <= now;
  }
  /// Causes a pass of the crawler, if there is a crawler.
  void request_crawl() noexcept { note_expiry(expired_already); }

  [[nodiscard]] StoreCounters counters() const noexcept;
  void reset_counters() noexcept;

  /// The items by size: class k has the items with 2^(k-1) < bytes <= 2^k, including the header.
  static constexpr unsigned size_classes = 32;
  struct SizeClass {
    std::uint64_t items = 0, bytes = 0, evictions = 0;
    std::uint64_t evicted_nonzero = 0;  ///< evicted items that had an expiry
    std::uint64_t evicted_unfetched = 0, expired_unfetched = 0, reclaimed = 0;
    std::uint64_t crawler_reclaimed = 0;  ///< those of `reclaimed` that the crawler freed
    Seconds last_evicted_used = 0;        ///< when the item that was evicted last was last used
  };
  [[nodiscard]] std::array<SizeClass, size_classes> sizes() const noexcept;
  [[nodiscard]] static unsigned size_class(std::size_t bytes) noexcept { return static_cast<unsigned>(std::bit_width(bytes - 1)); }
  /// The number that clients see for the class of an item, as a slab class of memcached: the smallest items are in class 1.
  static constexpr unsigned first_size_class = 7;  // an item has over 64 bytes
  [[nodiscard]] static unsigned class_id(const Item& item) noexcept { return size_class(footprint(item)) - first_size_class + 1; }
  /// Returns the seconds since the last use of the item that would be evicted next; 0 if there is none.
  [[nodiscard]] Seconds oldest_age(Seconds now) const noexcept;

  [[nodiscard]] std::size_t used_bytes() const noexcept;  ///< bytes of items that are linked or being received
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }  ///< used by replies only
  /// Charges and discharges the replies' own memory, without the items to which they refer. This memory counts against the limit. MAY be
  /// called on any core.
  void charge_held(std::size_t bytes) noexcept { held_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void discharge_held(std::size_t bytes) noexcept {
    require(held_bytes_.fetch_sub(bytes, std::memory_order_relaxed) >= bytes, "memcached: less is held than is discharged", bytes);
  }
  [[nodiscard]] std::size_t retired_bytes() const noexcept;  ///< bytes of items that wait for their grace period
  [[nodiscard]] std::size_t retired_bytes_max() const noexcept { return retired_bytes_max_; }
  /// Returns the number and the size of each core's spare blocks (store_relief.cpp).
  [[nodiscard]] unsigned spare_blocks() const noexcept { return spare_blocks_; }
  [[nodiscard]] std::size_t spare_block_bytes() const noexcept { return spare_block_bytes_; }
  [[nodiscard]] const Table& table() const noexcept { return table_; }

  /// Returns the memory of an item, including the header and the allocator's rounding. `more_bytes`: as in `Item::memory_bytes`.
  [[nodiscard]] [[gnu::always_inline]] static std::size_t footprint(const Item& item) noexcept {
    return footprint(item.key_bytes, item.value_bytes, item.more_bytes());
  }
  [[nodiscard]] [[gnu::always_inline]] static std::size_t footprint(std::size_t key_bytes, std::size_t value_bytes,
                                                                    std::size_t more_bytes = 0) noexcept {
    static_assert(memory::heap_bytes(Item::header_bytes + 1 + 2) == memory::heap_bytes(sizeof(Item)), "as `Item::memory_bytes`");
    const std::size_t bytes = Item::header_bytes + key_bytes + value_bytes + 2 + more_bytes;
    if (bytes - 1 < small_footprint_bytes) [[likely]]  // the comparison of `heap_bytes`, which then has no other
      return memory::heap_bytes(bytes);
    return larger_footprint(key_bytes, value_bytes, more_bytes);
  }

 private:
  friend void release_item(void*) noexcept;
  static constexpr std::size_t small_footprint_bytes = 256;  // up to this, `memory::heap_bytes` is three instructions
  [[nodiscard]] static std::size_t larger_footprint(std::size_t key_bytes, std::size_t value_bytes, std::size_t more_bytes) noexcept;
  static constexpr std::uint32_t shards_max = 64;
  static constexpr Seconds nothing_there = ~Seconds{0};
  static constexpr unsigned second_chances_max = 32;  // in one eviction; the item after these is evicted even if used (bounded work)
  static constexpr unsigned probation_share = 4;      // items on probation that exceed this share of a shard's bytes are evicted first
  static constexpr unsigned chain_items_max = 128;    // a longer chain loses its oldest item (bounded work under a lock)
  static constexpr std::size_t retired_share = 16;    // at most the limit divided by this waits for a grace period
  static constexpr std::size_t retired_bytes_core = std::size_t{1} << 20;  // maximum of the waiting bytes for each core
  static constexpr std::size_t spare_share = 8;  // all spare blocks but the first of each core take at most the limit divided by this
  static constexpr std::size_t spare_bytes_core = std::size_t{1} << 20;  // of a core, unless all cores need more for the largest item
  static constexpr std::size_t spare_block_bytes_min = std::size_t{128} << 10;  // room for a slab of the heap at any alignment
  static constexpr unsigned spare_blocks_max = 2 + Pieces::count_max;
  static constexpr std::size_t slab_item_bytes_max = 8192;              // the heap gives larger items whole pages, not slabs
  static constexpr std::size_t long_item_bytes = std::size_t{1} << 20;  // a longer item waits until there is room for it
  static constexpr std::size_t checked_bytes = std::size_t{64} << 10;   // a core checks the machine's free memory this often
  static constexpr unsigned checks_a_limit = 4;                         // the limit is set after this many checks
  static constexpr std::size_t unused_share = 128;      // unused bytes of slabs up to this share of the limit are not counted
  static constexpr std::size_t unused_limit_share = 8;  // they lower the limit by this share at most
  static constexpr unsigned step_evictions = 32;        // items evicted or moved in one call of `relieve` (tens of us)
  static constexpr std::size_t step_retired_bytes = std::size_t{64} << 10;  // a call of `relieve` stops once it has retired this many bytes
  static constexpr unsigned relief_rounds = 2;                              // failed refills of spare blocks before items are evicted
  static constexpr std::size_t reserve_share = 512;  // all reserves of cores are at most twice this share of the limit
  static constexpr std::size_t reserve_bytes_core = std::size_t{16} << 10;  // a core reserves this many bytes at once, if that is less
  static constexpr unsigned cas_ids_core = 256;                             // a core takes this many CAS ids at once
  static constexpr unsigned optimistic_tries_max = 1000;  // each failed try means that another writer of this key succeeded

  /// The accounts of one core, so that a command seldom writes to a cache line that other cores use. Only that core writes the counts.
  struct alignas(64) PerCore {
    unsigned checks = 0;                                        // calls of `check_memory`
    std::size_t unchecked_bytes = 0;                            // allocated on this core since the machine's free memory was checked
    Counter reserved_bytes;                                     // counted in `taken_bytes_`, without an item
    Counter retired_bytes;                                      // of items that this core has retired and not reclaimed
    std::uint64_t next_cas = 1, last_cas = 0;                   // CAS ids that were taken from `cas_` and are not used yet
    std::array<std::atomic<void*>, spare_blocks_max> blocks{};  // see store_relief.cpp; null: the block was used
  };

  /// A part of the items, chosen by hash: a lock, and two queues of items in the order in which eviction examines them.
  struct alignas(64) Shard {
    SpinLock lock;
    struct Queue {
      Item* newest = nullptr;
      Item* oldest = nullptr;
    };
    Queue probation, main;
    std::uint64_t main_bytes = 0;  // of `counters.bytes`
    StoreCounters counters;
    std::array<SizeClass, size_classes> sizes{};
  };

  template <bool marks_use>
  [[nodiscard]] [[gnu::always_inline]] Found look_up(const Key& key, Seconds now) noexcept {
    Item* const item = table_.find(key.text, key.hash);
    if (item == nullptr) return {};
    if (is_dead(*item, now)) [[unlikely]]
      return discard(*item, now);
    if constexpr (marks_use) item->note_use(now);
    return {.item = item};
  }
  [[nodiscard]] Shard& shard_of(std::uint32_t hash) noexcept { return shards_[hash & (shard_count_ - 1)]; }
  struct Live {
    Item* item = nullptr;
    Table::Place place;  ///< where `item` was found
  };
  [[nodiscard]] Live find_live(const Key& key, Seconds now, Shard& shard) noexcept;
  [[nodiscard]] Live find_live_and_clean(const Key& key, Seconds now, Shard& shard) noexcept;
  Found discard(Item& item, Seconds now) noexcept;
  void flush_due(Seconds now) noexcept;
  void flush_up_to_now() noexcept;

  struct Made {
    Item* item;
    Outcome outcome;
    std::size_t bytes = 0;  ///< the item's footprint
  };
  [[nodiscard]] Made make_contiguous(PerCore& own, const Key& key, std::uint32_t flags, Seconds expires, std::uint64_t value_bytes,
                                     std::size_t more_bytes, Seconds now) noexcept;
  [[nodiscard]] Made make_in_pieces(PerCore& own, const Key& key, std::uint32_t flags, Seconds expires, std::uint64_t value_bytes,
                                    std::size_t more_bytes, Seconds now) noexcept;
  [[nodiscard]] bool allocate_pieces(PerCore& own, Item& item) noexcept;
  [[nodiscard]] Item* construct(void* memory, const Key& key, std::uint32_t flags, Seconds expires,
                                std::uint64_t value_bytes) const noexcept;
  [[nodiscard]] Stored set_in_pieces(const Key& key, std::uint32_t flags, Seconds expires, std::string_view value, Seconds now) noexcept;
  [[nodiscard]] Stored link_item(PerCore& own, Mode mode, const Key& key, Item& item, std::size_t bytes, std::uint64_t expected_cas,
                                 Seconds now) noexcept;
  Done join(Item& piece, bool at_end, std::uint64_t expected_cas, Seconds now) noexcept;
  enum class Swap : std::uint8_t { done, changed };
  /// The properties that a new item has from the item that it replaces.
  struct Kept {
    bool expiry = false;
    std::uint8_t marks = 0;
  };
  Swap swap_if_same(Item& old, std::uint64_t cas, ItemPointer& fresh, Kept kept, Seconds now, Done& done) noexcept;
  Swap make_stale_if_same(Item& old, std::uint64_t cas, std::optional<Seconds> expires, Seconds now, Done& done) noexcept;

  [[nodiscard]] Stored link_set(PerCore& own, Item& item, std::size_t bytes, Seconds now) noexcept;
  struct Linked {
    std::uint64_t cas = 0;
    std::size_t replaced_bytes = 0;  ///< footprint of the item that was replaced
  };
  [[nodiscard]] Linked link(PerCore& own, Shard& shard, Item& item, std::size_t bytes, const Live& instead, Seconds now) noexcept;
  void unlink(Shard& shard, Item& item) noexcept;
  void retire(PerCore& own, Item& item, std::size_t bytes) noexcept;
  void count_linked(Shard& shard, std::size_t bytes) noexcept;
  void count_unlinked(Shard& shard, std::size_t bytes) noexcept;
  void enqueue(Shard& shard, Shard::Queue& queue, Item& item) noexcept;
  void dequeue(Shard& shard, Shard::Queue& queue, Item& item) noexcept;
  void dequeue(Shard& shard, Item& item, std::size_t bytes) noexcept;
  [[nodiscard]] static Seconds last_use(const Item& item) noexcept { return item.accessed.load(std::memory_order_relaxed) >> 1; }
  [[nodiscard]] Item* candidate(const Shard& shard) const noexcept;
  void note_candidate(const Shard& shard, std::uint32_t hash) noexcept;
  void promote(Shard& shard, Item& item) noexcept;
  [[nodiscard]] std::uint64_t items_estimate(const Shard& shard) const noexcept { return shard.counters.items * shard_count_; }
  void settle_link(std::uint64_t items, Seconds expires) noexcept;
  void note_expiry(Seconds expires) noexcept;
  void take_back(Shard& shard, Item& item) noexcept;
  void evict(Shard& shard, Item& item, bool used) noexcept;
  [[nodiscard]] bool move(Shard& shard, Item& item) noexcept;

  void raise_pressure() noexcept { pressure_.fetch_add(1, std::memory_order_seq_cst); }
  [[nodiscard]] PerCore& own_part() noexcept {
    const unsigned core = machine::this_core();
    require(core < cores_, "memcached: a core without its part of the store", core);
    return parts_[core];
  }
  [[nodiscard]] void* allocate_bytes(PerCore& own, std::size_t bytes) noexcept;
  [[nodiscard]] void* allocate_from_spare(std::size_t bytes) noexcept;
  void check_memory(PerCore& own) noexcept;
  void set_limit() noexcept;
  /// Returns by how much the limit is exceeded, with the reserves of the cores, or would be after an allocation of `more`.
  [[nodiscard]] std::size_t bytes_over_limit(std::size_t more = 0) const noexcept {
    const std::size_t taken = taken_bytes_.load(std::memory_order_relaxed) + held_bytes() + more;
    return taken - std::min(taken, limit_bytes_.load(std::memory_order_relaxed));
  }
  void want_room(std::size_t bytes) noexcept;
  /// 0 if the limit was lowered below the item that waits.
  [[nodiscard]] std::size_t room_wanted() const noexcept {
    const std::size_t wanted = room_wanted_.load(std::memory_order_relaxed);
    return wanted <= limit_bytes_.load(std::memory_order_relaxed) ? wanted : 0;
  }
  /// Returns a bound for the retired bytes, and for the bytes over the limit. Above the bound, a command with an item of `bytes` waits. The
  /// bound is higher for small items, so that clients with large items do not stop all other clients.
  [[nodiscard]] std::size_t backlog_bytes_max(std::size_t bytes) const noexcept {
    return bytes <= slab_item_bytes_max ? retired_bytes_max_ / 4 * 3 : retired_bytes_max_ / 2;
  }
  [[nodiscard]] bool relieve(std::size_t bytes, Seconds now) noexcept;
  [[nodiscard]] bool relieve_a_little(Seconds now) noexcept;
  [[nodiscard]] bool refill_spares() noexcept;
  [[nodiscard]] bool make_room(Seconds now) noexcept;
  [[nodiscard]] bool reserve(PerCore& own, std::size_t bytes, Seconds now) noexcept;
  [[nodiscard]] bool take_bytes(PerCore& own, std::size_t bytes, Seconds now) noexcept;
  void give_back_reserve(PerCore& own) noexcept;
  void relieve_core(PerCore& own) noexcept;
  [[nodiscard]] std::size_t spare_bytes_wanted() const noexcept;
  [[nodiscard]] std::uint64_t next_cas(PerCore& own, std::uint64_t above) noexcept;
  void take_cas_ids(PerCore& own) noexcept;
  [[nodiscard]] bool evict_for(PerCore& own, std::size_t bytes, Seconds now) noexcept;
  [[nodiscard]] bool evict_one(Seconds now) noexcept;
  [[nodiscard]] bool evict_from(Shard& shard, Seconds now, Seconds next_used, unsigned& chances) noexcept;
  static void reclaim(rcu::Node* node) noexcept;
  void release(Item& item) noexcept;
  void free(Item& item) noexcept;
  void free_pieces(const Item& item, unsigned count = Pieces::count_max) noexcept;

  // An item has one byte for its store. An image has one store; a program of tests has several at a time.
  static constexpr unsigned stores_max = 256;
  static inline constinit std::array<std::atomic<Store*>, stores_max> stores_{};
  [[nodiscard]] std::uint8_t claim_index() noexcept;

  const std::uint8_t index_ = claim_index();
  std::atomic<std::size_t> memory_bytes_;
  const bool evictions_, has_long_items_;
  const std::uint32_t value_bytes_max_, contiguous_max_, shard_count_;  // `contiguous_max_`: a longer value is in pieces, or too large
  const HashSeed seed_;
  void (*const retire_)(rcu::Node&) noexcept;
  const StoreMemory memory_;
  const unsigned cores_;
  const std::size_t retired_bytes_max_, retired_bytes_core_max_;
  const std::size_t spare_bytes_, spare_block_bytes_;  // of each core
  const unsigned spare_blocks_;
  const std::size_t reserve_bytes_, reserve_bytes_max_;
  const std::size_t unused_before_ = memory_.unused_bytes != nullptr ? memory_.unused_bytes() : 0;  // when the store was made
  std::unique_ptr<PerCore[]> parts_;                                                                // indexed by core
  Table table_;
  std::unique_ptr<Shard[]> shards_;
  std::atomic<std::uint64_t> flushed_cas_{0};  // items whose `cas` is up to this one are flushed
  std::atomic<Seconds> flush_due_{nothing_there};
  std::atomic<std::uint32_t> pressure_{0};  // signs of short memory, counted until `relieve` ends the shortage; 0: memory is not short
  alignas(64) std::array<std::atomic<Seconds>, shards_max> oldest_used_;  // when each shard's next candidate for eviction was last used
  alignas(64) std::atomic<std::uint64_t> cas_{0};                         // the largest CAS id that a core has taken
  std::atomic<std::size_t> taken_bytes_{0};                               // `used_bytes` and the reserves of all cores
  std::atomic<std::size_t> held_bytes_{0};
  std::atomic<std::size_t> limit_bytes_{memory_bytes()};  // `memory_bytes_`, or less while slabs are partly empty (`set_limit`)
  std::atomic<std::uint32_t> next_victim_{0};
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<EvictionObserver*> eviction_observer_{nullptr};
  std::atomic<Seconds> earliest_expiry_{no_expiry};
  std::atomic<bool> crawling_{false};
  void (*report_expiry_)(void*) noexcept = nullptr;
  void* report_context_ = nullptr;
  std::atomic<std::uint64_t> crawler_starts_{0}, crawler_checked_{0};
  std::array<std::atomic<std::uint64_t>, size_classes> crawler_reclaimed_{};  // items by size
  std::atomic<std::uint64_t> moves_left_{0};   // items that may be copied out of their slabs instead of evicted
  std::atomic<std::uint64_t> room_wanted_{0};  // bytes of a long item that waits, or waited until its client was gone
  SpinLock relief_;
  unsigned relief_round_ = 0;
};

}  // namespace neap::memcached
