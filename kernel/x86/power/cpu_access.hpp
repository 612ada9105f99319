// SPDX-License-Identifier: BSL-1.0
// An interface to CPUID and MSRs.
//
// Power management is mostly knowledge about numbers: which leaf, which MSR, which bits. Errors in these numbers appear on machines that
// are not available for tests. So all of this code accesses the CPU by this interface, and a test implements the interface by tables.
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
  /// Errors: `unsupported` if the access faults, with the MSR's number as detail.
  [[nodiscard]] virtual Result<std::uint64_t> read_msr(std::uint32_t msr) noexcept = 0;
  [[nodiscard]] virtual Result<void> write_msr(std::uint32_t msr, std::uint64_t value) noexcept = 0;

 protected:
  ~CpuAccess() = default;
};

}  // namespace neap::x86::power
