// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/options.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace neap::webserver {

namespace {

constexpr std::uint64_t mebibyte = 1 << 20;
// The engine's globals and the library take two MiB.
constexpr std::uint64_t script_memory_least = 8 * mebibyte, script_memory_usual = 256 * mebibyte;
constexpr std::uint64_t output_usual = 64 * mebibyte;

}  // namespace

Options read_options(Arguments& arguments, std::uint64_t free_bytes, unsigned cores) {
  using namespace std::chrono_literals;
  // Half of the memory is for scripts, an eighth for responses in flight. The rest is the card's and the network's.
  const std::uint64_t share = free_bytes / std::max(cores, 1U);
  const std::uint64_t script_usual = std::clamp(share / 2, script_memory_least, script_memory_usual);
  Options options;
  options.script_memory_bytes =
      arguments.bytes("js_memory", script_usual, {script_memory_least, std::max(share, script_memory_least)},
                      "memory of each core's JavaScript; an allocation beyond it fails, and its request is answered with 500");
  options.output_bytes_max =
      arguments.bytes("output_memory", std::clamp(share / 8, mebibyte, output_usual), {mebibyte, std::max(share, mebibyte)},
                      "memory of each core for responses that clients have not read");
  options.connections_max = static_cast<std::uint32_t>(
      arguments.number("connections", 10'000, {1, 16'000}, "connections of each core and server; a further one is answered with 503"));
  constexpr std::chrono::nanoseconds watchdog_least = 10ms, watchdog_most = 1h;
  const std::chrono::nanoseconds watchdog =
      arguments.duration("js_time", 1s, "time after which a turn of the script is ended, and its request answered with 500");
  if (watchdog < watchdog_least || watchdog > watchdog_most) arguments.reject("js_time", "is out of range (10ms to 3600s)");
  options.watchdog_ms = static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(watchdog).count());
  options.port =
      static_cast<std::uint16_t>(arguments.number("port", 8080, {1, 65'535}, "process.env.PORT; the script decides on its port"));
  return options;
}

}  // namespace neap::webserver
