// SPDX-License-Identifier: BSL-1.0
// Resets connections whose clients are silent for longer than `idle_timeout=`.
#pragma once

#include "apps/tpcc/service.hpp"

namespace neap::tpcc {

/// MUST be called after each accepted connection, on its core: starts the search for silent connections unless it runs already.
void expect_idle(Service& service, CoreState& core);

}  // namespace neap::tpcc
