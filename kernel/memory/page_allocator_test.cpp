// SPDX-License-Identifier: BSL-1.0
#include "kernel/memory/page_allocator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "tests/host/host_machine.hpp"

namespace neap::memory {
namespace {

/// Two ranges of the arena with a gap between them, neither aligned to more than a page.
class PageAllocator : public testing::Test {
 protected:
  static constexpr std::uint64_t gap_begin = 5'003 * page_bytes, gap_bytes = 77 * page_bytes;
  static void SetUpTestSuite() {
    static const bool once = [] {
      host::set_memory_bytes(std::size_t{48} << 20);
      const machine::MemoryRange whole = machine::usable_memory().front();
      static const machine::MemoryRange ranges[] = {
          {whole.physical + page_bytes, gap_begin - page_bytes, 0},
          {whole.physical + gap_begin + gap_bytes, whole.bytes - gap_begin - gap_bytes - 3 * page_bytes, 1},
      };
      std::memset(machine::direct_map(whole.physical + gap_begin), 0x5A, gap_bytes);
      initialise_pages(ranges);
      return true;
    }();
    static_cast<void>(once);
  }
  static bool gap_untouched() {
    const auto* const bytes = static_cast<const unsigned char*>(machine::direct_map(machine::usable_memory().front().physical + gap_begin));
    for (std::uint64_t i = 0; i < gap_bytes; ++i) {
      if (bytes[i] != 0x5A) return false;
    }
    return true;
  }
};

TEST_F(PageAllocator, RunsAreAlignedDisjointAndMergeAgain) {
  const std::uint64_t free_before = page_counters().free_bytes;
  std::mt19937 random(1);
  std::map<std::uintptr_t, std::size_t> taken;  // address to bytes
  for (unsigned step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 || taken.empty()) {
      const std::size_t pages = 1 + random() % (random() % 8 == 0 ? 1'000 : 20);
      const unsigned alignment_order = random() % 6;
      void* const run = allocate_run(pages, alignment_order);
      if (run == nullptr) continue;
      const auto address = reinterpret_cast<std::uintptr_t>(run);
      ASSERT_EQ(address % (page_bytes << alignment_order), 0U);
      ASSERT_EQ(run_pages(run), pages);
      const auto after = taken.lower_bound(address);
      if (after != taken.end()) ASSERT_LE(address + pages * page_bytes, after->first);
      if (after != taken.begin()) ASSERT_LE(std::prev(after)->first + std::prev(after)->second, address);
      taken.emplace(address, pages * page_bytes);
    } else {
      auto victim = taken.begin();
      std::advance(victim, random() % taken.size());
      free_run(reinterpret_cast<void*>(victim->first));
      taken.erase(victim);
    }
  }
  for (const auto& [address, bytes] : taken) free_run(reinterpret_cast<void*>(address));
  EXPECT_EQ(page_counters().free_bytes, free_before);
  void* const large = allocate_pages(11);  // 8 MiB: available only if all blocks merged
  ASSERT_NE(large, nullptr);
  free_pages(large, 11);
  EXPECT_TRUE(gap_untouched());
}

// Values of slightly over 1 MiB must not take 2 MiB each.
TEST_F(PageAllocator, RunsOfAnyLengthFillMemory) {
  for (const std::size_t pages : {3U, 25U, 257U}) {
    const std::uint64_t free_before = page_counters().free_bytes;
    std::vector<void*> runs;
    while (void* const run = allocate_run(pages, 0)) runs.push_back(run);
    EXPECT_GT(runs.size() * pages * page_bytes, free_before * 9 / 10) << pages;
    std::shuffle(runs.begin(), runs.end(), std::mt19937(5));
    for (std::size_t round = 0; round < 3'000; ++round) {  // memory is still filled after many frees and allocations
      const std::size_t victim = round * 7 % runs.size();
      free_run(runs[victim]);
      runs[victim] = allocate_run(pages, 0);
      ASSERT_NE(runs[victim], nullptr);
    }
    for (void* const run : runs) free_run(run);
    EXPECT_EQ(page_counters().free_bytes, free_before);
  }
}

TEST_F(PageAllocator, AllPagesCanBeAllocatedSinglyAndThenAreRefused) {
  const std::uint64_t free_before = page_counters().free_bytes;
  const std::uint64_t refused_before = page_counters().refused;
  std::vector<void*> pages;
  while (void* const page = allocate_pages(0)) {
    std::memset(page, 0xEE, page_bytes);
    pages.push_back(page);
  }
  EXPECT_EQ(pages.size() * page_bytes, free_before);
  EXPECT_EQ(page_counters().free_bytes, 0U);
  EXPECT_EQ(page_counters().refused, refused_before + 1);
  for (void* const page : pages) free_pages(page, 0);
  EXPECT_EQ(page_counters().free_bytes, free_before);
  EXPECT_TRUE(gap_untouched());
}

TEST_F(PageAllocator, OwnNodeIsTriedBeforeTheOther) {
  const auto node_of = [](void* pointer) {
    return reinterpret_cast<std::uint64_t>(pointer) < machine::usable_memory().front().physical + gap_begin ? 0 : 1;
  };
  for (const unsigned node : {1U, 0U}) {
    prefer_node(node);
    void* const run = allocate_pages(3);
    EXPECT_EQ(node_of(run), static_cast<int>(node));
    free_pages(run, 3);
    std::vector<void*> runs;
    bool other_seen = false;
    while (void* const more = allocate_pages(3)) {
      EXPECT_TRUE(!other_seen || node_of(more) != static_cast<int>(node)) << "own memory after foreign memory";
      other_seen |= node_of(more) != static_cast<int>(node);
      runs.push_back(more);
    }
    EXPECT_TRUE(other_seen);
    for (void* const each : runs) free_pages(each, 3);
  }
}

// A page that came from another node, because the near node was full, is returned to that node. It is not kept in this core's page cache.
TEST_F(PageAllocator, FarPagesDoNotStayWithACore) {
  prefer_node(1);
  std::vector<void*> near;
  while (node_counters(1).free_bytes != 0 || cached_pages(0) != 0) near.push_back(allocate_pages(0));
  const std::uint64_t foreign = page_counters().foreign;
  void* const far = allocate_pages(0);
  ASSERT_NE(far, nullptr);
  EXPECT_EQ(node_of(far), 0U);
  EXPECT_GT(page_counters().foreign, foreign);
  release_cached_pages();
  for (void* const page : near) free_pages(page, 0);
  free_pages(far, 0);
  void* const next = allocate_pages(0);
  EXPECT_EQ(node_of(next), 1U);
  free_pages(next, 0);
  prefer_node(0);
}

TEST_F(PageAllocator, WrongFreesArePanics) {
  void* const run = allocate_pages(2);
  EXPECT_EXIT(free_pages(run, 1), testing::ExitedWithCode(18), "not allocated with this order");
  EXPECT_EXIT(free_run(static_cast<std::byte*>(run) + page_bytes), testing::ExitedWithCode(18), "not the start of a run");
  free_pages(run, 2);
  EXPECT_EXIT(free_pages(run, 2), testing::ExitedWithCode(18), "not allocated with this order");
  void* const page = allocate_pages(0);
  free_pages(page, 0);
  EXPECT_EXIT(free_pages(page, 0), testing::ExitedWithCode(18), "not allocated with this order");
}

}  // namespace
}  // namespace neap::memory
