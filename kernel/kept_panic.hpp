// SPDX-License-Identifier: BSL-1.0
// The last words of a machine that nobody was looking at.
//
// A panic in a rack is read by nobody, and the machine is started again before anybody comes. But a warm restart leaves most of memory as
// it is. So a panic copies its last lines (they end with the message, the backtrace and the core's last records) to a place that the next
// start finds again, says once, and clears. Nothing there is believed without its checksum: after a loss of power, or firmware that clears
// memory, there is nothing to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace neap::kept_panic {

constexpr std::size_t area_bytes = 8192;  ///< what a machine sets aside
constexpr std::size_t header_bytes = 32;
constexpr std::size_t text_bytes_max = area_bytes - header_bytes;

/// What an area holds.
struct Kept {
  std::uint32_t boot = 0;        ///< starts since memory was last lost, the one that wrote this included
  std::uint32_t panic_boot = 0;  ///< of them, the one that ended in the panic below
  std::string_view text;         ///< empty: no panic
};
/// Nothing (boot 0) unless the area is whole; `text` lies in it.
[[nodiscard]] Kept read(std::span<const std::byte> area) noexcept;
/// Text that does not fit loses its beginning, by whole lines if it has any. An area too small for a header is left alone.
void write(std::span<std::byte> area, const Kept& kept) noexcept;

/// At the start, once `machine::kept_memory()` is there: prints what the run before left, if it left anything, and clears it.
void take_over() noexcept;
/// What `take_over` found, as long as this run lasts; empty if nothing.
[[nodiscard]] std::string_view text() noexcept;
/// This start's number since memory was last lost, from 1; 0: memory is not kept on this machine.
[[nodiscard]] std::uint32_t boot_number() noexcept;
/// In a panic: keeps the last lines of the boot log. May be called again, when more was said; of what is too much then, the beginning that
/// the first call kept stays (at least a quarter of the area) and the end is cut off.
void keep() noexcept;

}  // namespace neap::kept_panic
