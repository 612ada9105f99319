// SPDX-License-Identifier: BSL-1.0
// The console's lines in memory.
//
// A machine in a rack often has no serial cable, and users read its boot messages an hour later, over the network. So the newest
// `bytes_max` bytes of console output are kept here. The control command `dmesg` reads them, a console prints them when it is set up, and a
// panic copies the newest of them to memory that survives a restart (kept_panic.hpp).
//
// Positions count all bytes since boot and never decrease. So a reader can compute how many bytes it missed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace neap::boot_log {

constexpr std::size_t bytes_max = 64 * 1024;

/// May be called on any core, even before constructors run or in a panic. Called for all text that is written to the console.
void append(std::string_view text) noexcept;

struct Extent {
  std::uint64_t first = 0;  ///< position of the oldest byte kept
  std::uint64_t end = 0;    ///< one past the position of the newest byte
};
[[nodiscard]] Extent extent() noexcept;

struct Part {
  std::uint64_t first = 0;  ///< position of the first byte copied
  std::size_t bytes = 0;
  std::uint64_t end = 0;  ///< `Extent::end` at the time of the copy
};
/// Copies from position `from` on. If the byte at `from` is already overwritten, copying starts at the first whole line that is kept.
/// Copying ends after a line feed if one was copied, so a reader with a small buffer gets whole lines. A line longer than `out` is returned
/// in pieces.
[[nodiscard]] Part read(std::uint64_t from, std::span<char> out) noexcept;

/// From now on this core does not wait for the boot log's lock. Called in a panic, when a core that was stopped may hold the lock.
void break_lock() noexcept;

}  // namespace neap::boot_log
