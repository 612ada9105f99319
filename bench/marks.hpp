// SPDX-License-Identifier: BSL-1.0
// The begin and end marks of counted regions.
//
// A mark is a NOP with an operand (Intel SDM volume 2, "NOP", 0F 1F /0), whose displacement identifies the mark. A real CPU ignores the
// mark, and bench/instruction_counter.c detects it. On each core, the begin marks and end marks of one region alternate. The marks
// themselves are not counted.
#pragma once

namespace neap::bench {

/// `region` MUST be 0 to 63.
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
