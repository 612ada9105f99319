// SPDX-License-Identifier: BSL-1.0
// CPU exceptions.
//
// The machine runs one program, so every exception is a defect of that program, unless the table of fix-ups (msr.cpp) lists the instruction
// that raised it. The handler prints all that is known (kind, location, registers, address, overflowed stack) and panics. The backtrace
// continues through the exception frame into the code that faulted.
#pragma once

#include <cstdint>

namespace neap::x86 {

/// The registers that vectors.S pushes, then the words that the CPU has pushed before them.
struct ExceptionFrame {
  std::uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
  std::uint64_t vector, error_code;
  std::uint64_t rip, cs, rflags, rsp, ss;
};

/// The state in which `core` was stopped by another core's panic; `core` remains in that state. Null if `core` was not stopped.
[[nodiscard]] const ExceptionFrame* stopped_core(unsigned core);

/// Makes another running core wait in an NMI, at most for `limit_ns`, while `look(frame, context)` reads its state. False: the core did not
/// respond. Only one core may call this at a time.
[[nodiscard]] bool inspect_core(unsigned core, std::uint64_t limit_ns, void (*look)(const ExceptionFrame& frame, void* context),
                                void* context) noexcept;

}  // namespace neap::x86
