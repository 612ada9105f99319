// SPDX-License-Identifier: BSL-1.0
// Reading shared data without a lock while other cores remove parts of it.
//
// A reader inside an event holds no pointer after the event's end. So an unlinked node can be freed once every core has passed an event
// boundary or sleeps. The time until then is the grace period. Reading costs nothing, and no idle core is woken for another core's grace
// period. (McKenney and Slingwine, 1998; EbbRT uses the same property.) A coroutine MUST NOT hold a pointer to a node across `co_await`.
#pragma once

#include <cstdint>

namespace neap::rcu {

/// Embedded in the object that is to be freed. `reclaim` runs on the core that called `retire`, in a later event.
struct Node {
  void (*reclaim)(Node*) noexcept = nullptr;
  Node* next = nullptr;  ///< null until the node is retired
};

/// Calls `node.reclaim` after a grace period. The node MUST be unlinked already and MUST NOT be retired twice. Cannot fail, allocates
/// nothing.
void retire(Node& node) noexcept;

/// The number of nodes that were retired on this core and wait for their grace period.
[[nodiscard]] std::uint64_t pending() noexcept;

}  // namespace neap::rcu
