// SPDX-License-Identifier: BSL-1.0
// Model specific registers, with faults turned into errors.
//
// Some MSRs exist only on certain CPU models, microcodes, firmware settings or hypervisors. Access to a missing MSR raises #GP, which is no
// defect of Neap. So each access has an entry in a table of fix-ups, which turns the fault into an error value.
#pragma once

#include <cstdint>

#include "kernel/error.hpp"

namespace neap::x86 {

/// Errors: `unsupported`, with the MSR's number as detail.
[[nodiscard]] Result<std::uint64_t> read_msr(std::uint32_t msr) noexcept;
[[nodiscard]] Result<void> write_msr(std::uint32_t msr, std::uint64_t value) noexcept;

}  // namespace neap::x86
