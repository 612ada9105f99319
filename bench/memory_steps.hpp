// SPDX-License-Identifier: BSL-1.0
// What is counted of `malloc` and `free`, the same for ours (kernel_memory.cpp) and for another C library's (kernel_peers.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>

#include "bench/marks.hpp"

namespace neap::bench {

constexpr unsigned repetitions = 10'000;

/// Keeps the compiler from knowing what a value is, and from leaving out an allocation.
template <typename T>
T hidden(T value) {
  asm volatile("" : "+r"(value)::"memory");
  return value;
}

/// So many objects are alive while one is freed and the next allocated.
constexpr unsigned objects_held = 64;

/// A `free` and a `malloc` of `bytes` bytes, counted together.
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

/// The two of 64 bytes, each counted alone.
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
