// SPDX-License-Identifier: BSL-1.0
// The types that callers of the store pass and get: keys, outcomes, modes, options and counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "apps/memcached/clock.hpp"
#include "apps/memcached/hash.hpp"
#include "kernel/rcu.hpp"

namespace neap::memcached {

/// A key with its hash, which is computed once for each request. The key refers to the caller's bytes.
struct Key {
  std::string_view text;  ///< 1 to `key_bytes_max` bytes
  std::uint32_t hash;
};

/// The result of a request that changes the store.
enum class Outcome : std::uint8_t {
  stored,      ///< success, also of delete, touch, incr and decr
  not_stored,  ///< add of an existing key, or replace or append of a missing key
  exists,      ///< the item's CAS id is not the expected one
  not_found,
  not_numeric,  ///< incr or decr of a value that is not a decimal number
  too_large,
  out_of_memory,  ///< eviction freed no memory for the item
};

enum class Mode : std::uint8_t {
  set,
  add,
  replace,
  append,
  prepend,
  cas,
  append_or_add,   ///< append, or add if the key does not exist
  prepend_or_add,  ///< prepend, or add if the key does not exist
  cas_or_stale,    ///< as `cas`; if the expected id is older than the item's, the new item is stale and keeps the old item's expiry
};
/// True if the mode makes the new value of the old one.
constexpr bool joins(Mode mode) noexcept {
  return mode == Mode::append || mode == Mode::prepend || mode == Mode::append_or_add || mode == Mode::prepend_or_add;
}

using OwnCas = std::optional<std::uint64_t>;  ///< a CAS id that a client has chosen for the item that it stores

/// The properties that `Store::arithmetic` and `create_number` set, beside the value.
struct NumberExtras {
  std::optional<Seconds> expires{};  ///< otherwise the expiry stays; not for `create_number`
  OwnCas own_cas{};
  bool binary_key = false;
};

/// The allocator of a store's items.
struct StoreMemory {
  void* (*allocate)(std::size_t bytes) noexcept = [](std::size_t bytes) noexcept { return std::malloc(bytes); };
  void (*release)(void*) noexcept = [](void* memory) noexcept { std::free(memory); };
  bool (*shrink)(void*, std::size_t bytes) noexcept = nullptr;  ///< as `memory::shrink`; null: blocks are not shrunk
  std::uint64_t (*free_bytes)() noexcept = nullptr;             ///< the machine's free bytes, for `free_bytes_min`; null: not checked
  std::uint64_t (*unused_bytes)() noexcept = nullptr;           ///< as `memory::unused_slab_bytes`; null: not counted
  std::uint64_t free_bytes_min = 0;                             ///< with less free memory on the machine, the store evicts
};

struct StoreOptions {
  std::size_t memory_bytes = std::size_t{64} << 20;
  std::uint32_t value_bytes_max = 1 << 20;
  std::uint32_t shards = 64;        ///< number of locks and eviction queues: a power of two, 1 to 64
  std::uint32_t buckets = 1 << 14;  ///< initial size of the table: a power of two, at least `shards`
  HashSeed seed;                    ///< MUST be random if clients are not trusted
  unsigned cores = 1;               ///< number of cores that use the store, which MUST be the first ones
  StoreMemory memory;
  bool evictions = true;                          ///< false: if the memory is used up, storing fails
  void (*retire)(rcu::Node&) noexcept = nullptr;  ///< null: rcu::retire. Tests on one thread pass a function that reclaims at once.
};

/// Sums over all shards since start or `reset_counters`. The sums are no snapshot: the shards are read one after the other.
struct StoreCounters {
  std::uint64_t items = 0, items_ever = 0;
  std::uint64_t bytes = 0;              ///< bytes of linked items, including headers
  std::uint64_t evictions = 0;          ///< evicted items that had not expired
  std::uint64_t evicted_unfetched = 0;  ///< evicted items that were never read
  std::uint64_t expired_unfetched = 0;
  std::uint64_t reclaimed = 0;  ///< expired or flushed items that were unlinked
  std::uint64_t second_chances = 0;
  std::uint64_t chain_evictions = 0;  ///< items evicted because too many keys fell into one bucket
  std::uint64_t moved = 0;            ///< items copied so that their slabs become free
  std::uint64_t waits = 0;            ///< times that a command was delayed because memory was short
  std::uint64_t crawler_starts = 0, crawler_checked = 0, crawler_reclaimed = 0;  ///< passes of the crawler, items examined and freed
};

}  // namespace neap::memcached
