// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "apps/memcached/store_queues.hpp"
#include "kernel/machine.hpp"
#include "kernel/short_copy.hpp"

namespace neap::memcached {

void release_item(void* pointer) noexcept {
  auto* const item = static_cast<Item*>(pointer);
  const std::uint32_t before = item->references.fetch_sub(1, std::memory_order_acq_rel);
  require(before != 0, "memcached: an item is released once for each reference");
  if (before == 1) Store::of(*item).release(*item);
}

std::uint8_t Store::claim_index() noexcept {
  for (unsigned index = 0; index < stores_max; ++index) {
    Store* free = nullptr;
    if (stores_[index].compare_exchange_strong(free, this, std::memory_order_relaxed)) return static_cast<std::uint8_t>(index);
  }
  panic("memcached: too many stores");
}

Store::Store(const StoreOptions& options)
    : memory_bytes_(options.memory_bytes),
      evictions_(options.evictions),
      has_long_items_(options.value_bytes_max > long_item_bytes),
      value_bytes_max_(options.value_bytes_max),
      contiguous_max_(std::min(options.value_bytes_max, static_cast<std::uint32_t>(contiguous_bytes_max))),
      shard_count_(options.shards),
      seed_(options.seed),
      retire_(options.retire != nullptr ? options.retire : &rcu::retire),
      memory_(options.memory),
      cores_(std::max(options.cores, 1U)),
      retired_bytes_max_(std::min(options.memory_bytes / retired_share, cores_ * retired_bytes_core)),
      retired_bytes_core_max_(retired_bytes_max_ / cores_),
      spare_bytes_(std::min(spare_bytes_wanted(), options.memory_bytes / spare_share / cores_)),
      spare_block_bytes_(std::min(std::max(Pieces(value_bytes_max_).bytes, spare_block_bytes_min), spare_bytes_)),
      spare_blocks_(1 + static_cast<unsigned>(spare_bytes_ / std::max<std::size_t>(spare_block_bytes_, 1))),
      reserve_bytes_(std::min(options.memory_bytes / reserve_share / cores_, reserve_bytes_core)),
      reserve_bytes_max_(2 * reserve_bytes_),
      parts_(std::make_unique<PerCore[]>(cores_)),
      table_(options.buckets, retire_),
      shards_(std::make_unique<Shard[]>(options.shards)) {
  require(std::has_single_bit(options.shards) && options.shards <= shards_max, "memcached: shards are a power of two", options.shards);
  require(std::has_single_bit(options.buckets) && options.buckets >= options.shards,
          "memcached: buckets are a power of two, for each shard");
  require(spare_blocks_ <= spare_blocks_max, "memcached: a core has room for its spare blocks", spare_blocks_);
  for (auto& oldest : oldest_used_) oldest.store(nothing_there, std::memory_order_relaxed);
  if (!refill_spares()) raise_pressure();
}

Store::~Store() {
  for (std::uint32_t index = 0; index < shard_count_; ++index) {
    for (const Shard::Queue& queue : {shards_[index].probation, shards_[index].main}) {
      for (Item* item = queue.oldest; item != nullptr;) {
        Item* const next = item->place.order.newer;
        release_item(item);
        item = next;
      }
    }
  }
  for (unsigned core = 0; core < cores_; ++core) {
    for (const std::atomic<void*>& block : parts_[core].blocks) memory_.release(block.load(std::memory_order_relaxed));  // or null
  }
  require(used_bytes() == 0 && held_bytes() == 0 && retired_bytes() == 0, "memcached: an item is held longer than the store exists");
  stores_[index_].store(nullptr, std::memory_order_relaxed);
}

Key Store::key(std::string_view text) const noexcept { return {text, hash_key(text, seed_)}; }

// --- Finding -----------------------------------------------------------------------------------------------------------------------------
/// Unlinks an expired or flushed item that a reader found. This takes the lock, but only once for each item.
Store::Found Store::discard(Item& item, Seconds now) noexcept {
  const bool flushed = item.cas.load(std::memory_order_relaxed) <= flushed_cas_.load(std::memory_order_relaxed);
  Shard& shard = shard_of(item.hash);
  const std::lock_guard lock(shard.lock);
  for (Table::Place place = table_.first_place(item.hash); Item* const other = place.item(); place.move_behind(*other)) {
    if (other != &item) continue;
    if (is_dead(item, now)) take_back(shard, item);
    break;
  }
  return {.item = nullptr, .expired = !flushed, .flushed = flushed};
}

/// Returns the item with this key, or null. Unlinks the expired and flushed items of the chain, so that writers free such items as fast as
/// they store new ones. MUST be called under the shard's lock.
[[gnu::always_inline]] inline Store::Live Store::find_live(const Key& key, Seconds now, Shard& shard) noexcept {
  Live found;
  unsigned items = 0;
  Table::Place place = table_.first_place(key.hash);
  while (Item* const item = place.item()) {
    if (is_dead(*item, now) || ++items > chain_items_max) [[unlikely]]
      return find_live_and_clean(key, now, shard);
    if (Table::is(*item, key.text, key.hash)) found = {.item = item, .place = place};
    place.move_behind(*item);
  }
  return found;
}

/// As `find_live`, for a chain that has dead items or is too long. Such a chain loses its oldest item.
[[gnu::noinline]] Store::Live Store::find_live_and_clean(const Key& key, Seconds now, Shard& shard) noexcept {
  Live found;
  Item* oldest = nullptr;  // chains begin with their newest item
  unsigned items = 0;
  Table::Place place = table_.first_place(key.hash);
  while (Item* const item = place.item()) {
    if (is_dead(*item, now)) {
      take_back(shard, *item);
      if (place.item() != item) continue;  // otherwise another core has switched tables, and this chain is that of the old table
    } else {
      ++items;
      if (Table::is(*item, key.text, key.hash)) {
        found = {.item = item, .place = place};
      } else {
        oldest = item;
      }
    }
    place.move_behind(*item);
  }
  if (items > chain_items_max) {
    evict(shard, *oldest, (oldest->accessed.load(std::memory_order_relaxed) & 1) != 0);
    ++shard.counters.chain_evictions;
    found.place.forget();
  }
  return found;
}

/// Takes the lock, so that a copy that replaces the item at the same moment also has the new expiry (`swap_if_same`, `move`).
Store::Found Store::touch(const Key& key, Seconds expires, Seconds now, bool marks_use) noexcept {
  Found found = marks_use ? find(key, now) : peek(key, now);  // distinguishes expired and flushed items
  if (found.item == nullptr) return found;
  Shard& shard = shard_of(key.hash);
  const std::lock_guard lock(shard.lock);
  found.item = find_live(key, now, shard).item;
  if (found.item == nullptr) return found;
  found.item->expires.store(expires, std::memory_order_relaxed);
  note_expiry(expires);
  return found;
}

// --- Memory ------------------------------------------------------------------------------------------------------------------------------
/// Counts `bytes` as used, from this core's reserve if it suffices. Returns false if they are over the limit.
inline bool Store::reserve(PerCore& own, std::size_t bytes, Seconds now) noexcept {
  if (own.reserved_bytes.value() < bytes || bytes_over_limit() != 0) [[unlikely]]
    return take_bytes(own, bytes, now);
  own.reserved_bytes.subtract(bytes);
  return true;
}

inline void* Store::allocate_bytes(PerCore& own, std::size_t bytes) noexcept {
  void* const memory = memory_.allocate(bytes);
  if (memory == nullptr) [[unlikely]]
    return allocate_from_spare(bytes);
  own.unchecked_bytes += bytes;
  if (own.unchecked_bytes >= checked_bytes) [[unlikely]]
    check_memory(own);
  return memory;
}

// --- Storing -----------------------------------------------------------------------------------------------------------------------------
Store::Allocated Store::allocate(const Key& key, std::uint32_t flags, Seconds expires, std::uint64_t value_bytes, Seconds now,
                                 OwnCas own_cas) noexcept {
  const std::size_t more_bytes = own_cas ? Item::own_cas_bytes : 0;
  const Made made = value_bytes > contiguous_max_ ? make_in_pieces(own_part(), key, flags, expires, value_bytes, more_bytes, now)
                                                  : make_contiguous(own_part(), key, flags, expires, value_bytes, more_bytes, now);
  if (own_cas && made.item != nullptr) {
    made.item->add_marks(Item::mark_own_cas);
    std::memcpy(made.item->line_end() + 2, &*own_cas, Item::own_cas_bytes);
  }
  return {.item = ItemPointer(made.item), .outcome = made.outcome};
}

Store::Done Store::commit(Mode mode, ItemPointer item, std::uint64_t expected_cas, Seconds now) noexcept {
  require(item && item->store == index_ && item->cas.load(std::memory_order_relaxed) == 0,
          "memcached: only an item that was never linked is committed");
  const Key key{item->key(), item->hash};
  const std::uint32_t value_bytes = item->value_bytes;
  for (unsigned attempt = 0; attempt < optimistic_tries_max; ++attempt) {
    Mode how = mode;
    if (joins(mode)) {
      const Done done = join(*item.get(), mode == Mode::append || mode == Mode::append_or_add, expected_cas, now);
      if (done.outcome != Outcome::not_stored || mode == Mode::append || mode == Mode::prepend) return done;
      how = Mode::add;  // there was no item; if another core adds one now, that item is tried
    }
    const Stored stored = link_item(own_part(), how, key, *item.get(), footprint(*item.get()), how == mode ? expected_cas : 0, now);
    if (how != mode && stored.outcome == Outcome::not_stored) continue;
    if (stored.outcome != Outcome::stored) return {.outcome = stored.outcome, .value_bytes = value_bytes};
    const Item* const linked = item.detach();  // the reference belongs to the table; the item is readable until the event's end
    return {.outcome = Outcome::stored,
            .cas = linked->has_mark(Item::mark_own_cas) ? linked->client_cas() : stored.cas,
            .value_bytes = value_bytes};
  }
  return {.outcome = Outcome::out_of_memory};
}

Store::Stored Store::set(const Key& key, std::uint32_t flags, Seconds expires, std::string_view value, Seconds now) noexcept {
  if (value.size() > contiguous_max_) [[unlikely]]
    return set_in_pieces(key, flags, expires, value, now);
  PerCore& own = own_part();
  const Made made = make_contiguous(own, key, flags, expires, value.size(), 0, now);
  if (made.item == nullptr) [[unlikely]]
    return {.outcome = made.outcome};
  require(value.size() == made.item->value_bytes, "memcached: a value fits into its item", value.size());
  copy_medium(made.item->key_data() + key.text.size(), value.data(), value.size());
  return link_set(own, *made.item, made.bytes, now);
}

/// A function of its own, because together with `set` it has too many variables for the registers.
[[gnu::noinline]] Store::Stored Store::link_set(PerCore& own, Item& item, std::size_t bytes, Seconds now) noexcept {
  return link_item(own, Mode::set, {item.key(), item.hash}, item, bytes, 0, now);
}

[[gnu::noinline]] Store::Stored Store::set_in_pieces(const Key& key, std::uint32_t flags, Seconds expires, std::string_view value,
                                                     Seconds now) noexcept {
  auto [item, outcome] = allocate(key, flags, expires, value.size(), now);
  if (!item) return {.outcome = outcome};
  item->fill(0, value);
  const Done done = commit(Mode::set, std::move(item), 0, now);
  return {.outcome = done.outcome, .cas = done.cas};
}

/// Constructs an item without its value. `memory` has room for `Item::first_block_bytes`.
[[gnu::always_inline]] inline Item* Store::construct(void* memory, const Key& key, std::uint32_t flags, Seconds expires,
                                                     std::uint64_t value_bytes) const noexcept {
  auto* const item = new (memory) Item{.next = {nullptr, nullptr},
                                       .hash = key.hash,
                                       .value_bytes = static_cast<std::uint32_t>(value_bytes),
                                       .expires = expires,
                                       .accessed = 0,
                                       .cas = 0,
                                       .flags = flags,
                                       .references = 1,
                                       .place = {},
                                       .store = index_,
                                       .key_bytes = static_cast<std::uint8_t>(key.text.size())};
  copy_short(item->key_data(), key.text.data(), key.text.size());
  return item;
}

/// `value_bytes`: at most `contiguous_max_`.
[[gnu::always_inline]] inline Store::Made Store::make_contiguous(PerCore& own, const Key& key, std::uint32_t flags, Seconds expires,
                                                                 std::uint64_t value_bytes, std::size_t more_bytes, Seconds now) noexcept {
  require(!key.text.empty() && key.text.size() <= key_bytes_max, "memcached: length of a key", key.text.size());
  const std::size_t bytes = memory::heap_bytes(Item::header_bytes + key.text.size() + value_bytes + 2 + more_bytes);  // the footprint
  void* memory = nullptr;
  if (reserve(own, bytes, now)) [[likely]] {
    memory = allocate_bytes(own, Item::contiguous_bytes(key.text.size(), value_bytes, more_bytes));
    // Eviction here would not help, because the evicted memory is free only after a grace period. `relieve` evicts before the next command.
    if (memory == nullptr) own.reserved_bytes.add(bytes);
  }
  if (memory == nullptr) return {.item = nullptr, .outcome = Outcome::out_of_memory};
  Item* const item = construct(memory, key, flags, expires, value_bytes);
  std::memcpy(item->key_data() + key.text.size() + value_bytes, "\r\n", 2);
  return {.item = item, .outcome = Outcome::stored, .bytes = bytes};
}

/// All pieces are allocated at once, before the value arrives. So the accounts have the whole item from the beginning, and a value that has
/// begun to arrive always finds room.
[[gnu::noinline]] Store::Made Store::make_in_pieces(PerCore& own, const Key& key, std::uint32_t flags, Seconds expires,
                                                    std::uint64_t value_bytes, std::size_t more_bytes, Seconds now) noexcept {
  require(!key.text.empty() && key.text.size() <= key_bytes_max, "memcached: length of a key", key.text.size());
  if (value_bytes > value_bytes_max_) return {.item = nullptr, .outcome = Outcome::too_large};
  const std::size_t bytes = footprint(key.text.size(), value_bytes, more_bytes);
  // An item that is larger than the limit MUST NOT evict all others before it is refused.
  if (bytes > limit_bytes_.load(std::memory_order_relaxed) || !reserve(own, bytes, now))
    return {.item = nullptr, .outcome = Outcome::out_of_memory};
  void* const memory = allocate_bytes(own, Item::first_block_bytes(key.text.size(), value_bytes, more_bytes));
  Item* const item = memory != nullptr ? construct(memory, key, flags, expires, value_bytes) : nullptr;
  if (item == nullptr || !allocate_pieces(own, *item)) {
    memory_.release(memory);
    own.reserved_bytes.add(bytes);
    give_back_reserve(own);
    return {.item = nullptr, .outcome = Outcome::out_of_memory};
  }
  std::memcpy(item->line_end(), "\r\n", 2);
  return {.item = item, .outcome = Outcome::stored, .bytes = bytes};
}

/// Returns false, and keeps no piece, if there is no memory for a piece.
bool Store::allocate_pieces(PerCore& own, Item& item) noexcept {
  const Pieces pieces(item.value_bytes);
  for (unsigned index = 0; index < pieces.count; ++index) {
    void* const block = allocate_bytes(own, pieces.bytes_of(index));
    if (block == nullptr) {
      free_pieces(item, index);
      return false;
    }
    item.set_piece(index, static_cast<char*>(block));
  }
  return true;
}

/// Links `item`, which has this key and the footprint `bytes`. The outcome `stored` passes the caller's reference to the table.
[[gnu::always_inline]] inline Store::Stored Store::link_item(PerCore& own, Mode mode, const Key& key, Item& item, std::size_t bytes,
                                                             std::uint64_t expected_cas, Seconds now) noexcept {
  const bool is_cas = mode == Mode::cas || mode == Mode::cas_or_stale;
  Shard& shard = shard_of(key.hash);
  Item* replaced = nullptr;
  Linked linked{};
  std::uint64_t items = 0;
  {
    const std::lock_guard lock(shard.lock);
    const Live old = find_live(key, now, shard);
    if (old.item != nullptr) {
      if (mode == Mode::add) return {.outcome = Outcome::not_stored};
      if ((is_cas || expected_cas != 0) && (expected_cas == 0 || old.item->client_cas() != expected_cas)) {
        if (mode != Mode::cas_or_stale || expected_cas == 0 || expected_cas > old.item->client_cas()) return {.outcome = Outcome::exists};
        item.expires.store(old.item->expires.load(std::memory_order_relaxed), std::memory_order_relaxed);
        item.add_marks(Item::mark_stale | (old.item->marks.load(std::memory_order_relaxed) & Item::mark_win_sent));
      }
    } else {
      if (mode == Mode::replace) return {.outcome = Outcome::not_stored};
      if (is_cas || expected_cas != 0) return {.outcome = Outcome::not_found};
    }
    linked = link(own, shard, item, bytes, old, now);
    replaced = old.item;
    if (replaced == nullptr) items = items_estimate(shard);
  }
  if (replaced != nullptr) [[likely]]
    retire(own, *replaced, linked.replaced_bytes);
  const Seconds expires = item.expires.load(std::memory_order_relaxed);
  if ((items | expires) != 0 || table_.is_growing()) [[unlikely]]
    settle_link(items, expires);
  return {.outcome = Outcome::stored, .cas = linked.cas};
}

/// Replaces `old` by `fresh` if `old` is still the item with this key, and has not become stale since its `cas` was read. Expiry and marks
/// are read under the lock, because `old` may be touched, or a win be sent, while `fresh` is filled.
Store::Swap Store::swap_if_same(Item& old, std::uint64_t cas, ItemPointer& fresh, Kept kept, Seconds now, Done& done) noexcept {
  Shard& shard = shard_of(old.hash);
  const std::lock_guard lock(shard.lock);
  const Live live = find_live({old.key(), old.hash}, now, shard);
  if (live.item != &old || old.cas.load(std::memory_order_relaxed) != cas) return Swap::changed;
  if (kept.expiry) fresh->expires.store(old.expires.load(std::memory_order_relaxed), std::memory_order_relaxed);
  const unsigned marks = old.marks.load(std::memory_order_relaxed) | (old.was_fetched() ? Item::mark_fetched : 0);
  fresh->add_marks(static_cast<std::uint8_t>(marks & kept.marks));
  Item& item = *fresh.detach();  // the reference now belongs to the table
  const Linked linked = link(own_part(), shard, item, footprint(item), live, now);
  retire(own_part(), old, linked.replaced_bytes);
  note_expiry(item.expires.load(std::memory_order_relaxed));
  done.cas = item.client_cas();
  return Swap::done;
}

/// Makes `old` stale in place, under the conditions of `swap_if_same`. The new id is taken before the last look at the flush: a flush that
/// comes later covers the id. So an item cannot outlive a flush by becoming stale.
Store::Swap Store::make_stale_if_same(Item& old, std::uint64_t cas, std::optional<Seconds> expires, Seconds now, Done& done) noexcept {
  Shard& shard = shard_of(old.hash);
  const std::lock_guard lock(shard.lock);
  if (find_live({old.key(), old.hash}, now, shard).item != &old || old.cas.load(std::memory_order_relaxed) != cas) return Swap::changed;
  done.cas = next_cas(own_part(), cas);
  if (is_dead(old, now)) return Swap::changed;
  if (expires) {
    old.expires.store(*expires, std::memory_order_relaxed);
    note_expiry(*expires);
  }
  const std::uint8_t marks = old.marks.load(std::memory_order_relaxed);
  old.marks.store(static_cast<std::uint8_t>((marks | Item::mark_stale) & ~Item::mark_win_sent), std::memory_order_relaxed);
  old.cas.store(done.cas, std::memory_order_release);  // after the mark: see `Item::marks`
  return Swap::done;
}

/// Takes the lock, because a copy of the item (`move`) would not have a mark that another core sets meanwhile.
std::optional<Store::Win> Store::win(Item& item, Seconds now) noexcept {
  Shard& shard = shard_of(item.hash);
  const std::lock_guard lock(shard.lock);
  if (find_live({item.key(), item.hash}, now, shard).item != &item) return std::nullopt;
  const std::uint8_t marks = item.marks.load(std::memory_order_relaxed);
  item.add_marks(Item::mark_win_sent);
  return Win{.marks = marks, .cas = item.client_cas()};
}

Store::Done Store::remove(const Key& key, std::uint64_t expected_cas, Seconds now) noexcept {
  Shard& shard = shard_of(key.hash);
  const std::lock_guard lock(shard.lock);
  Item* const item = find_live(key, now, shard).item;
  if (item == nullptr) return {.outcome = Outcome::not_found};
  if (expected_cas != 0 && item->client_cas() != expected_cas) return {.outcome = Outcome::exists};
  unlink(shard, *item);
  return {.outcome = Outcome::stored};
}

void Store::flush(Seconds when, Seconds now) noexcept {
  if (when > now) {
    flush_due_.store(when, std::memory_order_relaxed);
    return;
  }
  flush_due_.store(nothing_there, std::memory_order_relaxed);
  flush_up_to_now();
}

/// A core drops the CAS ids that it took before a flush (`next_cas`), so all items that are stored later have larger ids.
/// Another core may flush newer items between the load and `raise_to`. These items stay flushed, because `raise_to` never lowers the id.
void Store::flush_up_to_now() noexcept { detail::raise_to(flushed_cas_, cas_.load(std::memory_order_relaxed)); }

void Store::flush_due(Seconds now) noexcept {
  Seconds due = flush_due_.load(std::memory_order_relaxed);
  if (now < due || !flush_due_.compare_exchange_strong(due, nothing_there, std::memory_order_relaxed)) return;
  flush_up_to_now();
}

// --- Linking; under the shard's lock -----------------------------------------------------------------------------------------------------
// `above`: the id of the item that is replaced. The ids that a core takes are above all ids taken before, on any core.
inline std::uint64_t Store::next_cas(PerCore& own, std::uint64_t above) noexcept {
  if (own.next_cas > own.last_cas || own.next_cas <= above || own.next_cas <= flushed_cas_.load(std::memory_order_relaxed)) [[unlikely]]
    take_cas_ids(own);
  return own.next_cas++;
}

/// `instead`: the live item with the same key, which `item` replaces, if there is one. The caller MUST retire it.
[[gnu::always_inline]] inline Store::Linked Store::link(PerCore& own, Shard& shard, Item& item, std::size_t bytes, const Live& instead,
                                                        Seconds now) noexcept {
  const std::uint64_t cas = next_cas(own, instead.item != nullptr ? instead.item->cas.load(std::memory_order_relaxed) : 0);
  item.cas.store(cas, std::memory_order_relaxed);
  item.accessed.store(now << 1, std::memory_order_relaxed);
  ++shard.counters.items_ever;
  if (instead.item == nullptr) {
    count_linked(shard, bytes);
    enqueue(shard, shard.probation, item);
    table_.insert(item);
    return {.cas = cas};
  }
  Item& old = *instead.item;
  const std::size_t replaced_bytes = footprint(old);
  if (bytes != replaced_bytes) {
    count_linked(shard, bytes);
    count_unlinked(shard, replaced_bytes);
  }
  enqueue(shard, shard.probation, item);
  table_.replace_at(instead.place, old, item);
  dequeue(shard, old, replaced_bytes);
  return {.cas = cas, .replaced_bytes = replaced_bytes};
}

void Store::unlink(Shard& shard, Item& item) noexcept {
  const std::size_t bytes = footprint(item);
  count_unlinked(shard, bytes);
  table_.remove(item);
  dequeue(shard, item, bytes);
  retire(own_part(), item, bytes);
}

void Store::count_linked(Shard& shard, std::size_t bytes) noexcept {
  require(size_class(bytes) < size_classes, "memcached: an item's size has a class", bytes);
  SizeClass& size = shard.sizes[size_class(bytes)];
  ++size.items;
  size.bytes += bytes;
  ++shard.counters.items;
  shard.counters.bytes += bytes;
}

void Store::count_unlinked(Shard& shard, std::size_t bytes) noexcept {
  SizeClass& size = shard.sizes[size_class(bytes)];
  require(size.items != 0 && size.bytes >= bytes, "memcached: an unlinked item was counted when it was linked", bytes);
  --size.items;
  size.bytes -= bytes;
  --shard.counters.items;
  shard.counters.bytes -= bytes;
}

/// Called after an item was linked. `items`: an estimate for the table, 0 if the item has replaced another one, because only a new item can
/// make the table too small.
void Store::settle_link(std::uint64_t items, Seconds expires) noexcept {
  if (items != 0 || table_.is_growing()) {
    table_.grow_a_little(items, [this](std::uint32_t hash) -> SpinLock& { return shard_of(hash).lock; });
  }
  note_expiry(expires);
}

}  // namespace neap::memcached
