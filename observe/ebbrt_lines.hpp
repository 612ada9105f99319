// SPDX-License-Identifier: BSL-1.0
// The lines of EbbRT's control protocol.
//
// Published scripts of studies with the library operating system EbbRT send lines such as `rx_usecs,8` and `start,0` to TCP port 5002. Some
// of their names and numbers have another meaning in Neap's control: EbbRT's `rx_usecs,8` is 16 us. So these lines are understood as EbbRT
// understood them only in an image that was booted with `dialect=ebbrt`. This file has the syntax; ebbrt_commands.cpp has the actions.
//
// Source: EbbRT-memcached and EbbRT-Silo (TcpCommand.cc), EbbRT (IxgbeDriver.cc, branch baremetalNIC), and the scripts in SESA/intlog.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace neap::observe {

/// The protocol of control's lines; the command line's word `dialect=`.
enum class Dialect : std::uint8_t { none, ebbrt };

}  // namespace neap::observe

namespace neap::observe::ebbrt {

enum class Action : std::uint8_t {
  start,  ///< the number has no meaning in these four
  stop,
  clear,
  bounds,        ///< `rdtsc`: the time stamps of the run's start and end
  counters,      ///< `getcounters`
  print,         ///< a core's number of log entries, on the console
  log,           ///< `get`: a core's log
  moderation,    ///< `rx_usecs`: units of 2 us
  performance,   ///< `dvfs`: the value of IA32_PERF_CTL
  power_limit,   ///< `rapl`: watts
  idle,          ///< `sleep_state`: the hint of MWAIT
  segmentation,  ///< `ixgbe_switch_send`: 1 one descriptor, 2 several
};

struct Line {
  Action action{};
  std::uint64_t number = 0;
};
using Parsed = std::expected<Line, std::string>;

/// The largest `rx_usecs`: the field of EITR has nine bits (82599 datasheet 8.2.3.5.12).
constexpr std::uint64_t moderation_units_max = 511;
constexpr std::uint64_t moderation_unit_us = 2;

/// Returns nothing if the line is not one of EbbRT's; then Neap's own commands answer it. `words` has the name first. The names that Neap
/// has, too (`start`, `stop`, `clear`, `rdtsc`, `get`, `print`), are EbbRT's if exactly one word follows, and that word is a decimal
/// number. The error is the reason to report.
[[nodiscard]] std::optional<Parsed> parse_line(std::span<const std::string_view> words);

/// The idle state whose MWAIT hint this is on Sandy Bridge, the CPU of the published scripts; empty if there is none.
[[nodiscard]] std::string_view idle_state_of_hint(std::uint64_t hint) noexcept;

}  // namespace neap::observe::ebbrt
