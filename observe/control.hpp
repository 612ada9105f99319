// SPDX-License-Identifier: BSL-1.0
// The control server, with which an application can be observed and configured from outside.
//
// An experiment changes one setting under load and measures the effect. So every image with a network serves a control port: each command
// is one line, and so is its answer (docs/control.md). The port also sends the log. An application starts the server and may add its own
// commands and statistics:
//
//   auto observation = observe::Options::from(arguments, any_card::setting_rows());
//   arguments.finish();
//   …                                                               // card and network
//   auto control = co_await observe::start(std::move(observation), *card->settings, **network);
//   (*control)->add_command("blast,BYTES[,CORE]", "Sends BYTES bytes.", blast);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel/counter.hpp"
#include "kernel/error.hpp"
#include "kernel/policy.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/options.hpp"

namespace neap::observe {

/// The function of an application's command. `words` are those after the name, without the core; they are valid until the function ends.
/// Returns the complete answer in one line, "ok …" or "error: …". The function runs on the core of the client's connection, at the same
/// time as commands of other clients.
using Run = std::function<task<std::string>(std::span<const std::string_view> words, std::optional<unsigned> core)>;

/// Emits an application's counters for one core; if `core` has no value, for the whole machine. MAY be called on any core.
using Statistics = std::function<void(std::optional<unsigned> core, const Emit& emit)>;

class Control {
 public:
  static constexpr std::size_t commands_max = 32;    ///< commands of applications
  static constexpr std::size_t statistics_max = 16;  ///< groups of statistics, for applications

  virtual ~Control() = default;
  /// `usage` is the name, then ",WORD" for each word, with optional words in brackets: "blast,BYTES[,COUNT][,CORE]". The number of words is
  /// checked against the usage. A last word CORE is passed as `core`, which has no value if the word is `all` or missing. MUST be called on
  /// core 0. Errors: `full`, `invalid` (the name is in use).
  virtual Result<void> add_command(std::string usage, std::string help, Run run) = 0;
  /// Adds counters, whose names are shown as "group.name". MUST be called on core 0. Errors: `full`.
  virtual Result<void> add_statistics(std::string group, Statistics statistics) = 0;
  /// Returns a number that differs at each boot; logs and streams contain it.
  [[nodiscard]] virtual std::uint64_t boot_id() const noexcept = 0;
};

/// Applies the command line's settings, prepares the log, and serves the control port. MUST be called once, on core 0. A refused
/// setting is reported on the console. The control object is never freed. Errors: `invalid` (a setting, the port), `out_of_memory`.
[[nodiscard]] task<Result<Control*>> start(Options options, policy::Device& device, net::Network& network);

}  // namespace neap::observe
