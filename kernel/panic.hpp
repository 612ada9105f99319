// SPDX-License-Identifier: BSL-1.0
// Our own mistake.
//
// When an invariant is broken the best that can be done is to say exactly where, and to stop before the damage spreads: the message, a
// symbolised backtrace of this core, its last log records, where the other cores were, then what `panic=` says: halt, or leave the emulator
// with `ExitStatus::panic`; or restart. What was said is kept for the next start (kept_panic.hpp). Never for what a peer or a device did.
#pragma once

#include <cstdint>
#include <source_location>
#include <string_view>

namespace neap {

[[noreturn]] void panic(std::string_view message, std::uint64_t detail = 0,
                        std::source_location where = std::source_location::current()) noexcept;

/// What must hold, in every build: cheap checks at the edges of an interface. (`assert` is for the dear ones, in debug builds.)
inline void require(bool holds, std::string_view message, std::uint64_t detail = 0,
                    std::source_location where = std::source_location::current()) noexcept {
  if (!holds) [[unlikely]]
    panic(message, detail, where);
}

}  // namespace neap
