// SPDX-License-Identifier: BSL-1.0
// Checks whether firmware made all memory cacheable.
//
// The MTRRs state how each physical address is cached (SDM 3A, 12.11). If an MTRR states "uncached", that overrides our page tables. There
// are few MTRRs. If memory is large or has a large hole below 4 GiB, firmware sometimes leaves a piece uncovered. An image that uses that
// memory runs a hundred times slower, without any error. So the boot checks and reports this. Neap does not change MTRRs.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/x86/power/cpu_access.hpp"

namespace neap::x86::mtrr {

enum class Type : std::uint8_t { uncached = 0, write_combining = 1, write_through = 4, write_protected = 5, write_back = 6 };
constexpr unsigned variable_max = 32;

/// One core's MTRRs above 1 MiB.
struct Ranges {
  bool there = false;  ///< true if the CPU has MTRRs
  bool on = false;     ///< the MTRRs are on; otherwise all memory is uncached
  Type otherwise = Type::uncached;
  struct Range {
    std::uint64_t first, end;
    Type type;
  };
  std::array<Range, variable_max> ranges{};
  unsigned count = 0;
  std::uint64_t fingerprint = 0;  ///< a hash of the MTRRs; equal on all cores unless firmware has a defect
};

[[nodiscard]] Ranges read(power::CpuAccess& cpu) noexcept;

/// The type at an address above 1 MiB (12.11.4.1 for overlapping ranges).
[[nodiscard]] Type type_at(const Ranges& ranges, std::uint64_t physical) noexcept;

/// The first piece of `first` to `end` that is not write-back. In the result, `first == end` means: there is none.
struct Piece {
  std::uint64_t first = 0, end = 0;
  Type type = Type::write_back;
};
[[nodiscard]] Piece first_slow(const Ranges& ranges, std::uint64_t first, std::uint64_t end) noexcept;

[[nodiscard]] const char* name_of(Type type) noexcept;

}  // namespace neap::x86::mtrr
