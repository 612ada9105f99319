// SPDX-License-Identifier: BSL-1.0
// Values in pieces on the kernel's own heap, whose memory is fragmented: no block of 1 MiB is free, but many of 128 KiB.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/memcached/test_server.hpp"
#include "kernel/memory/heap.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

using test::text_of;
constexpr std::size_t mib = std::size_t{1} << 20, arena_bytes = 64 * mib;

/// All memory in blocks of `bytes`, of which every second one is free.
class FragmentedHeap {
 public:
  explicit FragmentedHeap(std::size_t bytes) {
    static const bool once = [] {
      host::set_memory_bytes(arena_bytes);
      memory::initialise_pages(machine::usable_memory());
      return true;
    }();
    static_cast<void>(once);
    std::vector<void*> all;
    while (void* const block = memory::allocate(bytes)) all.push_back(block);
    std::sort(all.begin(), all.end());
    for (std::size_t index = 0; index < all.size(); ++index) {
      if (index % 2 == 0) {
        memory::deallocate(all[index]);
      } else {
        kept_.push_back(all[index]);
      }
    }
  }
  ~FragmentedHeap() {
    for (void* const block : kept_) memory::deallocate(block);
  }
  FragmentedHeap& operator=(FragmentedHeap&&) = delete;

 private:
  std::vector<void*> kept_;
};

StoreOptions on_heap(std::size_t memory_bytes) {
  StoreOptions options = test::small_store();
  options.memory_bytes = memory_bytes;
  options.value_bytes_max = 8 * mib;
  options.memory.allocate = [](std::size_t bytes) noexcept { return memory::allocate(bytes); };
  options.memory.release = [](void* pointer) noexcept { memory::deallocate(pointer); };
  options.memory.shrink = &memory::shrink;
  options.memory.free_bytes = &memory::free_page_bytes;
  options.memory.unused_bytes = &memory::unused_slab_bytes;
  return options;
}

std::string set(const std::string& command, const std::string& value) {
  return command + " a 0 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
}

TEST(PiecesOnHeap, LongValuesFindRoomInFragmentedMemory) {
  const FragmentedHeap fragmented(512 << 10);
  ASSERT_EQ(memory::allocate(mib), nullptr);
  const std::uint64_t before = memory::heap_counters().used_bytes;
  {
    test::Server server(on_heap(24 * mib));
    test::Client client(server);
    const std::string value = text_of(5 * mib + 3), more = text_of(2 * mib + 1, 2);
    for (unsigned round = 0; round < 20; ++round) {
      ASSERT_EQ(client.talk(set("set", value)), "STORED\r\n");
      ASSERT_EQ(client.talk(set("append", more)), "STORED\r\n");
      ASSERT_TRUE(client.talk("get a\r\n") ==
                  "VALUE a 0 " + std::to_string(value.size() + more.size()) + "\r\n" + value + more + "\r\nEND\r\n");
    }
    EXPECT_EQ(memory::allocate(mib), nullptr);
  }
  EXPECT_EQ(memory::heap_counters().used_bytes, before);
}

// Small values leave slabs that are partly used all over the memory. Then long values replace them: none is refused.
TEST(PiecesOnHeap, LongValuesReplaceSmallOnesInAFullStore) {
  const FragmentedHeap fragmented(512 << 10);
  test::Server server(on_heap(24 * mib));
  test::Client client(server);
  for (unsigned index = 0; index < 150'000; ++index) {
    ASSERT_EQ(client.talk("set k" + std::to_string(index) + " 0 0 100\r\n" + std::string(100, 'v') + "\r\n"), "STORED\r\n");
  }
  EXPECT_GT(server.store.counters().evictions, 0U);
  for (unsigned index = 0; index < 40; ++index) {
    const std::string value = text_of(mib * (1 + index % 6) + index, index);
    ASSERT_EQ(client.talk(set("set", value)), "STORED\r\n") << index;
    ASSERT_TRUE(client.talk("get a\r\n") == "VALUE a 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\nEND\r\n") << index;
    for (unsigned hot = index * 3; hot < 150'000; hot += 300) (void)client.talk("get k" + std::to_string(hot) + "\r\n");
  }
  EXPECT_LE(server.store.used_bytes(), server.store.memory_bytes() + server.store.retired_bytes_max());
}

}  // namespace
}  // namespace neap::memcached
