// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/table.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>

#include "kernel/panic.hpp"

namespace neap::memcached {

Table::Buckets* Table::allocate(Table* table, std::uint32_t buckets, std::uint32_t parity) noexcept {
  // The heads are not cleared here, because a large array would block the core for milliseconds. Copying a bucket writes its head.
  void* const memory = std::malloc(sizeof(Buckets) + std::size_t{buckets} * sizeof(std::atomic<Item*>));
  if (memory == nullptr) return nullptr;
  return new (memory) Buckets{.node = {}, .table = table, .mask = buckets - 1, .parity = parity};
}

Table::Table(std::uint32_t buckets, Retire retire) noexcept : retire_(retire) {
  require(buckets > 0 && (buckets & (buckets - 1)) == 0, "memcached: the buckets of a table are a power of two", buckets);
  Buckets* const first = allocate(this, buckets, 0);
  if (first == nullptr) return;
  for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) new (&first->heads()[bucket]) std::atomic<Item*>(nullptr);
  current_.store(first, std::memory_order_release);
}

Table::~Table() {
  std::free(growing_.load());
  std::free(current_.load());
}

void Table::replace(Item& old, Item& item) noexcept {
  require(old.hash == item.hash, "memcached: an item is replaced by one of the same key", old.hash);
  in_every_array(item.hash, [&](Buckets& buckets) { unlink(buckets, old, &item); });
}

void Table::remove(Item& item) noexcept {
  in_every_array(item.hash, [&](Buckets& buckets) { unlink(buckets, item, nullptr); });
}

void Table::move_bucket(Buckets& from, Buckets& to, std::uint32_t bucket) noexcept {
  const std::uint32_t buckets = from.mask + 1;
  require(bucket < buckets && to.mask == from.mask * 2 + 1, "memcached: a bucket is copied to a table of twice the size", bucket);
  new (&to.heads()[bucket]) std::atomic<Item*>(nullptr);
  new (&to.heads()[bucket + buckets]) std::atomic<Item*>(nullptr);
  for (Item* item = from.heads()[bucket].load(std::memory_order_relaxed); item != nullptr;
       item = item->next[from.parity].load(std::memory_order_relaxed)) {
    std::atomic<Item*>& head = to.heads()[item->hash & to.mask];
    item->next[to.parity].store(head.load(std::memory_order_relaxed), std::memory_order_relaxed);
    head.store(item, std::memory_order_relaxed);
  }
  moved_.store(bucket + 1, std::memory_order_release);
}

void Table::grow_step(std::uint64_t items, LockFunction lock_of, void* context) noexcept {
  if (!growth_.try_lock()) return;  // another core grows the table
  const std::lock_guard unlock(growth_, std::adopt_lock);
  Buckets* const from = current_.load(std::memory_order_relaxed);
  Buckets* to = growing_.load(std::memory_order_relaxed);
  if (to == nullptr) {
    if (!wants_to_grow(items) || old_array_waits_.load(std::memory_order_acquire) || bucket_count() >= buckets_max ||
        items < refused_at_items_ * 2) {
      return;
    }
    to = allocate(this, bucket_count() * 2, from->parity ^ 1);
    if (to == nullptr) {
      refused_at_items_ = items;  // longer chains are slower but correct
      return;
    }
    moved_.store(0, std::memory_order_relaxed);
    growing_.store(to, std::memory_order_release);
  }
  const std::uint32_t first = moved_.load(std::memory_order_relaxed);
  const std::uint32_t end = std::min(first + buckets_a_step, from->mask + 1);
  for (std::uint32_t bucket = first; bucket < end; ++bucket) {
    const std::lock_guard lock(lock_of(context, bucket));
    move_bucket(*from, *to, bucket);
  }
  if (end <= from->mask) return;
  current_.store(to, std::memory_order_release);
  growing_.store(nullptr, std::memory_order_release);
  old_array_waits_.store(true, std::memory_order_relaxed);
  from->node.reclaim = [](rcu::Node* node) noexcept {
    auto* const array = reinterpret_cast<Buckets*>(node);  // the node is the array's first member
    array->table->old_array_waits_.store(false, std::memory_order_release);
    std::free(array);
  };
  retire_(from->node);
}

}  // namespace neap::memcached
