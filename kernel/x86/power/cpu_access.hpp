// SPDX-License-Identifier: BSL-1.0
// CPUID and MSRs as something that can be handed over.
//
// What there is to know about power is knowledge about numbers: which leaf, which MSR, which bits. It goes wrong on machines that nobody
// has at hand. So all of it is written against this interface: on the CPU the instructions are behind it, in a test a table.
#pragma once

#include <cstdint>

#include "kernel/error.hpp"

namespace neap::x86::power {

struct CpuidWords {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

class CpuAccess {
 public:
  [[nodiscard]] virtual CpuidWords cpuid(std::uint32_t leaf, std::uint32_t subleaf) noexcept = 0;
  /// Errors: `unsupported`, with the MSR's number as detail, where the access faults.
  [[nodiscard]] virtual Result<std::uint64_t> read_msr(std::uint32_t msr) noexcept = 0;
  [[nodiscard]] virtual Result<void> write_msr(std::uint32_t msr, std::uint64_t value) noexcept = 0;

 protected:
  ~CpuAccess() = default;
};

}  // namespace neap::x86::power
