// SPDX-License-Identifier: BSL-1.0
// A line on the console.
//
// The console is for boot, faults and people; a serial line at 115200 baud takes 87 us a byte, so nothing on a request's way prints.
#pragma once

#include <format>
#include <string>

#include "kernel/machine.hpp"

namespace neap {

/// Formats and writes one line; the newline is added. Lines of different cores do not mix.
template <typename... Values>
void print(std::format_string<Values...> format, Values&&... values) {
  std::string line = std::format(format, std::forward<Values>(values)...);
  line += '\n';
  machine::console_write(line);
}

}  // namespace neap
