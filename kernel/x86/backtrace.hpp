// SPDX-License-Identifier: BSL-1.0
// The call chain for a panic. `machine::print_backtrace` and `machine::print_other_cores` print it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernel/x86/exceptions.hpp"

namespace neap::x86 {

[[nodiscard]] bool is_code(std::uint64_t address);

/// The name of the event that the exception in `frame` interrupted: the outermost function that does not belong to the event loop. Empty if
/// the core ran no event.
[[nodiscard]] std::string_view event_of(const ExceptionFrame& frame, std::span<char> buffer) noexcept;

/// For the exception handler. If the fault occurred in a backtrace of a damaged stack, ends the backtrace and does not return.
void leave_broken_walk() noexcept;

}  // namespace neap::x86
