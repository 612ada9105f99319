// SPDX-License-Identifier: BSL-1.0
// The text of an exception, for the message of a panic. Kernel-internal.
#pragma once

#include <exception>
#include <string_view>

namespace neap {

/// Panics with `what`, the exception's type and the text of its what().
[[noreturn]] void panic_for_exception(std::string_view what, const std::exception_ptr& exception) noexcept;

/// Makes std::terminate (an exception that leaves an event, a `noexcept` function or a thread) a panic that names the exception.
void install_terminate_handler() noexcept;

}  // namespace neap
