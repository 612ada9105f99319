// SPDX-License-Identifier: BSL-1.0
// Function names for addresses in the image.
//
// A panic on a machine without a debugger must still print function names. The build (boot/link_image.py) puts a table of all functions
// into the image. Names are demangled, parameter lists are left out, and common pieces of names are abbreviated. Layout, little endian:
//   u32 functions, u32 pieces, u32 text_bytes, u32 0
//   u32 offset[functions]     from image_start, ascending
//   u32 bytes[functions]
//   u32 name[functions]       offset in text
//   u32 piece[pieces]         offset in text
//   text: zero-ended strings. In a function's name, a byte from 0x80 up stands for piece (byte - 0x80).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace neap::x86 {

struct Symbol {
  std::string_view name;  ///< the name, in the caller's buffer; truncated if the buffer is too short
  std::uint64_t offset;   ///< the address's offset in the function
};

/// The function that contains `address`; an empty name if there is none. Reads only the image, so it is safe in a panic.
[[nodiscard]] Symbol find_symbol(std::uint64_t address, std::span<char> buffer) noexcept;

}  // namespace neap::x86
