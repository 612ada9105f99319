// SPDX-License-Identifier: BSL-1.0
// The words of the command line that are needed before there is a heap: the console, the reaction to a panic, facts about the CPU.
//
// The first messages are printed before the heap exists, and the parser `Arguments` needs the heap. So these words are parsed here,
// directly from the command line's text. A word that cannot be parsed is ignored here, because the console for a complaint may not exist
// yet. Later `check` passes the words to `Arguments`, which lists them as accepted keys and stops the boot if one is bad.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernel/arguments.hpp"
#include "kernel/power.hpp"

namespace neap {

/// A 16550-compatible UART at an I/O port.
struct SerialPort {
  std::uint16_t port = 0x3f8;
  std::uint32_t baud = 115200;  ///< a divisor of 115200
  bool operator==(const SerialPort&) const = default;
};

struct EarlyOptions {
  static constexpr std::size_t serial_max = 4;

  std::array<SerialPort, serial_max> serial{SerialPort{}};
  std::size_t serial_count = 1;
  WakeTimes wake_up_us{};  ///< measured on this machine; 0: not named
  bool vga = false, reboot_after_panic = false, checked_heap = false, assume_mwait = false, keep_demotion = false;

  /// Reads `console=`, `panic=`, `heap=`, `mwait=`, `demotion=` and `wake_up_times=` from any command line. If a key is repeated, its first
  /// value is used.
  static EarlyOptions from(std::string_view command_line) noexcept;
  /// Parses a list separated by commas: `com1` to `com4`, `serial` (com1) or a port (0x2e8), each optionally followed by its speed; `vga`;
  /// or `none` alone. The default speed is 115200. Returns null on success. Otherwise returns the reason and changes nothing.
  const char* parse_console(std::string_view value) noexcept;
  /// Parses `table` (no time was measured) or a list separated by commas: `c1` to `c7`, each with its wake-up time in whole microseconds,
  /// as in c1:2us,c6:104us. Returns null on success. Otherwise returns the reason and changes nothing.
  const char* parse_wake_up_times(std::string_view value) noexcept;
  /// Registers the same keys, and complains about the values that `from` ignored.
  static void check(Arguments& arguments);
};

}  // namespace neap
