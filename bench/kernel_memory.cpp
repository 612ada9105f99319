// SPDX-License-Identifier: BSL-1.0
// Measures the instructions of malloc and free, for objects of the calling core and for objects of another core.
// tools/bench/kernel_memory.py counts them.
//
// Each region is the code between two marks, executed 10,000 times. Each region keeps a number of objects alive, as in a server, so that a
// freed object is not the next one that is allocated.
#include <array>
#include <cstdlib>

#include "bench/known_sequences.hpp"
#include "bench/marks.hpp"
#include "bench/memory_steps.hpp"
#include "kernel/application.hpp"
#include "kernel/events.hpp"
#include "kernel/memory/heap.hpp"

namespace {

using namespace neap;

// tools/bench/kernel_memory.py uses these numbers. Regions 0 and 1 check the counter itself.
enum Region : unsigned { known_sequence, string_instruction, small_pair, page_pair, small_malloc, small_free, remote_free, coming_home };

using bench::hidden;
using bench::repetitions;
using Objects = std::array<void*, repetitions>;

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  if (core_count() < 2) co_return 1;
  bench::count_known_sequences<known_sequence, string_instruction>();
  bench::count_pairs<small_pair>(64);
  bench::count_pairs<page_pair>(4096);
  bench::count_halves<small_malloc, small_free>();
  static Objects objects;
  co_await on_core(1, [] {
    for (void*& object : objects) object = std::malloc(64);
  });
  for (void* const object : objects) {
    bench::begin_counting<remote_free>();
    std::free(hidden(object));
    bench::end_counting<remote_free>();
  }
  // Core 0 returns the remaining objects to their owner, core 1. Then core 1 puts all of them into its slabs.
  (void)memory::pass_boundary();
  co_await on_core(1, [] {
    bench::begin_counting<coming_home>();
    while (memory::pass_boundary()) {
    }
    bench::end_counting<coming_home>();
  });
  co_return 0;
}
