// SPDX-License-Identifier: BSL-1.0
// The words of the command line.
#pragma once

#include <cstdint>

#include "kernel/arguments.hpp"

namespace neap::tpcc {

struct Options {
  std::uint16_t port = 11211;
  std::uint32_t warehouses = 1;      ///< with fewer than cores, several cores share one as home
  std::uint64_t seed = 1;            ///< of the tables and of the transactions' inputs
  unsigned connections_max = 16384;  ///< of all cores together
  unsigned idle_timeout_s = 0;       ///< a connection that is silent for longer is reset; 0: never
  unsigned requests_per_event = 16;  ///< transactions of one connection after which other connections are served
  unsigned attempts_max = 10'000;    ///< of a transaction; then its client gets an error
  std::uint64_t reserve_bytes = 0;   ///< with less free memory, transactions that insert are refused
};

/// `free_bytes`: the memory that is free at the start. `cores`: those that run transactions.
[[nodiscard]] Options read_options(Arguments& arguments, std::uint64_t free_bytes, unsigned cores);

}  // namespace neap::tpcc
