// SPDX-License-Identifier: BSL-1.0
// The heap with its checks turned on. This test is a separate program, because the checks cannot be turned off again.
#include "kernel/memory/heap_checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernel/memory/heap.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/host/host_machine.hpp"
#include "tests/host/panics.hpp"

namespace neap::memory {
namespace {

using host::HostMachine;

class HeapChecks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    host::prepare_pages(std::size_t{32} << 20);
    checks::turn_on();
  }
  static unsigned char* make(std::size_t bytes, std::size_t alignment = 16) {
    return static_cast<unsigned char*>(allocate(bytes, alignment));
  }
};

TEST_F(HeapChecks, CorrectUseOfAnySizeAndAlignmentPasses) {
  const std::uint64_t used_before = heap_counters().used_bytes;
  std::mt19937 random(3);
  std::vector<std::pair<unsigned char*, std::size_t>> objects;
  for (unsigned i = 0; i < 3'000; ++i) {
    const std::size_t bytes = random() % (random() % 8 == 0 ? 100'000 : 300);
    const std::size_t alignment = std::size_t{1} << random() % (random() % 8 == 0 ? 17 : 7);
    unsigned char* object = make(bytes, alignment);
    ASSERT_NE(object, nullptr);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(object) % alignment, 0U);
    ASSERT_EQ(usable_bytes(object), bytes);
    std::memset(object, static_cast<int>(i), bytes);
    if (i % 5 == 0) {
      const std::size_t kept = std::min<std::size_t>(bytes, 50);
      object = static_cast<unsigned char*>(reallocate(object, bytes / 2 + 50));
      ASSERT_TRUE(std::all_of(object, object + std::min(kept, bytes / 2 + 50), [i](unsigned char byte) { return byte == (i & 0xff); }));
      objects.emplace_back(object, bytes / 2 + 50);
    } else {
      objects.emplace_back(object, bytes);
    }
    if (objects.size() > 40) {
      std::swap(objects[random() % objects.size()], objects.back());
      deallocate(objects.back().first);
      objects.pop_back();
    }
  }
  for (const auto& [object, bytes] : objects) deallocate(object);
  checks::release_quarantine();
  EXPECT_EQ(heap_counters().used_bytes, used_before);
}

TEST_F(HeapChecks, AByteBeyondTheEndIsFound) {
  for (const std::size_t bytes : {1, 16, 63, 64, 5'000, 20'000}) {
    SCOPED_TRACE(bytes);
    host::expect_panic("written beyond its end", [&] {
      unsigned char* const object = make(bytes);
      object[bytes] = 1;
      deallocate(object);
    });
  }
}

TEST_F(HeapChecks, AByteBeforeTheStartIsFound) {
  host::expect_panic("written before its start", [] {
    unsigned char* const object = make(64);
    object[-1] = 1;
    deallocate(object);
  });
  host::expect_panic("its header was overwritten", [] {
    unsigned char* const object = make(64);
    std::memset(object - 48, 0, 48);
    deallocate(object);
  });
}

TEST_F(HeapChecks, AWriteAfterTheFreeIsFound) {
  host::expect_panic("written after it was freed", [] {
    unsigned char* const object = make(64);
    deallocate(object);
    object[5] = 1;
    for (unsigned i = 0; i < 300; ++i) deallocate(make(64));
  });
}

// Without the checks, the heap detects a second free only right after the first.
TEST_F(HeapChecks, ASecondFreeIsFoundAfterOtherFrees) {
  host::expect_panic("freed twice", [] {
    unsigned char* const object = make(64);
    deallocate(object);
    for (unsigned i = 0; i < 50; ++i) deallocate(make(64));
    deallocate(object);
  });
}

TEST_F(HeapChecks, FreedContentIsOverwritten) {
  unsigned char* const object = make(100);
  std::memset(object, 1, 100);
  deallocate(object);
  EXPECT_TRUE(std::none_of(object, object + 100, [](unsigned char byte) { return byte == 1; }));
}

TEST_F(HeapChecks, TheQuarantineIsFreedBeforeAnAllocationIsRefused) {
  std::vector<void*> objects;
  for (unsigned round = 0; round < 2; ++round) {
    while (void* const object = allocate(100'000)) objects.push_back(object);
    EXPECT_GT(objects.size(), 200U) << round;
    for (void* const object : objects) deallocate(object);
    objects.clear();
  }
}

TEST_F(HeapChecks, ObjectsFreedOnAnotherCoreAreReturned) {
  checks::release_quarantine();
  const std::uint64_t used_before = heap_counters().used_bytes;
  std::vector<void*> objects(2'000);
  HostMachine machine{2};
  machine.on(0, [&] {
    for (void*& object : objects) object = allocate(200);
  });
  machine.on(1, [&] {
    for (void* const object : objects) deallocate(object);
    checks::release_quarantine();
  });
  EXPECT_TRUE(HostMachine::wait_until([&] {
    for (unsigned core = 0; core < 2; ++core) machine.on(core, [] { checks::release_quarantine(); });
    return heap_counters().used_bytes == used_before;
  }));
}

}  // namespace
}  // namespace neap::memory
