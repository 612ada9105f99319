// SPDX-License-Identifier: BSL-1.0
// The screen in text mode: 80 by 25 characters at 0xB8000.
//
// Most server boards have a screen that can be looked at from afar, even where no serial cable goes. A machine that was started by UEFI has
// it in a graphics mode; then there is no text, and `open` says so.
#pragma once

#include <string_view>

namespace neap::x86::vga {

/// Clears the screen; false if there is none in text mode. `console.hpp` serialises the calls of all of these.
[[nodiscard]] bool open();

/// The boot page tables have gone: finds the screen again. Nothing may be written in between.
void use_new_tables();

/// Writes at the end of the text; scrolls. What is no printable ASCII becomes a question mark.
void write(std::string_view text);

}  // namespace neap::x86::vga
