// SPDX-License-Identifier: BSL-1.0
// A slab is 64 KiB, aligned to its size: a header, then objects of one size class. A slab has the same owner as long as it exists, so an
// object's owner is found in the header, at the object's address with the low bits cleared. Objects over 8 KiB are runs of pages
// (heap_runs.hpp). The first slab of a class is short: it has the same alignment, but only 16 KiB, because most of the classes that a core
// uses have few objects. On an idle machine with four cores that saves 3 MiB.
//
// A page-aligned pointer is a run if the page allocator has recorded a run that begins there. Otherwise it is an object in a slab. A slab
// begins with its header, so no object has the address of a slab.
//
// The fast path is short. A core allocates from the first slab in the list of the size class, and frees into the object's own slab. The
// rare cases (slab full, empty or new, object of another core, first call) are detected by tests that the fast path needs anyway.
#include "kernel/memory/heap.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "kernel/core_work.hpp"
#include "kernel/counter.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/heap_checks.hpp"
#include "kernel/memory/heap_runs.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/memory/size_classes.hpp"
#include "kernel/panic.hpp"
#include "kernel/remote_queue.hpp"

namespace neap::memory {
namespace {

constexpr unsigned slab_order = 4;
constexpr std::size_t slab_bytes = page_bytes << slab_order;
constexpr std::size_t short_slab_pages = 4;
constexpr std::uint32_t slab_magic = 0x5AB0A110;

/// A batch holds objects that belong to one other core and were freed on this core. It is sent to that core when it is full, in
/// `pass_boundary`, or when this core frees an object of a third core that uses the same element of the array of batches.
constexpr unsigned batch_objects_max = 32;
constexpr unsigned batches = 4;
/// The number of returned objects that one `pass_boundary` puts back into slabs.
constexpr unsigned intake_budget = 256;
/// A sleeping core is woken for returned objects only if they have more than this many bytes. Otherwise it takes them when it next wakes.
constexpr std::uint64_t wake_bytes = 256 * 1024;
constexpr unsigned empty_slabs_max = 4;
/// Number of never-used objects that are linked into the free list at once.
constexpr unsigned fresh_batch = 16;

struct FreeObject {
  FreeObject* next;
};

class Heap;

struct Slab {
  Heap* heap = nullptr;  // the owner; null: the slab is unused
  FreeObject* free = nullptr;
  std::uint32_t used = 0;  // number of allocated objects
  bool listed = false;     // the slab is in its heap's list of slabs with room; an allocation that finds it full removes it
  std::uint8_t size_class = 0;
  std::uint16_t owner = 0;  // the core
  std::uint32_t magic = 0;
  std::uint32_t fresh = 0;  // number of objects at the end that were never allocated and are not in `free`
  std::uint32_t capacity = 0;
  Slab* next = nullptr;
  Slab* previous = nullptr;
};

constexpr std::size_t first_object(unsigned size_class) {
  const std::size_t alignment = class_alignment(size_class);
  return (sizeof(Slab) + alignment - 1) / alignment * alignment;
}

struct Batch {
  Heap* owner = nullptr;
  unsigned count = 0;
  std::uint64_t bytes = 0;
  FreeObject* newest = nullptr;
  FreeObject* oldest = nullptr;
};

/// Stands for "no slab": its free list is always empty.
constinit Slab no_slab{};

class Heap {
 public:
  // All members are zero, so that the heaps of absent cores take no room in the image. `prepare` makes a heap usable.
  constexpr Heap() = default;
  /// A heap in which every list is empty.
  constexpr explicit Heap(Slab& nothing) { with_room_.fill(&nothing); }
  void prepare() noexcept {
    if (with_room_[0] == nullptr) with_room_.fill(&no_slab);
  }

  /// Null: call `allocate_slowly`.
  [[nodiscard]] void* try_allocate(unsigned size_class) noexcept {
    Slab& slab = *with_room_[size_class];
    FreeObject* const object = slab.free;
    if (object == nullptr) [[unlikely]]
      return nullptr;
    slab.free = object->next;
    ++slab.used;
    allocated[size_class].add();
    return object;
  }
  [[nodiscard]] void* allocate_slowly(unsigned size_class) noexcept;
  /// `slab` MUST belong to this heap.
  void free_object(Slab& slab, void* pointer) noexcept {
    require(pointer != slab.free, "memory was freed twice", reinterpret_cast<std::uintptr_t>(pointer));
    freed[slab.size_class].add();
    slab.free = new (pointer) FreeObject{slab.free};
    if (static_cast<std::int32_t>(--slab.used) <= 0 || !slab.listed) [[unlikely]]
      settle(slab);
  }
  void free_elsewhere(Slab& slab, void* pointer) noexcept;
  void reclaim_arrived(unsigned budget) noexcept;
  void send_all() noexcept;
  /// Returns true if arrived objects are left.
  bool do_boundary_work() noexcept;
  [[nodiscard]] const std::atomic<bool>& outside_work() const noexcept { return outside_work_; }
  /// Asks all other cores to release their reserves (spare slabs and pages), and wakes sleeping cores that hold some.
  void ask_other_cores() noexcept;
  void release_reserves() noexcept;

  // Counted by class, so that the fast path has one counter to write.
  std::array<Counter, class_count> allocated, freed;
  struct Counters {
    Counter remote_frees, refused, slab_bytes, empty_slabs;
  } counters;
  RunCounters run_counters;

 private:
  void make_fresh(Slab& slab) noexcept;
  void list(Slab& slab) noexcept;
  void unlist(Slab& slab) noexcept;
  Slab* new_slab(unsigned size_class) noexcept;
  void free_slab(Slab& slab) noexcept;
  void settle(Slab& slab) noexcept;
  void retire_slab(Slab& slab) noexcept;
  void send(Batch& batch) noexcept;
  void wake() noexcept;

  std::array<Slab*, class_count> with_room_{};
  Slab* empty_ = nullptr;
  unsigned outgoing_objects_ = 0;
  std::array<Batch, batches> outgoing_{};
  FreeObject* arrived_ = nullptr;  // objects taken from `incoming_` that are not yet back in their slabs

  // The members that other cores write.
  alignas(64) RemoteList<FreeObject> incoming_;
  std::atomic<std::uint64_t> incoming_bytes_{0};
  std::atomic<bool> asked_{false}, wake_sent_{false};
  std::atomic<bool> outside_work_{
      false};  // set after `incoming_` or `asked_`, cleared before they are looked at: `do_boundary_work` has work
  RemoteNode wake_node_{};
};

// One heap for each core, in static and not in thread-local storage: on the host a core's thread ends but its slabs stay.
constinit std::array<Heap, machine::cores_max> heaps;
// Used as a core's heap before its first slow call, and always with `heap=checked`. It is empty, so each call takes the slow path.
constinit Heap no_heap{no_slab};
constinit thread_local Heap* fast_heap = &no_heap;

Heap& own_heap() noexcept { return heaps[machine::this_core()]; }
[[nodiscard]] unsigned core_of(const Heap& heap) noexcept { return static_cast<unsigned>(&heap - heaps.data()); }

Slab* slab_around(const void* pointer) noexcept {
  return reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(pointer) & ~(slab_bytes - 1));
}

Slab& slab_of(const void* pointer) noexcept {
  Slab& slab = *slab_around(pointer);
  require(slab.magic == slab_magic, "this memory is not from the heap", reinterpret_cast<std::uintptr_t>(pointer));
  return slab;
}

void Heap::list(Slab& slab) noexcept {
  require(!slab.listed, "heap: a slab is listed twice", reinterpret_cast<std::uintptr_t>(&slab));
  Slab*& first = with_room_[slab.size_class];
  slab.listed = true;
  slab.previous = nullptr;
  slab.next = first;
  if (first != &no_slab) first->previous = &slab;
  first = &slab;
}

void Heap::unlist(Slab& slab) noexcept {
  slab.listed = false;
  (slab.previous == nullptr ? with_room_[slab.size_class] : slab.previous->next) = slab.next;
  if (slab.next != &no_slab) slab.next->previous = slab.previous;
}

Slab* Heap::new_slab(unsigned size_class) noexcept {
  // A new slab is needed only when all slabs of the class are full. So without objects in use there is no slab.
  const bool first = allocated[size_class].value() == freed[size_class].value();
  const std::size_t bytes = first ? short_slab_pages * page_bytes : slab_bytes;
  void* memory = nullptr;
  if (!first && empty_ != nullptr) {
    memory = empty_;
    empty_ = empty_->next;
    counters.empty_slabs.subtract(1);
  } else {
    memory = allocate_run(bytes / page_bytes, slab_order);
    if (memory == nullptr) return nullptr;
    counters.slab_bytes.add(bytes);
  }
  const auto capacity = static_cast<std::uint32_t>((bytes - first_object(size_class)) / class_bytes[size_class]);
  auto* const slab = new (memory) Slab{.heap = this,
                                       .size_class = static_cast<std::uint8_t>(size_class),
                                       .owner = static_cast<std::uint16_t>(core_of(*this)),
                                       .magic = slab_magic,
                                       .fresh = capacity,
                                       .capacity = capacity};
  list(*slab);
  return slab;
}

void Heap::free_slab(Slab& slab) noexcept {
  counters.slab_bytes.subtract(run_pages(&slab) * page_bytes);
  free_run(&slab);
}

void Heap::make_fresh(Slab& slab) noexcept {
  const std::size_t object_bytes = class_bytes[slab.size_class];
  const std::uint32_t count = std::min(slab.fresh, fresh_batch);
  const std::size_t offset = first_object(slab.size_class) + (slab.capacity - slab.fresh + count) * object_bytes;
  std::byte* object = reinterpret_cast<std::byte*>(&slab) + offset;
  FreeObject* free = slab.free;  // a local: the compiler cannot keep `slab.free` in a register, because objects may alias it
  for (std::uint32_t i = 0; i < count; ++i) free = new (object -= object_bytes) FreeObject{free};
  slab.free = free;
  slab.fresh -= count;
}

void* Heap::allocate_slowly(unsigned size_class) noexcept {
  for (;;) {
    if (void* const object = try_allocate(size_class); object != nullptr) return object;
    Slab* slab = with_room_[size_class];
    if (slab == &no_slab) {
      slab = new_slab(size_class);
      if (slab == nullptr) return nullptr;
    } else if (slab->fresh == 0) {
      unlist(*slab);
      continue;
    }
    make_fresh(*slab);
  }
}

/// Called after a free that emptied the slab or found it full.
void Heap::settle(Slab& slab) noexcept {
  require(static_cast<std::int32_t>(slab.used) >= 0, "memory was freed twice", reinterpret_cast<std::uintptr_t>(&slab));
  if (!slab.listed) list(slab);
  // The last slab of a class stays. Otherwise one object that is allocated and freed repeatedly would take and return pages each time.
  if (slab.used == 0 && (slab.next != &no_slab || slab.previous != nullptr)) retire_slab(slab);
}

void Heap::retire_slab(Slab& slab) noexcept {
  require(slab.heap == this && slab.used == 0, "heap: a slab in use is retired", reinterpret_cast<std::uintptr_t>(&slab));
  unlist(slab);
  slab.heap = nullptr;
  slab.magic = 0;
  if (counters.empty_slabs.value() < empty_slabs_max && run_pages(&slab) * page_bytes == slab_bytes) {
    slab.next = empty_;
    empty_ = &slab;
    counters.empty_slabs.add();
  } else {
    free_slab(slab);
  }
}

void Heap::free_elsewhere(Slab& slab, void* pointer) noexcept {
  counters.remote_frees.add();
  Batch& batch = outgoing_[slab.owner % batches];
  if (batch.owner != slab.heap) {
    if (batch.count != 0) send(batch);
    batch.owner = slab.heap;
  }
  auto* const object = new (pointer) FreeObject{batch.newest};
  if (batch.count == 0) batch.oldest = object;
  batch.newest = object;
  batch.bytes += class_bytes[slab.size_class];
  ++outgoing_objects_;
  core_work |= work_bits::heap;
  if (++batch.count == batch_objects_max) send(batch);
}

void Heap::send(Batch& batch) noexcept {
  require(batch.owner != nullptr && batch.count != 0, "heap: a batch without objects or owner is sent", batch.count);
  Heap& owner = *batch.owner;
  owner.incoming_.push_chain(*batch.newest, *batch.oldest);
  owner.outside_work_.store(true, std::memory_order_release);
  const std::uint64_t waiting = owner.incoming_bytes_.fetch_add(batch.bytes, std::memory_order_seq_cst) + batch.bytes;
  if (waiting >= wake_bytes) owner.wake();
  outgoing_objects_ -= batch.count;
  batch = Batch{};
}

void Heap::send_all() noexcept {
  if (outgoing_objects_ == 0) [[likely]]
    return;
  for (Batch& batch : outgoing_) {
    if (batch.count != 0) send(batch);
  }
}

// At most one remote call is pending until the core is awake. Its only purpose is to wake the core: `pass_boundary` does the rest.
void Heap::wake() noexcept {
  const unsigned core = core_of(*this);
  if (core >= core_count() || wake_sent_.exchange(true, std::memory_order_acquire)) return;
  wake_node_.run = [](RemoteNode*) noexcept { own_heap().wake_sent_.store(false, std::memory_order_release); };
  hand_over(core, wake_node_);
}

void Heap::reclaim_arrived(unsigned budget) noexcept {
  for (unsigned i = 0; i < budget; ++i) {
    if (arrived_ == nullptr) {
      if (incoming_.empty()) return;
      // The count is cleared before the batches are taken. So a batch that arrives in between stays counted, and no wake-up is missed.
      incoming_bytes_.store(0, std::memory_order_seq_cst);
      arrived_ = incoming_.take_newest_first();
      if (arrived_ == nullptr) return;
    }
    FreeObject* const object = arrived_;
    arrived_ = object->next;
    free_object(slab_of(object), object);
  }
}

bool Heap::do_boundary_work() noexcept {
  core_work &= ~work_bits::heap;
  if (outside_work_.load(std::memory_order_relaxed)) outside_work_.exchange(false, std::memory_order_seq_cst);
  send_all();
  reclaim_arrived(intake_budget);
  if (asked_.load(std::memory_order_relaxed)) release_reserves();
  if (arrived_ == nullptr && incoming_.empty()) return false;
  core_work |= work_bits::heap;
  return true;
}

void Heap::release_reserves() noexcept {
  asked_.store(false, std::memory_order_relaxed);
  checks::release_quarantine();
  send_all();
  reclaim_arrived(~0U);
  // `settle` keeps the last slab of a class even if it is empty. Memory is short now, so that slab is freed, too.
  for (Slab* const slab : with_room_) {
    if (slab != &no_slab && slab->used == 0) retire_slab(*slab);
  }
  while (empty_ != nullptr) {
    Slab* const slab = empty_;
    empty_ = slab->next;
    counters.empty_slabs.subtract(1);
    free_slab(*slab);
  }
  release_cached_pages();
}

// The present allocation still fails, because an allocation does not wait. A later attempt may succeed.
void Heap::ask_other_cores() noexcept {
  const unsigned count = core_count();
  for (unsigned core = 0; core < count; ++core) {
    Heap& other = heaps[core];
    const bool has_something = other.counters.slab_bytes.value() != 0 || cached_pages(core) != 0 ||
                               other.incoming_bytes_.load(std::memory_order_relaxed) != 0 || checks::quarantined(core);
    if (&other == this || !has_something) continue;
    other.asked_.store(true, std::memory_order_relaxed);
    other.outside_work_.store(true, std::memory_order_release);
    other.wake();
  }
}

/// The smallest class with objects of at least `bytes` bytes at multiples of `alignment`.
unsigned aligned_class(std::size_t bytes, std::size_t alignment) noexcept {
  const std::size_t padded = (std::max<std::size_t>(bytes, 1) + alignment - 1) & ~(alignment - 1);
  unsigned size_class = class_of(padded);
  while (class_alignment(size_class) < alignment) ++size_class;  // terminates: the larger classes include powers of two
  return size_class;
}

[[gnu::noinline]] void* allocate_slowly(std::size_t bytes, std::size_t alignment) noexcept {
  void* object = nullptr;
  if (checks::on()) {
    object = checks::allocate(bytes, alignment);
  } else {
    object = plain::allocate(bytes, alignment);
    fast_heap = &own_heap();
  }
  if (object == nullptr) own_heap().counters.refused.add();
  return object;
}

[[gnu::noinline]] void free_slowly(void* pointer) noexcept { checks::on() ? checks::deallocate(pointer) : plain::deallocate(pointer); }

}  // namespace

void* plain::allocate(std::size_t bytes, std::size_t alignment) noexcept {
  Heap& heap = own_heap();
  heap.prepare();
  const auto try_once = [&] {
    const bool is_object = bytes <= object_bytes_max && alignment <= page_bytes;
    return is_object ? heap.allocate_slowly(aligned_class(bytes, alignment)) : allocate_run_bytes(heap.run_counters, bytes, alignment);
  };
  void* object = try_once();
  if (object != nullptr) [[likely]]
    return object;
  heap.release_reserves();  // objects that other cores freed, and spare slabs, may suffice
  object = try_once();
  if (object == nullptr) heap.ask_other_cores();
  return object;
}

void plain::deallocate(void* pointer) noexcept {
  Heap& heap = own_heap();
  if (is_run(pointer)) [[unlikely]]
    return free_run_bytes(heap.run_counters, pointer);
  Slab& slab = slab_of(pointer);
  if (slab.heap == &heap) [[likely]] {
    heap.free_object(slab, pointer);
  } else {
    heap.free_elsewhere(slab, pointer);
  }
}

std::size_t plain::usable_bytes(const void* pointer) noexcept {
  if (const std::size_t bytes = run_bytes(pointer); bytes != 0) return bytes;
  return class_bytes[slab_of(pointer).size_class];
}

void* allocate(std::size_t bytes) noexcept {
  if (bytes <= object_bytes_max) [[likely]] {
    if (void* const object = fast_heap->try_allocate(class_by_granule[(bytes + 15) / 16]); object != nullptr) [[likely]]
      return object;
  }
  return allocate_slowly(bytes, alignment_min);
}

void* allocate_aligned(std::size_t bytes, std::size_t alignment) noexcept {
  require(std::has_single_bit(alignment), "allocate_aligned: the alignment is not a power of two", alignment);
  return allocate_slowly(bytes, std::max(alignment, alignment_min));
}

void deallocate(void* pointer) noexcept {
  if (pointer == nullptr) return;
  // `slab_around` returns readable memory for any valid pointer (see `before_first_page`). If the pointer is a run, that memory may be
  // another core's data. So `is_run` is called before `slab` is read.
  if (Slab& slab = *slab_around(pointer); !is_run(pointer) && slab.heap == fast_heap) [[likely]]
    return fast_heap->free_object(slab, pointer);
  free_slowly(pointer);
}

std::size_t usable_bytes(const void* pointer) noexcept {
  if (pointer == nullptr) return 0;
  return checks::on() ? checks::usable_bytes(pointer) : plain::usable_bytes(pointer);
}

void* reallocate(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return allocate(bytes);
  const std::size_t usable = usable_bytes(pointer);
  const bool fits = bytes <= usable;
  if (fits && bytes >= usable / 2 && !checks::on()) return pointer;
  void* const moved = allocate(bytes);
  if (moved == nullptr) return fits ? pointer : nullptr;  // a smaller size always succeeds
  std::memcpy(moved, pointer, std::min(usable, bytes));
  deallocate(pointer);
  return moved;
}

bool shrink(void* pointer, std::size_t bytes) noexcept {
  return !checks::on() && bytes > object_bytes_max && shorten_run_bytes(own_heap().run_counters, pointer, bytes);
}

bool pass_boundary() noexcept { return own_heap().do_boundary_work(); }
const std::atomic<bool>& boundary_flag() noexcept { return own_heap().outside_work(); }

HeapCounters heap_counters() noexcept {
  HeapCounters sum{};
  for (const Heap& heap : heaps) {
    for (unsigned size_class = 0; size_class < class_count; ++size_class) {
      // `freed` is read first, so that the difference cannot become negative while another core counts.
      const std::uint64_t freed = heap.freed[size_class].value();
      const std::uint64_t allocated = heap.allocated[size_class].value();
      sum.allocations += allocated;
      sum.frees += freed;
      sum.used_bytes += (allocated - freed) * class_bytes[size_class];
    }
    sum.allocations += heap.run_counters.allocated.value();
    sum.frees += heap.run_counters.freed.value();
    sum.used_bytes += heap.run_counters.bytes.value();
    sum.remote_frees += heap.counters.remote_frees.value();
    sum.refused += heap.counters.refused.value();
    sum.slab_bytes += heap.counters.slab_bytes.value();
  }
  return sum;
}

std::uint64_t unused_slab_bytes() noexcept {
  std::uint64_t slabs = 0, used = 0;
  for (const Heap& heap : heaps) {
    if (heap.counters.slab_bytes.value() == 0) continue;
    slabs += heap.counters.slab_bytes.value();
    for (unsigned size_class = 0; size_class < class_count; ++size_class) {
      const std::uint64_t freed = heap.freed[size_class].value();
      used += (heap.allocated[size_class].value() - freed) * class_bytes[size_class];
    }
  }
  return slabs - std::min(slabs, used);
}

}  // namespace neap::memory
