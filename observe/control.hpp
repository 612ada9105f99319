// SPDX-License-Identifier: BSL-1.0
// Seeing and steering from outside: what an application starts to be observed.
//
// A study changes one setting while load is offered and looks at what the machine did. So every image with a network serves a control
// port: one line a command, one line back (docs/control.md), besides the log's way out. An application names its part and may add commands
// and statistics of its own:
//
//   auto observation = observe::Options::from(arguments);
//   arguments.finish();
//   …                                                               // card and network
//   auto control = co_await observe::start(std::move(observation), **card, **network);
//   (*control)->add_command("blast,BYTES[,CORE]", "sends so much", blast);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

/// What a command of an application does: `words` after its name, without the core. Returns the whole answer, "ok …" or "error: …", one
/// line. On the core of the client's connection, which waits for the answer; not serialised against other clients. `words` stay until it
/// ends.
using Run = std::function<task<std::string>(std::span<const std::string_view> words, std::optional<unsigned> core)>;

/// Tells an application's counters, of one core or (without one) of the machine; any core calls it.
using Statistics = std::function<void(std::optional<unsigned> core, const Emit& emit)>;

class Control {
 public:
  static constexpr std::size_t commands_max = 32;    ///< of applications
  static constexpr std::size_t statistics_max = 16;  ///< groups

  virtual ~Control() = default;
  /// `usage`: the name, then ",WORD" for each word, optional ones in brackets: "blast,BYTES[,COUNT][,CORE]". The number of words is checked
  /// against it. A last word CORE is taken off: one core, or none for `all` and where it is left out. Core 0. Errors: `full`, `invalid` (a
  /// name that is taken).
  virtual Result<void> add_command(std::string usage, std::string help, Run run) = 0;
  /// Names are shown as "group.name". Core 0. Errors: `full`.
  virtual Result<void> add_statistics(std::string group, Statistics statistics) = 0;
  /// Differs at each boot; stands in logs and streams.
  [[nodiscard]] virtual std::uint64_t boot_id() const noexcept = 0;
};

/// Takes the log's memory, applies the policy that the command line asks for, and serves the control port; core 0, once. A setting that is
/// refused is said on the console. The control lives as long as the machine. Errors: `invalid` (a setting, the port), `out_of_memory`.
[[nodiscard]] task<Result<Control*>> start(Options options, policy::Device& device, net::Network& network);

}  // namespace neap::observe
