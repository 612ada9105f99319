// SPDX-License-Identifier: BSL-1.0
// Model specific registers, without dying of them.
//
// Whether an MSR exists depends on the CPU model, its microcode, firmware locks and the hypervisor; touching one that does not raises #GP.
// That is an answer, not a mistake of ours: so each access has an entry in a table of fix-ups, and the fault becomes an error value.
#pragma once

#include <cstdint>

#include "kernel/error.hpp"

namespace neap::x86 {

/// Errors: `unsupported`, with the MSR's number as detail.
[[nodiscard]] Result<std::uint64_t> read_msr(std::uint32_t msr) noexcept;
[[nodiscard]] Result<void> write_msr(std::uint32_t msr, std::uint64_t value) noexcept;

}  // namespace neap::x86
