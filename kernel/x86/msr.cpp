// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/msr.hpp"

namespace neap::x86 {

// An entry of the fix-up table: the instruction that may fault, and the address to continue at. The handler also sets the carry flag.
#define NEAP_FIXUP                            \
  ".pushsection .exception_fixups, \"a\"\n\t" \
  ".quad 1b, 2b\n\t"                          \
  ".popsection"

Result<std::uint64_t> read_msr(std::uint32_t msr) noexcept {
  std::uint32_t low = 0, high = 0;
  bool faulted;
  asm volatile(
      "clc\n"
      "1: rdmsr\n"
      "2:\n\t" NEAP_FIXUP
      : "+a"(low), "+d"(high), "=@ccc"(faulted)
      : "c"(msr)
      : "memory");
  if (faulted) return failure(ErrorCode::unsupported, "reading this MSR faults", msr);
  return static_cast<std::uint64_t>(high) << 32 | low;
}

Result<void> write_msr(std::uint32_t msr, std::uint64_t value) noexcept {
  bool faulted;
  asm volatile(
      "clc\n"
      "1: wrmsr\n"
      "2:\n\t" NEAP_FIXUP
      : "=@ccc"(faulted)
      : "c"(msr), "a"(static_cast<std::uint32_t>(value)), "d"(static_cast<std::uint32_t>(value >> 32))
      : "memory");
  if (faulted) return failure(ErrorCode::unsupported, "writing this MSR faults", msr);
  return {};
}

}  // namespace neap::x86
