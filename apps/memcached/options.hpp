// SPDX-License-Identifier: BSL-1.0
// The words of the command line: memcached's options by their long names.
//
// An administrator of memcached writes the same names here. A flag of memcached is `NAME=on`. Each option of memcached either has
// its meaning here, or stops the boot with the reason why it has none: `refused_options` has these reasons. docs/memcached.md shows both.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "apps/memcached/settings.hpp"
#include "apps/memcached/store.hpp"
#include "kernel/arguments.hpp"

namespace neap::memcached {

struct RefusedOption {
  std::string_view name;  ///< long name, or the name behind `-o`
  std::string_view why;   ///< behind "is refused: "; has a remedy behind a semicolon, or "; leave it out" follows
};
[[nodiscard]] std::span<const RefusedOption> refused_options() noexcept;

struct Options {
  Settings settings;
  StoreOptions store;
};

/// `memory_bytes_max`: the memory that the cache may use. `cores`: those with a network stack.
[[nodiscard]] Options read_options(Arguments& arguments, std::uint64_t memory_bytes_max, unsigned cores);

}  // namespace neap::memcached
