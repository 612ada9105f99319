// SPDX-License-Identifier: BSL-1.0
// The screen in text mode: 80 by 25 characters at 0xB8000.
//
// Most server boards have a screen that can be viewed remotely, even without a serial cable. A machine started by UEFI has its screen in a
// graphics mode. Then text cannot be shown, and `open` reports that.
#pragma once

#include <string_view>

namespace neap::x86::vga {

/// Clears the screen; false if there is none in text mode. `console.hpp` serialises calls of all functions here.
[[nodiscard]] bool open();

/// Moves the screen to the final page tables. MUST be called before the first write after these tables are loaded.
void use_new_tables();

/// Appends text and scrolls. A character that is not printable ASCII becomes a question mark.
void write(std::string_view text);

}  // namespace neap::x86::vga
