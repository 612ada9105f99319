// SPDX-License-Identifier: BSL-1.0
// Executes the lines of EbbRT's control protocol (ebbrt_lines.hpp).
#pragma once

#include <string>
#include <string_view>

#include "kernel/task.hpp"
#include "observe/ebbrt_lines.hpp"

namespace neap::observe {
class Client;
class Server;
}  // namespace neap::observe

namespace neap::observe::ebbrt {

/// Executes `line` and sends its answer, if EbbRT answers such a line. Returns an empty text, or the reason of a refusal after "error: ".
[[nodiscard]] task<std::string> execute(Server& server, Client& client, Line line);

/// Reports a refused line on the console, because the published scripts discard the answers to most lines. A few lines are reported for
/// each boot, because printing is slow.
void report_refusal(std::string_view name, std::string_view answer) noexcept;

}  // namespace neap::observe::ebbrt
