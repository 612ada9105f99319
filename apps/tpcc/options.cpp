// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/options.hpp"

#include <algorithm>

namespace neap::tpcc {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;
constexpr unsigned connections_core = 16384;   // the network stack's limit
constexpr unsigned idle_timeout_s_max = 3600;  // a probe of TCP after two hours would count as a sign of the client
constexpr std::uint64_t warehouses_max = 4096;

}  // namespace

Options read_options(Arguments& arguments, std::uint64_t free_bytes, unsigned cores) {
  Options options;
  options.port = static_cast<std::uint16_t>(arguments.number("port", 11211, {1, 65535}, "TCP port on which clients are served"));
  options.warehouses = static_cast<std::uint32_t>(arguments.number(
      "warehouses", cores, {1, warehouses_max}, "warehouses of the database; the cores share them as homes of their clients"));
  options.seed = arguments.number("seed", 1, {}, "of the tables and of the transactions: equal seeds give equal databases");
  const std::uint64_t connections_max = std::uint64_t{connections_core} * cores;
  options.connections_max =
      static_cast<unsigned>(arguments.number("connections", connections_max, {1, connections_max}, "open connections"));
  options.idle_timeout_s = static_cast<unsigned>(
      arguments.number("idle_timeout", 0, {0, idle_timeout_s_max}, "seconds until a silent connection is reset; 0: never"));
  options.requests_per_event = static_cast<unsigned>(arguments.number(
      "max-reqs-per-event", 16, {1, 1'000'000}, "transactions of one connection after which other connections are served"));
  options.attempts_max =
      static_cast<unsigned>(arguments.number("attempts", 10'000, {1, 1'000'000}, "attempts of a transaction that has conflicts"));
  // The network and the card need memory when the tables have grown.
  options.reserve_bytes = arguments.bytes("reserve", std::max(free_bytes / 16, mebibyte), {0, std::max(free_bytes, mebibyte)},
                                          "memory left free; with less, transactions that insert are refused");
  return options;
}

}  // namespace neap::tpcc
