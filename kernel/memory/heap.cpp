// SPDX-License-Identifier: BSL-1.0
// A slab is 64 KiB, aligned to itself: a header, then objects of one class. It belongs to one core for ever, so an object's owner is found
// by masking its address. Objects over 8 KiB are runs of pages. A run begins at a page boundary, and so may an object in a slab, but the
// page allocator knows where runs begin and a slab's own first byte is never an object.
#include "kernel/memory/heap.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "kernel/counter.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/memory/size_classes.hpp"
#include "kernel/panic.hpp"
#include "kernel/remote_queue.hpp"

namespace neap::memory {
namespace {

constexpr unsigned slab_order = 4;
constexpr std::size_t slab_bytes = page_bytes << slab_order;
constexpr std::uint32_t slab_magic = 0x5AB0A110;

/// Objects freed here for one other core are sent when there are this many, at the end of the loop's turn, or when the place is needed.
constexpr unsigned batch_objects = 32;
constexpr unsigned batches = 4;
/// Objects from other cores that one turn puts back into slabs.
constexpr unsigned intake_budget = 256;
/// A sleeping core is woken for what came home only when it is this much: otherwise it finds it when it wakes by itself.
constexpr std::uint64_t wake_bytes = 256 * 1024;
constexpr unsigned empty_slabs_kept = 4;

struct FreeObject {
  FreeObject* next;
};

struct Slab {
  std::uint32_t magic;
  std::uint16_t owner;
  std::uint16_t size_class;
  std::uint32_t used;   // objects handed out
  std::uint32_t fresh;  // objects never handed out, at the end
  std::uint32_t capacity;
  bool listed;  // in its heap's list of slabs with room
  FreeObject* free;
  Slab* next;
  Slab* previous;
};

constexpr std::size_t first_object(unsigned size_class) {
  const std::size_t alignment = class_alignment(size_class);
  return (sizeof(Slab) + alignment - 1) / alignment * alignment;
}

/// Objects on their way to one owner.
struct Batch {
  unsigned owner = 0;
  unsigned count = 0;
  std::uint64_t bytes = 0;
  FreeObject* newest = nullptr;
  FreeObject* oldest = nullptr;
};

class Heap {
 public:
  constexpr Heap() = default;
  void* allocate_object(unsigned size_class) noexcept;
  void free_object(Slab& slab, void* pointer) noexcept;
  void free_elsewhere(Slab& slab, void* pointer) noexcept;
  void take_in(unsigned budget) noexcept;
  void send_all() noexcept;
  [[nodiscard]] bool has_arrived() const noexcept { return arrived_ != nullptr; }

  struct Counters {
    Counter allocations, frees, remote_frees, refused, allocated_bytes, freed_bytes, slab_bytes;
  } counters;

 private:
  void* carve(unsigned size_class) noexcept;
  void list(Slab& slab) noexcept;
  void unlist(Slab& slab) noexcept;
  Slab* new_slab(unsigned size_class) noexcept;
  void retire_slab(Slab& slab) noexcept;
  void send(Batch& batch) noexcept;
  static void wake_to_take_in(RemoteNode* node) noexcept;

  std::array<Slab*, class_count> with_room_{};
  Slab* empty_ = nullptr;
  unsigned empty_count_ = 0;
  unsigned outgoing_objects_ = 0;
  std::array<Batch, batches> outgoing_{};
  FreeObject* arrived_ = nullptr;  // taken from `incoming_`, not yet back in their slabs

  // Written by other cores.
  alignas(64) RemoteList<FreeObject> incoming_;
  std::atomic<std::uint64_t> incoming_bytes_{0};
  std::atomic<bool> wake_sent_{false};
  RemoteNode wake_node_{};
};

// One a core, here and not in thread-local storage: on the host a core's thread ends, its slabs do not.
constinit std::array<Heap, machine::cores_max> heaps;

Heap& own_heap() noexcept { return heaps[machine::this_core()]; }

Slab& slab_of(const void* pointer) noexcept {
  Slab& slab = *reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(pointer) & ~(slab_bytes - 1));
  require(slab.magic == slab_magic, "memory that no heap knows", reinterpret_cast<std::uintptr_t>(pointer));
  return slab;
}

void Heap::list(Slab& slab) noexcept {
  Slab*& first = with_room_[slab.size_class];
  slab.listed = true;
  slab.previous = nullptr;
  slab.next = first;
  if (first != nullptr) first->previous = &slab;
  first = &slab;
}

void Heap::unlist(Slab& slab) noexcept {
  slab.listed = false;
  (slab.previous == nullptr ? with_room_[slab.size_class] : slab.previous->next) = slab.next;
  if (slab.next != nullptr) slab.next->previous = slab.previous;
}

Slab* Heap::new_slab(unsigned size_class) noexcept {
  void* memory = empty_;
  if (memory != nullptr) {
    empty_ = empty_->next;
    --empty_count_;
  } else {
    memory = allocate_pages(slab_order);
    if (memory == nullptr) return nullptr;
    counters.slab_bytes.add(slab_bytes);
  }
  const auto capacity = static_cast<std::uint32_t>((slab_bytes - first_object(size_class)) / class_bytes[size_class]);
  auto* const slab = new (memory) Slab{.magic = slab_magic,
                                       .owner = static_cast<std::uint16_t>(this - heaps.data()),
                                       .size_class = static_cast<std::uint16_t>(size_class),
                                       .used = 0,
                                       .fresh = capacity,
                                       .capacity = capacity,
                                       .listed = false,
                                       .free = nullptr,
                                       .next = nullptr,
                                       .previous = nullptr};
  list(*slab);
  return slab;
}

void Heap::retire_slab(Slab& slab) noexcept {
  unlist(slab);
  slab.magic = 0;
  if (empty_count_ < empty_slabs_kept) {
    slab.next = empty_;
    empty_ = &slab;
    ++empty_count_;
  } else {
    free_pages(&slab, slab_order);
    counters.slab_bytes.subtract(slab_bytes);
  }
}

void* Heap::carve(unsigned size_class) noexcept {
  Slab* slab = with_room_[size_class];
  if (slab == nullptr) {
    slab = new_slab(size_class);
    if (slab == nullptr) return nullptr;
  }
  void* object = slab->free;
  if (object != nullptr) {
    slab->free = slab->free->next;
  } else {
    const std::uint32_t index = slab->capacity - slab->fresh--;
    object = reinterpret_cast<std::byte*>(slab) + first_object(size_class) + std::size_t{index} * class_bytes[size_class];
  }
  if (++slab->used == slab->capacity) unlist(*slab);
  return object;
}

void* Heap::allocate_object(unsigned size_class) noexcept {
  void* object = carve(size_class);
  if (object == nullptr) [[unlikely]] {
    take_in(~0U);  // what others freed may be room
    object = carve(size_class);
    if (object == nullptr) return nullptr;
  }
  counters.allocations.add();
  counters.allocated_bytes.add(class_bytes[size_class]);
  return object;
}

void Heap::free_object(Slab& slab, void* pointer) noexcept {
  require(slab.used != 0 && pointer != slab.free, "memory was freed twice", reinterpret_cast<std::uintptr_t>(pointer));
  counters.frees.add();
  counters.freed_bytes.add(class_bytes[slab.size_class]);
  auto* const object = new (pointer) FreeObject{slab.free};
  slab.free = object;
  --slab.used;
  if (!slab.listed) list(slab);
  // The last slab of a class stays, or a single object that comes and goes would take and return pages each time.
  if (slab.used == 0 && (slab.next != nullptr || slab.previous != nullptr)) retire_slab(slab);
}

void Heap::free_elsewhere(Slab& slab, void* pointer) noexcept {
  counters.remote_frees.add();
  Batch& batch = outgoing_[slab.owner % batches];
  if (batch.count != 0 && batch.owner != slab.owner) send(batch);
  batch.owner = slab.owner;
  auto* const object = new (pointer) FreeObject{batch.newest};
  if (batch.count == 0) batch.oldest = object;
  batch.newest = object;
  batch.bytes += class_bytes[slab.size_class];
  ++outgoing_objects_;
  if (++batch.count == batch_objects) send(batch);
}

void Heap::send(Batch& batch) noexcept {
  Heap& owner = heaps[batch.owner];
  owner.incoming_.push_chain(*batch.newest, *batch.oldest);
  const std::uint64_t waiting = owner.incoming_bytes_.fetch_add(batch.bytes, std::memory_order_seq_cst) + batch.bytes;
  if (waiting >= wake_bytes && batch.owner < core_count() && !owner.wake_sent_.exchange(true, std::memory_order_acquire)) {
    owner.wake_node_.run = &Heap::wake_to_take_in;
    hand_over(batch.owner, owner.wake_node_);
  }
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

// Being awake is all that is asked: the loop's turn takes in by itself.
void Heap::wake_to_take_in(RemoteNode*) noexcept { own_heap().wake_sent_.store(false, std::memory_order_release); }

void Heap::take_in(unsigned budget) noexcept {
  for (unsigned i = 0; i < budget; ++i) {
    if (arrived_ == nullptr) {
      if (incoming_.empty()) return;
      // In this order a batch may be counted that is taken already, never the other way round: its wake-up cannot be missed.
      incoming_bytes_.store(0, std::memory_order_seq_cst);
      arrived_ = incoming_.take_newest_first();
    }
    FreeObject* const object = arrived_;
    arrived_ = object->next;
    free_object(slab_of(object), object);
  }
}

void* allocate_run_bytes(std::size_t bytes, std::size_t alignment) noexcept {
  if (bytes > page_bytes << order_max || alignment > page_bytes << order_max) return nullptr;
  const std::size_t pages = std::max<std::size_t>((bytes + page_bytes - 1) / page_bytes, 1);
  const auto alignment_order = static_cast<unsigned>(std::bit_width((std::max(alignment, page_bytes) / page_bytes) - 1));
  void* const run = allocate_run(pages, alignment_order);
  if (run != nullptr) {
    Heap& heap = own_heap();
    heap.counters.allocations.add();
    heap.counters.allocated_bytes.add(pages * page_bytes);
  }
  return run;
}

/// Pages of the run that begins at `pointer`, 0 if it is an object in a slab.
std::size_t pages_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % page_bytes == 0 ? run_pages(pointer) : 0;
}

}  // namespace

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  require(std::has_single_bit(alignment), "an alignment that is not a power of two", alignment);
  void* object = nullptr;
  if (bytes <= object_bytes_max && alignment <= page_bytes) [[likely]] {
    std::size_t padded = std::max<std::size_t>(bytes, 1);
    if (alignment > 16) padded = (padded + alignment - 1) & ~(alignment - 1);
    unsigned size_class = class_of(padded);
    while (class_alignment(size_class) < alignment) ++size_class;  // ends at a power of two
    object = own_heap().allocate_object(size_class);
  } else {
    object = allocate_run_bytes(bytes, alignment);
  }
  if (object == nullptr) [[unlikely]]
    own_heap().counters.refused.add();
  return object;
}

void deallocate(void* pointer) noexcept {
  if (pointer == nullptr) return;
  Heap& heap = own_heap();
  if (const std::size_t pages = pages_of(pointer); pages != 0) {
    heap.counters.frees.add();
    heap.counters.freed_bytes.add(pages * page_bytes);
    free_run(pointer);
    return;
  }
  Slab& slab = slab_of(pointer);
  if (&heaps[slab.owner] == &heap) [[likely]] {
    heap.free_object(slab, pointer);
  } else {
    heap.free_elsewhere(slab, pointer);
  }
}

std::size_t usable_bytes(const void* pointer) noexcept {
  if (pointer == nullptr) return 0;
  if (const std::size_t pages = pages_of(pointer); pages != 0) return pages * page_bytes;
  return class_bytes[slab_of(pointer).size_class];
}

void* reallocate(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return allocate(bytes);
  const std::size_t usable = usable_bytes(pointer);
  if (bytes <= usable && bytes >= usable / 2) return pointer;
  void* const moved = allocate(bytes);
  if (moved == nullptr) return bytes <= usable ? pointer : nullptr;  // shrinking cannot fail
  std::memcpy(moved, pointer, std::min(usable, bytes));
  deallocate(pointer);
  return moved;
}

bool pass_boundary() noexcept {
  Heap& heap = own_heap();
  heap.send_all();
  heap.take_in(intake_budget);
  return heap.has_arrived();
}

HeapCounters heap_counters() noexcept {
  HeapCounters sum{};
  for (const Heap& heap : heaps) {
    sum.allocations += heap.counters.allocations.value();
    sum.frees += heap.counters.frees.value();
    sum.remote_frees += heap.counters.remote_frees.value();
    sum.refused += heap.counters.refused.value();
    sum.used_bytes += heap.counters.allocated_bytes.value() - heap.counters.freed_bytes.value();
    sum.slab_bytes += heap.counters.slab_bytes.value();
  }
  return sum;
}

}  // namespace neap::memory
