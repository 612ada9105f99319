// SPDX-License-Identifier: BSL-1.0
// Who called whom, for a panic. The printing itself is `machine::print_backtrace`.
#pragma once

#include <cstdint>

namespace neap::x86 {

/// Whether `address` lies in the image's code.
[[nodiscard]] bool is_code(std::uint64_t address);

}  // namespace neap::x86
