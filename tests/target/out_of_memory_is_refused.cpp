// SPDX-License-Identifier: BSL-1.0
// When memory is used up, `malloc` returns null and `new` throws, on every core; freed memory can be allocated again, and work goes on.
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernel/memory/page_allocator.hpp"
#include "tests/target/check.hpp"

namespace {

using neap::test::check;

struct Block {
  Block* next;
};

// Allocates all memory as a linked list of blocks of `bytes` each, and returns their number.
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

std::atomic<unsigned> ready{0}, threw{0}, done{0};

// Throws an exception while no memory is free, on all cores at once. Exceptions then use the C++ library's reserve.
void throw_at_the_end() {
  ready.fetch_add(1);
  const std::uint64_t begin_ns = neap::machine::now_ns();
  while (ready.load() < neap::core_count() && neap::machine::now_ns() - begin_ns < 60'000'000'000) neap::machine::pause();
  for (unsigned i = 0; i < 50; ++i) {
    try {
      std::vector<char> too_much(neap::test::hidden(std::size_t{1} << 20));
      check(too_much.empty(), "not reached");
    } catch (const std::bad_alloc&) {
      threw.fetch_add(1);
    }
  }
  done.fetch_add(1);
}

/// Allocates all memory of the machine on core 0. Further allocations throw, and the machine works again afterwards.
neap::task<void> use_up_and_go_on() {
  static std::array<neap::RemoteNode, neap::machine::cores_max> nodes;
  Block* pieces = nullptr;
  bool refused = false;
  // The allocation is repeated, because other cores release their reserves after a refusal.
  for (int tries = 0; tries < 1'000 && !refused; ++tries) {
    (void)take_all(1 << 16, pieces);
    for (std::size_t bytes = 8192; bytes != 0; bytes -= 16) (void)take_all(bytes, pieces);
    try {
      co_await neap::on_core(0, [] {});  // allocates a coroutine's frame
    } catch (const std::bad_alloc&) {
      refused = true;
    }
  }
  check(refused, "a task that finds no memory throws to its awaiter");
  for (unsigned core = 1; core < neap::core_count(); ++core) {
    nodes[core].run = [](neap::RemoteNode*) noexcept { throw_at_the_end(); };
    neap::hand_over(core, nodes[core]);
  }
  throw_at_the_end();
  const std::uint64_t begin_ns = neap::machine::now_ns();
  while (done.load() < neap::core_count() && neap::machine::now_ns() - begin_ns < 60'000'000'000) neap::machine::pause();
  check(threw.load() == 50 * neap::core_count(), "bad_alloc on every core at once", threw.load());
  free_all(pieces);
  const int answer = co_await neap::on_core(neap::core_count() - 1, [] { return 7; });
  check(answer == 7, "tasks run again");
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
  co_await use_up_and_go_on();
  const std::string alive(100'000, 'x');
  check(alive.size() == 100'000, "and the machine goes on");
  co_return 0;
}
