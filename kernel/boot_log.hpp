// SPDX-License-Identifier: BSL-1.0
// The console's lines, kept in memory.
//
// A machine in a rack often has no serial cable, and what it said while it booted is asked for an hour later, over the network. So every
// line that goes to the console is kept here as well, the newest `bytes_max` bytes of them; control reads it (`dmesg`), a console that
// is set up late is given what was said before it, and a panic takes its last lines from here.
//
// Positions count all bytes since boot and never go back, so a reader knows what it missed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace neap::boot_log {

constexpr std::size_t bytes_max = 64 * 1024;

/// Any core, anywhere, before constructors and in a panic. Called by the machine for all that it writes to the console.
void append(std::string_view text) noexcept;

struct Extent {
  std::uint64_t first = 0;  ///< position of the oldest byte that is still there
  std::uint64_t end = 0;    ///< one past the newest
};
[[nodiscard]] Extent extent() noexcept;

struct Part {
  std::uint64_t first = 0;  ///< position of the first byte copied
  std::size_t bytes = 0;
  std::uint64_t end = 0;  ///< one past the newest there was
};
/// Copies from position `from` on. What is no longer there is left out, and with it the rest of the line that it cuts. Ends behind a line
/// feed if one was copied, so that a reader with a small buffer gets whole lines; a line that is longer than `out` comes in pieces.
[[nodiscard]] Part read(std::uint64_t from, std::span<char> out) noexcept;

/// From here on nobody waits for another core: they have stopped, perhaps in the middle of a line.
void break_lock() noexcept;

}  // namespace neap::boot_log
