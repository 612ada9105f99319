// SPDX-License-Identifier: BSL-1.0
// Shows that the counter counts right: what is counted here is known beforehand.
//
// An instruction that repeats itself is one, however many bytes it moves; the launcher compares both regions with what they must be before
// it believes any other.
#pragma once

#include <array>
#include <cstddef>

#include "bench/marks.hpp"

namespace neap::bench {

/// 100 times a region of 1000 instructions, and one of a single string instruction, each time over more bytes.
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
