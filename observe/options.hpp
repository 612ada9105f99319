// SPDX-License-Identifier: BSL-1.0
// The command line's options for log, control and settings. One call reads all of them, so all applications accept the same words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernel/arguments.hpp"
#include "kernel/log.hpp"
#include "kernel/policy.hpp"
#include "observe/allow_list.hpp"
#include "observe/ebbrt_lines.hpp"

namespace neap::observe {

constexpr std::uint16_t default_control_port = 5002;  // published scripts for the library OS EbbRT use this port

struct Options {
  log::Options log;
  std::vector<std::string> events;                                   ///< the names of `log.events`, as the command line has them
  std::optional<std::uint16_t> control_port = default_control_port;  ///< none: no control server
  std::string token;                                                 ///< empty: no token is needed
  AllowList allow;
  /// The card steers control connections to this core, and no other flows.
  std::optional<unsigned> control_core;
  Dialect dialect = Dialect::none;
  policy::BootSettings boot_settings;
  std::uint32_t slow = 1;  ///< the card's clock runs that many times slower than the CPU's
  /// The command line without secrets, for the command `boot` and the logs' headers.
  const Arguments* arguments = nullptr;

  /// Reads `log=`, `log_full=`, `log_sample=`, `log_idle=`, `log_events=`, `control=`, `control_token=`, `control_allow=`, `control_core=`,
  /// `dialect=`, `slow=` and the words of `policy::BootSettings`. `arguments` MUST NOT be destroyed. `card_settings` are the rows of the
  /// card that the application will open (`any_card::setting_rows()`).
  static Options from(Arguments& arguments, std::span<const policy::Row> card_settings);
};

}  // namespace neap::observe
