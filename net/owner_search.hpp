// SPDX-License-Identifier: BSL-1.0
// The search for the core that has a connection.
//
// An ICMP error carries no ports where RSS looks for them, so it may arrive at another core than the connection's segments. If the stack
// can compute the connection's core, it asks only that core. If the device decides, no port names the core of a connection that a peer
// began. The stack then asks the cores one after the other: an error is in one place at a time, so it is handled once, and a flood of
// errors does not multiply. Internal to net/.
#pragma once

#include <new>

#include "kernel/events.hpp"
#include "net/stack.hpp"

namespace neap::net {

template <typename Ask>
void Stack::ask_owners(OwnerSearch search, const Ask& ask) noexcept {
  require(search.cores != 0 && search.core != core_ && search.core - group_.first < group_.cores, "another core of the group is asked",
          search.core);
  try {
    const auto told = spawn_on(search.core, [search, ask]() noexcept {
      Stack* const stack = Stack::here();
      if (stack == nullptr || ask(*stack, search.cores == 1) || search.cores == 1) return;
      stack->ask_owners(stack->group_.after(search), ask);
    });
    (told.has_value() ? counters_.passed_on : counters_.pass_on_refused).add();
  } catch (const std::bad_alloc&) {
    counters_.dropped_memory.add();
  }
}

}  // namespace neap::net
