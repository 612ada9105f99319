// SPDX-License-Identifier: BSL-1.0
// Who called whom, for a panic. The printing itself is `machine::print_backtrace` and `machine::print_other_cores`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernel/x86/exceptions.hpp"

namespace neap::x86 {

/// Whether `address` lies in the image's code.
[[nodiscard]] bool is_code(std::uint64_t address);

/// The name of the event in which `frame`'s exception came: its outermost function that is not the event loop's. Empty if the core ran
/// none.
[[nodiscard]] std::string_view event_of(const ExceptionFrame& frame, std::span<char> buffer) noexcept;

/// For the exception handler: if the fault hit this core's walk over a damaged stack, goes on behind that walk; otherwise returns.
void leave_broken_walk() noexcept;

}  // namespace neap::x86
