// SPDX-License-Identifier: BSL-1.0
#include "kernel/memory/heap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

#include "kernel/events.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/memory/size_classes.hpp"
#include "tests/host/host_machine.hpp"
#include "tests/host/panics.hpp"

namespace neap::memory {
namespace {

using host::HostMachine;
constexpr std::size_t arena_bytes = std::size_t{64} << 20;

/// One arena for the whole process, as in an image.
class Heap : public testing::Test {
 protected:
  static void SetUpTestSuite() { host::prepare_pages(arena_bytes); }
  std::uint64_t used_before_ = heap_counters().used_bytes;
};

/// An object filled with a pattern derived from its seed, so that overlapping objects are noticed.
struct Object {
  std::byte* bytes = nullptr;
  std::size_t size = 0;
  std::byte pattern{};

  static Object make(std::size_t size, std::size_t alignment, unsigned seed) {
    Object object{static_cast<std::byte*>(allocate(size, alignment)), size, static_cast<std::byte>(seed)};
    if (object.bytes != nullptr) std::memset(object.bytes, static_cast<int>(object.pattern), size);
    return object;
  }
  [[nodiscard]] bool intact() const {
    return std::all_of(bytes, bytes + size, [this](std::byte byte) { return byte == pattern; });
  }
};

std::size_t random_size(std::mt19937& random) {
  const unsigned kind = random() % 16;
  return random() % (kind == 0 ? 200'000 : kind <= 2 ? 9'000 : 600);
}

TEST_F(Heap, SlackIsAtMost15BytesOrANinthOfTheObject) {
  for (std::size_t bytes = 1; bytes <= object_bytes_max; ++bytes) {
    const unsigned size_class = class_of(bytes);
    ASSERT_LT(size_class, class_count);
    ASSERT_GE(class_bytes[size_class], bytes);
    if (size_class > 0) ASSERT_LT(class_bytes[size_class - 1], bytes);
    ASSERT_LE(class_bytes[size_class] - bytes, std::max<std::size_t>(15, class_bytes[size_class] / 9));
  }
}

// Callers account for memory by `heap_bytes`, so it must be what the heap uses.
TEST_F(Heap, HeapBytesAreWhatAnObjectUses) {
  for (std::size_t bytes = 0; bytes <= 3 * object_bytes_max; bytes += bytes < 600 ? 1 : 13) {
    void* const object = allocate(bytes);
    ASSERT_NE(object, nullptr);
    EXPECT_EQ(usable_bytes(object), heap_bytes(bytes)) << bytes;
    EXPECT_EQ(heap_counters().used_bytes - used_before_, heap_bytes(bytes)) << bytes;
    deallocate(object);
  }
}

TEST_F(Heap, ObjectsAreAlignedUsableAndDisjoint) {
  std::vector<Object> objects;
  unsigned seed = 0;
  for (std::size_t alignment = 1; alignment <= (std::size_t{1} << 20); alignment *= 2) {
    for (const int size : {0, 1, 17, 100, 4'095, 8'192, 8'193, 70'000}) {
      objects.push_back(Object::make(static_cast<std::size_t>(size), alignment, ++seed));
      ASSERT_NE(objects.back().bytes, nullptr) << size << " aligned to " << alignment;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(objects.back().bytes) % std::max<std::size_t>(alignment, 16), 0U);
      EXPECT_GE(usable_bytes(objects.back().bytes), static_cast<std::size_t>(size));
    }
  }
  for (const Object& object : objects) {
    EXPECT_TRUE(object.intact());
    deallocate(object.bytes);
  }
  EXPECT_EQ(heap_counters().used_bytes, used_before_);
}

TEST_F(Heap, ReallocationKeepsTheContent) {
  auto* bytes = static_cast<unsigned char*>(allocate(1));
  bytes[0] = 7;
  std::size_t size = 1;
  for (const std::size_t next : {10, 100, 5'000, 9'000, 300'000, 8'000, 20, 64'000}) {
    bytes = static_cast<unsigned char*>(reallocate(bytes, next));
    ASSERT_NE(bytes, nullptr);
    for (std::size_t i = 0; i < std::min(size, next); ++i) ASSERT_EQ(bytes[i], static_cast<unsigned char>(7 + i));
    for (std::size_t i = 0; i < next; ++i) bytes[i] = static_cast<unsigned char>(7 + i);
    size = next;
  }
  deallocate(bytes);
  EXPECT_EQ(heap_counters().used_bytes, used_before_);
}

TEST_F(Heap, ImpossibleSizesAreRefusedNotFatal) {
  const std::uint64_t refused = heap_counters().refused;
  EXPECT_EQ(allocate(~std::size_t{0}), nullptr);
  EXPECT_EQ(allocate(std::size_t{2} << 30), nullptr);
  EXPECT_EQ(allocate(1, std::size_t{4} << 30), nullptr);
  EXPECT_EQ(heap_counters().refused, refused + 3);
}

// With no memory left, every request is refused. Once all objects are freed, the memory is available again, in large pieces too.
TEST_F(Heap, ExhaustionRefusesAndIsRecoveredFrom) {
  const std::uint64_t free_bytes = page_counters().free_bytes;  // other cores may keep slabs from earlier tests
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t size : {std::size_t{64}, std::size_t{3'000}, std::size_t{100'000}}) {
      std::vector<Object> objects;
      std::size_t total = 0;
      for (unsigned seed = 0;; ++seed) {
        Object object = Object::make(size, 16, seed);
        if (object.bytes == nullptr) break;
        objects.push_back(object);
        total += size;
        ASSERT_LE(total, arena_bytes);
      }
      EXPECT_GT(total, free_bytes * 9 / 10);
      EXPECT_EQ(allocate(size), nullptr);
      for (const Object& object : objects) {
        ASSERT_TRUE(object.intact());
        deallocate(object.bytes);
      }
      EXPECT_EQ(heap_counters().used_bytes, used_before_);
    }
    void* const large = allocate(std::size_t{4} << 20);
    EXPECT_NE(large, nullptr);
    deallocate(large);
  }
}

TEST_F(Heap, WrongFreesAreFound) {
  host::expect_panic("panic", [] {
    void* const run = allocate(100'000);
    deallocate(run);
    deallocate(run);
  });
  host::expect_panic("freed twice", [] {
    void* const object = allocate(64);
    void* const other = allocate(64);
    deallocate(object);
    deallocate(object);
    deallocate(other);
  });
}

// Objects move between cores: allocated on one, checked and freed on another. The patterns reveal objects that were handed out twice or
// written beyond their end.
TEST_F(Heap, RandomAllocationAcrossCoresKeepsEveryPattern) {
  constexpr unsigned cores = 4, steps = 10'000;
  std::array<std::mutex, 64> locks;
  std::array<Object, 64> shared;  // cores leave objects here for other cores
  std::atomic<unsigned> finished{0}, broken{0};
  struct Worker {
    std::mt19937 random;
    unsigned left;
    std::vector<Object> own;
  };
  std::vector<Worker> workers;
  for (unsigned core = 0; core < cores; ++core) workers.push_back({std::mt19937(core + 1), steps, {}});
  std::function<void(Worker&)> work = [&](Worker& worker) {
    for (unsigned i = 0; i < 100 && worker.left > 0; ++i, --worker.left) {
      const std::size_t size = random_size(worker.random);
      Object object = Object::make(size, std::size_t{16} << (worker.random() % 4), static_cast<unsigned>(worker.random()));
      if (object.bytes != nullptr) worker.own.push_back(object);
      if (worker.own.size() > 50 || (!worker.own.empty() && worker.random() % 2 == 0)) {
        std::swap(worker.own[worker.random() % worker.own.size()], worker.own.back());
        Object leaving = worker.own.back();
        worker.own.pop_back();
        const unsigned place = worker.random() % shared.size();
        {
          const std::lock_guard lock(locks[place]);
          std::swap(leaving, shared[place]);
        }
        if (leaving.bytes != nullptr) {
          if (!leaving.intact()) ++broken;
          deallocate(leaving.bytes);
        }
      }
    }
    if (worker.left > 0) {
      spawn([&] { work(worker); });
      return;
    }
    for (const Object& object : worker.own) {
      if (!object.intact()) ++broken;
      deallocate(object.bytes);
    }
    ++finished;
  };
  HostMachine machine{cores};
  for (unsigned core = 0; core < cores; ++core) machine.on(core, [&, core] { work(workers[core]); });
  ASSERT_TRUE(HostMachine::wait_until([&] { return finished == cores; }, std::chrono::seconds(120)));
  machine.on(0, [&] {
    for (const Object& object : shared) {
      if (object.bytes == nullptr) continue;
      if (!object.intact()) ++broken;
      deallocate(object.bytes);
    }
  });
  EXPECT_EQ(broken, 0U);
  EXPECT_GT(heap_counters().remote_frees, steps / 2);
  // Freed objects reach their owners within one or two passes of each core's loop.
  EXPECT_TRUE(HostMachine::wait_until([&] {
    for (unsigned core = 0; core < cores; ++core) machine.on(core, [] {});
    return heap_counters().used_bytes == used_before_;
  }));
}

// One core allocates and sleeps, another frees: the memory must be returned although the owner has nothing else to do.
TEST_F(Heap, MemoryFreedForASleepingCoreComesBack) {
  std::vector<void*> objects;
  HostMachine machine{2};
  machine.on(1, [&] {
    for (unsigned i = 0; i < 20'000; ++i) objects.push_back(allocate(1'000));
  });
  ASSERT_EQ(std::count(objects.begin(), objects.end(), nullptr), 0);
  machine.on(0, [&] {
    for (void* const object : objects) deallocate(object);
  });
  // A small amount of returned memory does not wake its owner. So it may count as used until the owner wakes.
  EXPECT_TRUE(HostMachine::wait_until([&] { return heap_counters().used_bytes <= used_before_ + 512 * 1024; }));
}

// Memory that one core holds in reserve, or has not yet taken back, is released when another core is refused memory.
TEST_F(Heap, ASleepingCoreReleasesItsReservesForTheNextAttempt) {
  HostMachine machine{2};
  std::vector<void*> objects;
  machine.on(1, [&] {
    for (unsigned i = 0; i < 200; ++i) objects.push_back(allocate(1'000));  // these objects fill some slabs
    std::vector<void*> pages(60);
    for (void*& page : pages) page = allocate_pages(0);
    for (void* const page : pages) free_pages(page, 0);
  });
  machine.on(0, [&] {
    for (void* const object : objects) deallocate(object);  // too few bytes to wake the owner
  });
  EXPECT_NE(cached_pages(1), 0U);
  std::vector<void*> taken;
  const auto take_all = [&] {
    while (void* const page = allocate(page_bytes)) taken.push_back(page);
  };
  machine.on(0, take_all);
  const std::size_t at_first = taken.size();
  EXPECT_TRUE(HostMachine::wait_until([&] {
    machine.on(0, take_all);
    return cached_pages(1) == 0 && taken.size() > at_first;
  }));
  machine.on(0, [&] {
    for (void* const page : taken) deallocate(page);
  });
}

// The memory of an empty slab can serve every class and every core. That includes the last slab of a class, which its core keeps while
// memory is available.
TEST_F(Heap, EmptySlabsOfEveryClassAreReleasedToOtherCores) {
  HostMachine machine{2};
  machine.on(1, [&] {
    for (std::size_t bytes = 16; bytes <= object_bytes_max; bytes += bytes / 8) deallocate(allocate(bytes));
  });
  const std::uint64_t slab_bytes = heap_counters().slab_bytes;
  std::vector<void*> taken;
  machine.on(0, [&] {
    while (void* const run = allocate(100'000)) taken.push_back(run);
    while (void* const page = allocate(2 * page_bytes + 1)) taken.push_back(page);
  });
  EXPECT_TRUE(HostMachine::wait_until([&] {
    machine.on(0, [&] {
      if (void* const more = allocate(2 * page_bytes + 1); more != nullptr) taken.push_back(more);
    });
    return heap_counters().slab_bytes + (std::uint64_t{1} << 19) <= slab_bytes;  // some 50 classes had a slab of 16 KiB each
  }));
  machine.on(0, [&] {
    for (void* const pointer : taken) deallocate(pointer);
  });
}

// Most classes of a core have few objects, so their first slab is short.
TEST_F(Heap, AFewObjectsTakeAShortSlabAndManyTakeWholeOnes) {
  constexpr std::uint64_t short_slab = 16'384, slab = 65'536;
  HostMachine machine{8};
  machine.on(7, [&] {
    const std::uint64_t before = heap_counters().slab_bytes;
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{1'000}, object_bytes_max}) {
      const std::uint64_t start = heap_counters().slab_bytes;
      std::vector<Object> objects{Object::make(bytes, 16, 1)};
      EXPECT_EQ(heap_counters().slab_bytes, start + short_slab) << bytes;
      while (heap_counters().slab_bytes < start + short_slab + 2 * slab) objects.push_back(Object::make(bytes, 16, objects.size()));
      EXPECT_EQ(heap_counters().slab_bytes, start + short_slab + 2 * slab) << bytes;
      for (const Object& object : objects) {
        EXPECT_TRUE(object.intact());
        deallocate(object.bytes);
      }
    }
    // Each class keeps one slab, and the core some empty ones for any class.
    EXPECT_LE(heap_counters().slab_bytes, before + 3 * slab + 4 * slab);
  });
}

TEST_F(Heap, ARunShrinksInPlace) {
  const std::uint64_t free_bytes = page_counters().free_bytes;
  void* const run = allocate(1'000'000);
  ASSERT_NE(run, nullptr);
  std::memset(run, 7, 20'000);
  EXPECT_FALSE(shrink(run, 2'000'000));
  EXPECT_FALSE(shrink(run, 100));  // an object of that size is in a slab
  EXPECT_TRUE(shrink(run, 20'000));
  EXPECT_EQ(usable_bytes(run), 5 * page_bytes);
  EXPECT_EQ(page_counters().free_bytes, free_bytes - 5 * page_bytes);
  EXPECT_EQ(heap_counters().used_bytes, used_before_ + 5 * page_bytes);
  void* const next = allocate(500'000);
  EXPECT_NE(next, nullptr);
  std::memset(next, 8, 500'000);
  EXPECT_EQ(static_cast<unsigned char*>(run)[19'999], 7);
  deallocate(run);
  deallocate(next);
  EXPECT_EQ(heap_counters().used_bytes, used_before_);
  void* const small = allocate(64);
  EXPECT_FALSE(shrink(small, 16));
  deallocate(small);
}

}  // namespace
}  // namespace neap::memory
