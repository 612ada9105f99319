// SPDX-License-Identifier: BSL-1.0
// Exceptions: what the CPU refuses to do.
//
// With one program in the machine every exception is our own mistake, save those that an entry in the fix-up table announces. So the
// handler says all that is known (what, where, the registers, the address, whose stack ran over) and panics; the backtrace goes on through
// the frame into the code that faulted.
#pragma once

#include <cstdint>

namespace neap::x86 {

/// As vectors.S pushes it, and the CPU before that.
struct ExceptionFrame {
  std::uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
  std::uint64_t vector, error_code;
  std::uint64_t rip, cs, rflags, rsp, ss;
};

/// What another core's panic interrupted when it stopped this one; it stays there. Null if it was not stopped.
[[nodiscard]] const ExceptionFrame* stopped_core(unsigned core);

/// Has another core that runs wait in an NMI, at most for `limit_ns`, while `look(frame, context)` sees where it is. False: it did not
/// come. One core looks at a time.
[[nodiscard]] bool look_at_core(unsigned core, std::uint64_t limit_ns, void (*look)(const ExceptionFrame& frame, void* context),
                                void* context) noexcept;

}  // namespace neap::x86
