// SPDX-License-Identifier: BSL-1.0
// Where counting begins and ends.
//
// A mark is a NOP with an operand (Intel SDM volume 2, "NOP", 0F 1F /0), whose displacement says that it is ours: a real CPU passes over
// it, bench/instruction_counter.c sees it. Marks of one region follow each other on one core, beginning and end; they are not counted.
#pragma once

namespace neap::bench {

/// `region`: 0 to 63.
template <unsigned region>
[[gnu::always_inline]] inline void begin_counting() noexcept {
  static_assert(region < 64);
  asm volatile(".byte 0x0F, 0x1F, 0x80, 'N', 'B', %c0, 1" ::"i"(region) : "memory");
}
template <unsigned region>
[[gnu::always_inline]] inline void end_counting() noexcept {
  asm volatile(".byte 0x0F, 0x1F, 0x80, 'N', 'B', %c0, 2" ::"i"(region) : "memory");
}

}  // namespace neap::bench
