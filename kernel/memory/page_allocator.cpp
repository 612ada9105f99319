// SPDX-License-Identifier: BSL-1.0
// One zone for each memory range. A zone keeps free blocks of 2^order pages in lists, which are linked through the pages themselves. It
// also keeps one word for each page, which states what begins at that page. So freeing needs no size, merging needs no search, and wrong
// frees are found at once.
#include "kernel/memory/page_allocator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <utility>

#include "kernel/counter.hpp"
#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::memory {
namespace {

// Values of a page's word. The kind is in the two highest bits.
enum Kind : std::uint32_t {
  inside = 0,             // the page belongs to a block or run that begins earlier
  free_block = 1U << 30,  // low bits: order
  run = 2U << 30,         // low bits: pages
  cached = 3U << 30,      // a single page in some core's cache
  kind_mask = 3U << 30,
};

struct FreeBlock {
  FreeBlock* next;
  FreeBlock* previous;
};

/// Part of a zone, by page index.
struct Pages {
  std::uint64_t first, count;
};

class Zone {
 public:
  constexpr Zone() = default;

  void initialise(const machine::MemoryRange& range) noexcept;
  void* allocate(std::uint64_t pages, unsigned order) noexcept;
  void release(void* pointer, std::uint64_t pages) noexcept;
  void shorten(void* pointer, std::uint64_t from, std::uint64_t to) noexcept;
  void set_word(const void* pointer, std::uint32_t word) noexcept { word_of(pointer).store(word, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t word(const void* pointer) noexcept { return word_of(pointer).load(std::memory_order_relaxed); }
  [[nodiscard]] bool contains(const void* pointer) const noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(begin_) < pages_ * page_bytes;
  }
  [[nodiscard]] std::uint64_t free_pages() const noexcept { return free_pages_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t usable_pages() const noexcept { return usable_pages_; }
  [[nodiscard]] unsigned node() const noexcept { return node_; }

 private:
  [[nodiscard]] std::uint64_t index_of(const void* pointer) const noexcept {
    return (reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(begin_)) / page_bytes;
  }
  [[nodiscard]] void* address_of(std::uint64_t index) const noexcept { return begin_ + index * page_bytes; }
  [[nodiscard]] std::atomic<std::uint32_t>& word_of(const void* pointer) noexcept { return words_[index_of(pointer)]; }
  void link(std::uint64_t index, unsigned order) noexcept;
  void unlink(std::uint64_t index, unsigned order) noexcept;
  void free_block_at(std::uint64_t index, unsigned order) noexcept;
  void free_pages_at(Pages pages) noexcept;
  void* allocate_joined(std::uint64_t pages) noexcept;
  [[nodiscard]] std::uint64_t free_row_from(std::uint64_t index, std::uint64_t enough) const noexcept;
  void* take(Pages row, std::uint64_t pages) noexcept;

  static constexpr unsigned joined_blocks_max = 4;

  SpinLock lock_;
  std::byte* begin_ = nullptr;
  std::uint64_t frame_ = 0;  // physical page number of `begin_`; runs are aligned by physical page number
  std::uint64_t pages_ = 0, usable_pages_ = 0;
  std::atomic<std::uint64_t> free_pages_{0};
  std::uint32_t filled_orders_ = 0;
  unsigned node_ = 0;
  std::atomic<std::uint32_t>* words_ = nullptr;  // atomic, because a wrong free may read any word without the lock
  std::array<FreeBlock*, order_max + 1> lists_{};
};

/// The first pages of a range hold the words. Returns the number of these pages, rounded up so that the zone's first page is aligned to 64
/// KiB. The heap clears the low bits of any pointer to find the slab around it, and must not read before the zone.
std::uint64_t before_first_page(const machine::MemoryRange& range) noexcept {
  constexpr std::uint64_t slab_pages = 16;
  const std::uint64_t word_pages = (range.bytes / page_bytes * sizeof(std::uint32_t) + page_bytes - 1) / page_bytes;
  const std::uint64_t frame = range.physical / page_bytes;
  return (frame + word_pages + slab_pages - 1) / slab_pages * slab_pages - frame;
}

void Zone::initialise(const machine::MemoryRange& range) noexcept {
  begin_ = static_cast<std::byte*>(machine::direct_map(range.physical));
  frame_ = range.physical / page_bytes;
  pages_ = range.bytes / page_bytes;
  node_ = range.node;
  const std::uint64_t own_pages = before_first_page(range);
  words_ = reinterpret_cast<std::atomic<std::uint32_t>*>(begin_);
  for (std::uint64_t i = 0; i < pages_; ++i) new (&words_[i]) std::atomic<std::uint32_t>(inside);
  usable_pages_ = pages_ - own_pages;
  free_pages_at({own_pages, usable_pages_});
}

void Zone::link(std::uint64_t index, unsigned order) noexcept {
  auto* const block = static_cast<FreeBlock*>(address_of(index));
  block->next = lists_[order];
  block->previous = nullptr;
  if (block->next != nullptr) block->next->previous = block;
  lists_[order] = block;
  filled_orders_ |= 1U << order;
  words_[index].store(free_block | order, std::memory_order_relaxed);
}

void Zone::unlink(std::uint64_t index, unsigned order) noexcept {
  auto* const block = static_cast<FreeBlock*>(address_of(index));
  (block->previous == nullptr ? lists_[order] : block->previous->next) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  if (lists_[order] == nullptr) filled_orders_ &= ~(1U << order);
  words_[index].store(inside, std::memory_order_relaxed);
}

void Zone::free_block_at(std::uint64_t index, unsigned order) noexcept {
  require(index < pages_ && order <= order_max, "page allocator: a free block outside of its zone", index);
  for (; order < order_max; ++order) {
    const std::uint64_t buddy_frame = (frame_ + index) ^ (std::uint64_t{1} << order);
    const std::uint64_t buddy = buddy_frame - frame_;  // wraps to a huge index if the buddy is before the zone
    if (buddy >= pages_ || words_[buddy].load(std::memory_order_relaxed) != (free_block | order)) break;
    unlink(buddy, order);
    index = std::min(index, buddy);
  }
  link(index, order);
}

void Zone::free_pages_at(Pages pages) noexcept {
  free_pages_.fetch_add(pages.count, std::memory_order_relaxed);
  while (pages.count != 0) {
    const std::uint64_t frame = frame_ + pages.first;
    const unsigned aligned = frame == 0 ? order_max : static_cast<unsigned>(std::countr_zero(frame));
    const unsigned fits = static_cast<unsigned>(std::bit_width(pages.count)) - 1;
    const unsigned order = std::min({aligned, fits, order_max});
    free_block_at(pages.first, order);
    pages.first += std::uint64_t{1} << order;
    pages.count -= std::uint64_t{1} << order;
  }
}

/// Allocates a run from one block of at least 2^order pages, or with order 0 from any adjacent free blocks.
void* Zone::allocate(std::uint64_t pages, unsigned order) noexcept {
  const std::lock_guard guard(lock_);
  if (order == 0 && !std::has_single_bit(pages)) {
    if (void* const joined = allocate_joined(pages); joined != nullptr) return joined;
  }
  order = std::max(order, static_cast<unsigned>(std::bit_width(pages - 1)));
  const std::uint32_t large_enough = filled_orders_ >> order;
  if (large_enough == 0) return nullptr;
  const unsigned found = order + static_cast<unsigned>(std::countr_zero(large_enough));
  return take({index_of(lists_[found]), std::uint64_t{1} << found}, pages);
}

// Joins adjacent free blocks. A run of 257 pages leaves a remainder of its block. The remainder is too small for another such run, but
// large enough together with its neighbour. Without joining, runs whose length is not a power of two would waste up to half of memory. The
// search starts with the smallest blocks, because the remainder of a split block begins with its smallest part. The search is bounded: only
// the newest few blocks of each order are examined.
void* Zone::allocate_joined(std::uint64_t pages) noexcept {
  const auto largest = static_cast<unsigned>(std::bit_width(pages)) - 1;
  for (unsigned order = 0; order <= largest; ++order) {
    unsigned looked = 0;
    for (const FreeBlock* block = lists_[order]; block != nullptr && looked < joined_blocks_max; block = block->next, ++looked) {
      const Pages row{index_of(block), free_row_from(index_of(block), pages)};
      if (row.count >= pages) return take(row, pages);
    }
  }
  return nullptr;
}

/// Number of pages in adjacent free blocks from `index` on; stops counting when it reaches `enough`.
std::uint64_t Zone::free_row_from(std::uint64_t index, std::uint64_t enough) const noexcept {
  std::uint64_t count = 0;
  while (count < enough && index + count < pages_) {
    const std::uint32_t word = words_[index + count].load(std::memory_order_relaxed);
    if ((word & kind_mask) != free_block) break;
    count += std::uint64_t{1} << (word & ~kind_mask);
  }
  return count;
}

/// Makes the first `pages` pages of adjacent free blocks a run, and frees the remainder.
void* Zone::take(Pages row, std::uint64_t pages) noexcept {
  require(pages != 0 && pages <= row.count, "page allocator: a run longer than its blocks", pages);
  for (std::uint64_t at = 0; at < row.count;) {
    const std::uint32_t order = words_[row.first + at].load(std::memory_order_relaxed) & ~kind_mask;
    unlink(row.first + at, order);
    at += std::uint64_t{1} << order;
  }
  free_pages_.fetch_sub(row.count, std::memory_order_relaxed);
  // The run is marked first, so that the remainder does not merge with it.
  words_[row.first].store(run | static_cast<std::uint32_t>(pages), std::memory_order_relaxed);
  free_pages_at({row.first + pages, row.count - pages});
  return address_of(row.first);
}

void Zone::release(void* pointer, std::uint64_t pages) noexcept {
  const std::lock_guard guard(lock_);
  words_[index_of(pointer)].store(inside, std::memory_order_relaxed);
  free_pages_at({index_of(pointer), pages});
}

void Zone::shorten(void* pointer, std::uint64_t from, std::uint64_t to) noexcept {
  const std::lock_guard guard(lock_);
  words_[index_of(pointer)].store(run | static_cast<std::uint32_t>(to), std::memory_order_relaxed);
  free_pages_at({index_of(pointer) + to, from - to});
}

constinit std::array<Zone, ranges_max> zones;
constinit unsigned zone_count = 0;
constinit std::atomic<std::uint64_t> refused{0}, foreign{0};
constinit thread_local unsigned preferred_node = 0;

Zone* zone_of(const void* pointer) noexcept {
  for (unsigned i = zone_count; i-- > 0;) {  // backwards, because most memory is in the last zones
    if (zones[i].contains(pointer)) return &zones[i];
  }
  return nullptr;
}

// For each node: the order in which its cores try the zones. Zones of near nodes come first. Within a node the highest addresses come
// first, because some devices can address only low memory.
using ZoneOrder = std::array<std::uint8_t, ranges_max>;
constinit std::array<ZoneOrder, machine::nodes_max> zone_orders{};

void order_zones(unsigned node) noexcept {
  ZoneOrder& order = zone_orders[node];
  const auto distance = [node](std::uint8_t zone) { return machine::node_distance(node, zones[zone].node()); };
  for (unsigned i = 0; i < zone_count; ++i) order[i] = static_cast<std::uint8_t>(i);
  std::sort(order.begin(), order.begin() + zone_count,
            [&](std::uint8_t a, std::uint8_t b) { return std::pair(distance(a), -int{a}) < std::pair(distance(b), -int{b}); });
}

void* allocate_anywhere(std::uint64_t pages, unsigned order) noexcept {
  const unsigned node = preferred_node;
  for (unsigned i = 0; i < zone_count; ++i) {
    Zone& zone = zones[zone_orders[node][i]];
    void* const pointer = zone.allocate(pages, order);
    if (pointer == nullptr) continue;
    if (zone.node() != node) [[unlikely]]
      foreign.fetch_add(1, std::memory_order_relaxed);
    return pointer;
  }
  return nullptr;
}

// Each core keeps a few single pages, because they are allocated and freed often (buffers, small rings).
struct PageCache {
  static constexpr unsigned pages_max = 64, batch_pages = 16;
  Counter count;  // written by this core only
  std::array<void*, pages_max> pages{};
};
constinit std::array<PageCache, machine::cores_max> caches;

void* take_cached() noexcept {
  PageCache& cache = caches[machine::this_core()];
  std::uint64_t count = cache.count.value();
  if (count == 0) {
    while (count < PageCache::batch_pages) {
      void* const page = allocate_anywhere(1, 0);
      if (page == nullptr) break;
      zone_of(page)->set_word(page, cached);
      cache.pages[count++] = page;
    }
    cache.count.add(count);
    if (count == 0) return nullptr;
  }
  void* const page = cache.pages[count - 1];
  cache.count.subtract(1);
  zone_of(page)->set_word(page, run | 1);
  return page;
}

void release_cached(PageCache& cache, std::uint64_t count) noexcept {
  require(count <= cache.count.value(), "page allocator: more pages released than a cache holds", count);
  for (; count != 0; --count) {
    void* const page = cache.pages[cache.count.value() - 1];
    cache.count.subtract(1);
    zone_of(page)->release(page, 1);
  }
}

void give_to_cache(Zone& zone, void* page) noexcept {
  if (zone.node() != preferred_node) return zone.release(page, 1);  // a cached page of another node would stay with this core
  PageCache& cache = caches[machine::this_core()];
  if (cache.count.value() == PageCache::pages_max) release_cached(cache, PageCache::batch_pages);
  zone.set_word(page, cached);
  cache.pages[cache.count.value()] = page;
  cache.count.add(1);
}

}  // namespace

void initialise_pages(std::span<const machine::MemoryRange> ranges) noexcept {
  require(zone_count == 0, "the page allocator was initialised twice");
  for (const machine::MemoryRange& range : ranges) {
    require(range.physical % page_bytes == 0 && range.bytes % page_bytes == 0, "usable memory is not page aligned", range.physical);
    const bool among_longest = std::count_if(ranges.begin(), ranges.end(),
                                             [&](const machine::MemoryRange& other) { return other.bytes > range.bytes; }) < ranges_max;
    if (range.bytes / page_bytes <= before_first_page(range) || !among_longest || zone_count == ranges_max) continue;
    zones[zone_count++].initialise(range);
  }
  for (unsigned node = 0; node < machine::nodes_max; ++node) order_zones(node);
}

void* allocate_pages(unsigned order) noexcept {
  if (order == 0) {
    void* const page = take_cached();
    if (page == nullptr) refused.fetch_add(1, std::memory_order_relaxed);
    return page;
  }
  return allocate_run(std::size_t{1} << std::min(order, order_max + 1), order);
}

void free_pages(void* pages, unsigned order) noexcept {
  Zone* const zone = zone_of(pages);
  require(zone != nullptr && order <= order_max && zone->word(pages) == (run | (1U << order)), "free_pages: not allocated with this order",
          reinterpret_cast<std::uintptr_t>(pages));
  if (order == 0) {
    give_to_cache(*zone, pages);
  } else {
    zone->release(pages, std::uint64_t{1} << order);
  }
}

void* allocate_run(std::size_t pages, unsigned alignment_order) noexcept {
  constexpr std::size_t pages_max = std::size_t{1} << order_max;
  if (pages >= 1 && pages <= pages_max && alignment_order <= order_max) {
    if (void* const pointer = allocate_anywhere(pages, alignment_order); pointer != nullptr) return pointer;
  }
  refused.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

void free_run(void* pointer) noexcept {
  Zone* const zone = zone_of(pointer);
  require(zone != nullptr && (zone->word(pointer) & kind_mask) == run, "free_run: not the start of a run",
          reinterpret_cast<std::uintptr_t>(pointer));
  zone->release(pointer, zone->word(pointer) & ~kind_mask);
}

void shorten_run(void* pointer, std::size_t pages) noexcept {
  Zone* const zone = zone_of(pointer);
  const std::size_t had = run_pages(pointer);
  require(pages != 0 && pages <= had, "shorten_run: the new length exceeds the run", reinterpret_cast<std::uintptr_t>(pointer));
  if (pages != had) zone->shorten(pointer, had, pages);
}

std::size_t run_pages(const void* pointer) noexcept {
  Zone* const zone = zone_of(pointer);
  if (zone == nullptr || (zone->word(pointer) & kind_mask) != run) return 0;
  return zone->word(pointer) & ~kind_mask;
}

void prefer_node(unsigned node) noexcept {
  require(node < machine::nodes_max, "prefer_node: no such node", node);
  preferred_node = node;
}

std::uint64_t cached_pages(unsigned core) noexcept {
  require(core < caches.size(), "cached_pages: no such core", core);
  return caches[core].count.value();
}

void release_cached_pages() noexcept {
  PageCache& cache = caches[machine::this_core()];
  release_cached(cache, cache.count.value());
}

PageCounters page_counters() noexcept {
  PageCounters counters{.total_bytes = 0,
                        .free_bytes = 0,
                        .refused = refused.load(std::memory_order_relaxed),
                        .foreign = foreign.load(std::memory_order_relaxed)};
  for (unsigned i = 0; i < zone_count; ++i) {
    counters.total_bytes += zones[i].usable_pages() * page_bytes;
    counters.free_bytes += zones[i].free_pages() * page_bytes;
  }
  for (const PageCache& cache : caches) counters.free_bytes += cache.count.value() * page_bytes;
  return counters;
}

std::uint64_t free_page_bytes() noexcept {
  std::uint64_t pages = 0;
  for (unsigned i = 0; i < zone_count; ++i) pages += zones[i].free_pages();
  return pages * page_bytes;
}

NodeCounters node_counters(unsigned node) noexcept {
  NodeCounters counters{};
  for (unsigned i = 0; i < zone_count; ++i) {
    if (zones[i].node() != node) continue;
    counters.total_bytes += zones[i].usable_pages() * page_bytes;
    counters.free_bytes += zones[i].free_pages() * page_bytes;
  }
  return counters;
}

unsigned node_of(const void* pointer) noexcept {
  const Zone* const zone = zone_of(pointer);
  require(zone != nullptr, "node_of: not memory of the page allocator", reinterpret_cast<std::uintptr_t>(pointer));
  return zone->node();
}

}  // namespace neap::memory
