// SPDX-License-Identifier: BSL-1.0
// When memory is used up `malloc` gives null and `new` throws, on every core; what is freed can be had again, and the machine goes on.
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "kernel/memory/page_allocator.hpp"
#include "tests/target/check.hpp"

namespace {

using neap::test::check;

struct Block {
  Block* next;
};

// Takes all there is in pieces of `bytes`; returns their number, linked.
std::size_t take_all(std::size_t bytes, Block*& first) {
  std::size_t count = 0;
  while (auto* const block = static_cast<Block*>(std::malloc(bytes))) {
    block->next = first;
    first = block;
    ++count;
  }
  return count;
}

void free_all(Block* first) {
  while (first != nullptr) std::free(std::exchange(first, first->next));
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  for (unsigned core = 0; core < core_count(); ++core) {
    co_await on_core(core, [] {
      Block* large = nullptr;
      Block* small = nullptr;
      const auto large_count = take_all(1 << 20, large);
      check(large_count > 4, "blocks of 1 MiB", large_count);
      (void)take_all(4096, small);
      (void)take_all(64, small);
      check(std::malloc(1 << 20) == nullptr, "malloc refuses");
      bool thrown = false;
      try {
        std::vector<char> too_much(1 << 20);
        check(too_much.empty(), "not reached");
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      check(thrown, "new throws bad_alloc");
      check(neap::memory::page_counters().refused > 0, "and it is counted");
      free_all(small);
      free_all(large);
      Block* again = nullptr;
      const auto again_count = take_all(1 << 20, again);
      check(again_count + 2 >= large_count, "what was freed is there again", again_count);
      free_all(again);
    });
  }
  check(std::malloc(test::hidden(~std::size_t{0} - 4096)) == nullptr, "an absurd size is refused");
  const std::string alive(100'000, 'x');
  check(alive.size() == 100'000, "and the machine goes on");
  co_return 0;
}
