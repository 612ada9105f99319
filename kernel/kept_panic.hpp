// SPDX-License-Identifier: BSL-1.0
// The text of a panic, kept for the next start.
//
// When a machine in a rack panics, it is restarted before a person reads its console. But a warm restart leaves most of memory unchanged.
// So a panic copies its last lines to a reserved memory area: the message, the backtrace and the core's last log records. The next start
// prints them once and clears the area. A checksum detects an area that firmware or a loss of power has changed; such an area is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace neap::kept_panic {

constexpr std::size_t area_bytes = 8192;  ///< size of the area that a machine reserves
constexpr std::size_t header_bytes = 32, text_bytes_max = area_bytes - header_bytes;

struct Kept {
  std::uint32_t boot = 0;        ///< number of starts since memory last lost its contents, including the start that wrote the area
  std::uint32_t panic_boot = 0;  ///< which of these starts ended in the panic that `text` describes
  std::string_view text;         ///< empty: no panic
};
/// If the area is not intact, `boot` is 0 in the result. `text` points into the area.
[[nodiscard]] Kept read(std::span<const std::byte> area) noexcept;
/// If the text does not fit, its beginning is cut off, by whole lines if possible. An area too small for a header is left unchanged.
void write(std::span<std::byte> area, const Kept& kept) noexcept;

/// Called at the start, once `machine::kept_memory()` can be used. Prints the text that a panic left in the area, if any, and clears it.
void take_over() noexcept;
/// The text that `take_over` found; empty if there was none.
[[nodiscard]] std::string_view text() noexcept;
/// This start's number since memory last lost its contents, from 1; 0: this machine has no such memory area.
[[nodiscard]] std::uint32_t boot_number() noexcept;
/// Called in a panic: saves the last lines of the boot log in the area. Later calls add the lines printed since. If not all lines fit, the
/// newest are left out, so that the lines before the first call stay (up to a quarter of the area).
void keep() noexcept;

}  // namespace neap::kept_panic
