// SPDX-License-Identifier: BSL-1.0
// Reading without a lock what others may remove.
//
// A reader inside an event holds no pointer past the event's end. So once every core has passed an event boundary, or sleeps, nobody can
// still see what was unlinked before: it may be freed then. Readers pay nothing at all. An idle core counts as passed and is never woken
// for it. (McKenney and Slingwine, 1998; EbbRT uses the same property.) A coroutine must not hold such a pointer across `co_await`.
#pragma once

#include <cstdint>

namespace neap::rcu {

/// Embedded in what is to be freed. `reclaim` runs on the core that called `retire`, in a later event.
struct Node {
  void (*reclaim)(Node*) noexcept = nullptr;
  Node* next = nullptr;
};

/// Frees `node` by its `reclaim` once no event that runs now can still hold a pointer to it. Cannot fail, allocates nothing.
void retire(Node& node) noexcept;

/// Nodes retired on this core that wait for their grace period.
[[nodiscard]] std::uint64_t pending() noexcept;

}  // namespace neap::rcu
