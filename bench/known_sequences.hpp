// SPDX-License-Identifier: BSL-1.0
// Checks the counter with sequences whose counts are known.
//
// A repeated string instruction counts once, however many bytes it moves. The launcher compares both regions with their known counts before
// it uses any other count.
#pragma once

#include <array>
#include <cstddef>

#include "bench/marks.hpp"

namespace neap::bench {

/// Executes two regions 100 times each. One has 1000 instructions, the other a single string instruction that stores more bytes each time.
template <unsigned known_sequence, unsigned string_instruction>
void count_known_sequences() {
  std::array<std::byte, 777> memory;
  for (unsigned i = 0; i < 100; ++i) {
    begin_counting<known_sequence>();
    asm volatile(".rept 1000\n\tnop\n\t.endr");
    end_counting<known_sequence>();
    void* to = memory.data();
    std::size_t bytes = 1 + 7 * i;
    begin_counting<string_instruction>();
    asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(0) : "memory");
    end_counting<string_instruction>();
  }
}

}  // namespace neap::bench
