// SPDX-License-Identifier: BSL-1.0
// Stopping at a broken invariant.
//
// When an invariant is broken, the best reaction is to report the location, and to stop before the damage spreads. A panic prints the
// message, a symbolised backtrace of this core, its last log records, and the code that the other cores were running. Then the machine
// halts or restarts, as the option `panic=` says (an emulator exits with `ExitStatus::panic`). The text is kept for the next start
// (kept_panic.hpp). A panic is for defects of Neap's code, never for input from a peer or a device.
#pragma once

#include <cstdint>
#include <source_location>
#include <string_view>

namespace neap {

[[noreturn]] void panic(std::string_view message, std::uint64_t detail = 0,
                        std::source_location where = std::source_location::current()) noexcept;

/// Panics unless the condition holds, in every build. For cheap checks at interfaces; `assert` is for expensive checks, in debug builds
/// only.
constexpr void require(bool holds, std::string_view message, std::uint64_t detail = 0,
                       std::source_location where = std::source_location::current()) noexcept {
  if (!holds) [[unlikely]]
    panic(message, detail, where);
}

}  // namespace neap
