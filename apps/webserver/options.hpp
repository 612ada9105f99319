// SPDX-License-Identifier: BSL-1.0
// The words of the command line: the limits that a script cannot change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/arguments.hpp"

namespace neap::webserver {

struct Options {
  std::size_t script_memory_bytes = 0;  ///< of each core's JavaScript heap
  std::uint32_t watchdog_ms = 0;        ///< a longer turn of a script is ended
  std::uint32_t connections_max = 0;    ///< of each core, all servers together
  std::size_t output_bytes_max = 0;     ///< of each core: responses queued for all clients
  std::uint16_t port = 0;               ///< the script sees it as process.env.PORT
};

/// `free_bytes`: the memory that is free at the start. `cores`: those that run a script.
[[nodiscard]] Options read_options(Arguments& arguments, std::uint64_t free_bytes, unsigned cores);

}  // namespace neap::webserver
