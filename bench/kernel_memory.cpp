// SPDX-License-Identifier: BSL-1.0
// What memory costs: instructions of malloc and free, at home and for another core's object. tools/bench/kernel_memory.py counts them.
//
// Each region is what stands between two marks, 10,000 times over. Objects are held back so that a freed one is not the next one given out:
// as in a server, where the newest free object is one of many.
#include <array>
#include <cstddef>
#include <cstdlib>

#include "bench/known_sequences.hpp"
#include "bench/marks.hpp"
#include "kernel/application.hpp"
#include "kernel/events.hpp"
#include "kernel/memory/heap.hpp"

namespace {

using namespace neap;

// tools/bench/kernel_memory.py knows these numbers; 0 and 1 show that the counter counts right.
enum Region : unsigned { known_sequence, string_instruction, small_pair, page_pair, small_malloc, small_free, remote_free, coming_home };

constexpr unsigned repetitions = 10'000;
constexpr unsigned held = 64;

/// Keeps the compiler from knowing what a value is, and from leaving out an allocation.
template <typename T>
T hidden(T value) {
  asm volatile("" : "+r"(value)::"memory");
  return value;
}

template <Region region>
void count_pairs(std::size_t bytes) {
  std::array<void*, held> objects{};
  for (unsigned i = 0; i < repetitions + held; ++i) {
    void*& place = objects[i % held];
    bench::begin_counting<region>();
    std::free(place);
    place = hidden(std::malloc(hidden(bytes)));
    bench::end_counting<region>();
  }
  for (void* const object : objects) std::free(object);
}

void count_halves() {
  std::array<void*, held> objects{};
  for (unsigned i = 0; i < repetitions; ++i) {
    void*& place = objects[i % held];
    bench::begin_counting<small_free>();
    std::free(hidden(place));
    bench::end_counting<small_free>();
    bench::begin_counting<small_malloc>();
    place = hidden(std::malloc(hidden(std::size_t{64})));
    bench::end_counting<small_malloc>();
  }
  for (void* const object : objects) std::free(object);
}

using Objects = std::array<void*, repetitions>;

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  if (core_count() < 2) co_return 1;
  bench::count_known_sequences<known_sequence, string_instruction>();
  count_pairs<small_pair>(64);
  count_pairs<page_pair>(4096);
  count_halves();
  static Objects objects;
  co_await on_core(1, [] {
    for (void*& object : objects) object = std::malloc(64);
  });
  for (void* const object : objects) {
    bench::begin_counting<remote_free>();
    std::free(hidden(object));
    bench::end_counting<remote_free>();
  }
  // Until all of them have arrived; then the owner puts them back, in one go.
  (void)memory::pass_boundary();
  co_await on_core(1, [] {
    bench::begin_counting<coming_home>();
    while (memory::pass_boundary()) {
    }
    bench::end_counting<coming_home>();
  });
  co_return 0;
}
