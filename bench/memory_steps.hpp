// SPDX-License-Identifier: BSL-1.0
// The counted steps of `malloc` and `free`. The steps are the same for Neap's functions (kernel_memory.cpp) and for those of another C
// library (kernel_peers.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>

#include "bench/marks.hpp"

namespace neap::bench {

constexpr unsigned repetitions = 10'000;

/// Hides a value from the compiler, so that it cannot remove an allocation.
template <typename T>
T hidden(T value) {
  asm volatile("" : "+r"(value)::"memory");
  return value;
}

/// The number of objects that are allocated at a time.
constexpr unsigned objects_held = 64;

/// Counts a `free` and a `malloc` of `bytes` bytes together.
template <unsigned region>
void count_pairs(std::size_t bytes) {
  std::array<void*, objects_held> objects{};
  for (unsigned i = 0; i < repetitions + objects_held; ++i) {
    void*& place = objects[i % objects_held];
    begin_counting<region>();
    std::free(place);
    place = hidden(std::malloc(hidden(bytes)));
    end_counting<region>();
  }
  for (void* const object : objects) std::free(object);
}

/// Counts a `malloc` and a `free` of 64 bytes separately.
template <unsigned malloc_region, unsigned free_region>
void count_halves() {
  std::array<void*, objects_held> objects{};
  for (unsigned i = 0; i < repetitions; ++i) {
    void*& place = objects[i % objects_held];
    begin_counting<free_region>();
    std::free(hidden(place));
    end_counting<free_region>();
    begin_counting<malloc_region>();
    place = hidden(std::malloc(hidden(std::size_t{64})));
    end_counting<malloc_region>();
  }
  for (void* const object : objects) std::free(object);
}

}  // namespace neap::bench
