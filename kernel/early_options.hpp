// SPDX-License-Identifier: BSL-1.0
// The words of the command line that hold before there is a heap: where the console is, what follows a panic, what to think of the CPU.
//
// `Arguments` comes too late for them, since everything before it wants to be seen. So they are read from the bare text, here; `Arguments`
// is told of them afterwards (`check`), so that they are in its list and a mistake in them stops the boot like any other. What is not
// understood counts as not said: the complaint has to be seen somewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernel/arguments.hpp"

namespace neap {

/// A 16550-compatible UART at an I/O port.
struct SerialPort {
  std::uint16_t port = 0x3f8;
  std::uint32_t baud = 115200;  ///< divides 115200
  bool operator==(const SerialPort&) const = default;
};

struct EarlyOptions {
  static constexpr std::size_t serial_max = 4;

  std::array<SerialPort, serial_max> serial{SerialPort{}};
  std::size_t serial_count = 1;
  bool vga = false;
  bool reboot_after_panic = false;
  bool checked_heap = false;
  bool assume_mwait = false;
  bool keep_demotion = false;

  /// Any command line; the first `console=`, `panic=`, `heap=`, `mwait=` and `demotion=` count.
  static EarlyOptions from(std::string_view command_line) noexcept;
  /// `com1` to `com4`, `serial` (com1) or a port (0x2e8), each with a speed behind it if it is not to be 115200; `vga`; or `none` alone;
  /// separated by commas. Null if it was understood, else why not, and nothing is changed.
  const char* parse_console(std::string_view value) noexcept;
  /// Makes `console=`, `panic=`, `heap=`, `mwait=` and `demotion=` known, and complains of what `from` did not understand.
  static void check(Arguments& arguments);
};

}  // namespace neap
