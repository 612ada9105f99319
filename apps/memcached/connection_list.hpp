// SPDX-License-Identifier: BSL-1.0
// Passes over the open connections of a core (connection_list.cpp).
#pragma once

#include <memory>

#include "apps/memcached/service.hpp"

namespace neap::memcached {

/// Makes the answer of `stats conns`: all connections of all cores, and at last the one that asks.
[[nodiscard]] std::unique_ptr<LongAnswer> list_connections(Service& service, CoreState& core);

/// A core wakes at most so often in the time of `idle_timeout` to look for silent connections, and only while it has connections. So a
/// silent connection is closed at most a quarter of that time too late.
constexpr unsigned idle_checks_max = 4;
/// Called for each new connection of `core`, which MUST be this core. Arms the timer of its check, unless it is armed.
void expect_idle(Service& service, CoreState& core);

}  // namespace neap::memcached
