// SPDX-License-Identifier: BSL-1.0
// What the command line says about watching and steering. One call asks for all of it, so every application with a network has the same
// words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernel/arguments.hpp"
#include "kernel/log.hpp"
#include "kernel/policy.hpp"
#include "observe/allow_list.hpp"

namespace neap::observe {

constexpr std::uint16_t default_control_port = 5002;  // the ancestor's

struct Options {
  log::Options log;
  std::optional<std::uint16_t> control_port = default_control_port;  ///< none: no control server
  std::string token;                                                 ///< empty: none is asked for
  AllowList allow;
  /// The card sends control connections to this core, and no other flow.
  std::optional<unsigned> control_core;
  policy::Wishes wishes;
  /// For `boot`, which says what the machine was started with; as it may be printed.
  const Arguments* arguments = nullptr;

  /// Asks for `log=`, `log_full=`, `log_sample=`, `log_idle=`, `control=`, `control_token=`, `control_allow=`, `control_core=` and what
  /// `policy::Wishes` asks for. `arguments` must live as long as the machine, as the application's do.
  static Options from(Arguments& arguments);
};

}  // namespace neap::observe
