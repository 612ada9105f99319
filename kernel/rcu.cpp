// SPDX-License-Identifier: BSL-1.0
// A global epoch number is incremented whenever a core closes a batch of retired nodes. Every core stores the epoch that it last saw at an
// event boundary. It stores to its own cache line, and only when the epoch has changed. A core has passed a batch if it has stored the
// batch's epoch or a later one, or if its wake word shows that it sleeps. The grace period of a batch ends when every core has passed it.
//
// Why this is correct in the C++ memory model: unlinking happens before the epoch's increment. A core that stores the new epoch or a later
// one has loaded this value before, and that load synchronises with the increment. So the core's later reads do not find the unlinked node.
// The core's earlier reads happen before its store of the epoch, and the reclaiming core loads that value before it frees the node.
//
// The same holds for a core that sleeps: its earlier reads happen before its announcement in the wake word, which the reclaiming core
// loads. A core that wakes up clears the announcement and then loads the epoch. The reclaiming core increments the epoch and then loads the
// wake word. These four accesses are sequentially consistent. So either the reclaiming core sees that the core is awake and waits, or the
// core's load sees the increment. A core whose loop begins stores 0 in place of the announcement, and a core whose loop ends is offline.
#include "kernel/rcu.hpp"

#include <atomic>
#include <utility>

#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/intrusive_queue.hpp"
#include "kernel/panic.hpp"

namespace neap::rcu {

constinit thread_local Progress progress;
constinit std::atomic<std::uint64_t> epoch{1};

void publish(Core& self) noexcept {
  const std::uint64_t now = epoch.load(std::memory_order_seq_cst);
  if (now == progress.seen) return;
  progress.seen = now;
  self.quiescent_epoch.store(now, std::memory_order_release);
}

namespace {

/// Sent to a core that has not passed this core's batch. It runs there as an event and is then sent back.
struct QuiescenceRequest : RemoteNode {
  unsigned home = 0;
  bool in_flight = false;
};

struct Batches {
  IntrusiveQueue<Node> open;    // nodes retired since the last batch was closed
  IntrusiveQueue<Node> closed;  // the batch that waits until all cores have passed it
  IntrusiveQueue<Node> ready;   // nodes that may be reclaimed
  std::uint64_t target = 0;
  unsigned passed_cores = 0;  // all cores with smaller numbers have passed `closed`
  QuiescenceRequest request;
};
constinit thread_local Batches batches;

/// The first core that has not passed the closed batch; `core_count()` if all have.
unsigned find_blocker(Batches& own) noexcept {
  const unsigned count = core_count();
  while (own.passed_cores < count) {
    const Core& core = core_state(own.passed_cores);
    // `offline` is greater than every epoch.
    if (core.quiescent_epoch.load(std::memory_order_seq_cst) < own.target && !core.wake_word.asleep()) break;
    ++own.passed_cores;
  }
  return own.passed_cores;
}

void close_batch(Batches& own) noexcept {
  if (!own.closed.empty() || own.open.empty()) return;
  own.closed = std::move(own.open);
  own.target = epoch.fetch_add(1, std::memory_order_seq_cst) + 1;
  own.passed_cores = 0;
}

/// Moves the closed batch to `ready` if its grace period is over, and closes the next batch.
void advance(Core& self, Batches& own) noexcept {
  close_batch(own);
  publish(self);
  if (own.closed.empty() || !own.ready.empty() || find_blocker(own) < core_count()) return;
  own.ready = std::move(own.closed);
  close_batch(own);
}

/// The request has returned to its own core. The event boundary after this event calls `advance`.
void finish_request(RemoteNode* node) noexcept {
  auto* const request = static_cast<QuiescenceRequest*>(node);
  require(request->in_flight && request->home == this_core(), "a quiescence request returns to its own core, once", request->home);
  request->in_flight = false;
}

// Runs on the core that had not passed the batch. The event that delayed it has ended, because this event has begun. The core would publish
// the new epoch at the boundary after this event. But the request must not return before the epoch is published, so it is published here.
void answer_request(RemoteNode* node) noexcept {
  publish(core_state(this_core()));
  node->run = &finish_request;
  hand_over(static_cast<QuiescenceRequest*>(node)->home, *node);
}

}  // namespace

void retire(Node& node) noexcept {
  require(node.reclaim != nullptr, "an RCU node without a reclaim function");
  batches.open.push_back(node);
  ++progress.pending;
  core_work |= work_bits::rcu;
}

std::uint64_t pending() noexcept { return progress.pending; }

bool reclaim_at_boundary(unsigned budget) noexcept {
  Batches& own = batches;
  if (progress.pending == 0) {
    core_work &= ~work_bits::rcu;
    publish(core_state(this_core()));
    return false;
  }
  advance(core_state(this_core()), own);
  Node* node = own.ready.pop_front();
  if (node == nullptr) return false;
  // All these calls are one event. An event for each node would take 12 instructions more for each.
  EventLoop::begin_event(reinterpret_cast<std::uintptr_t>(node->reclaim));
  std::uint64_t reclaimed = 0;
  do {
    node->reclaim(node);
    ++reclaimed;
  } while (reclaimed < budget && (node = own.ready.pop_front()) != nullptr);
  require(progress.pending >= reclaimed, "more nodes are reclaimed than were retired", reclaimed);
  progress.pending -= reclaimed;
  event_loop.finish_event();
  if (progress.pending == 0) core_work &= ~work_bits::rcu;
  return true;
}

// A sleeping core cannot check its batch. So a core that is about to sleep sends a request to the first core that has not passed the batch.
// That core is awake, because a sleeping core is offline. So the request wakes no sleeping core; at worst it delays a sleep.
bool prepare_sleep_with_pending() noexcept {
  Batches& own = batches;
  advance(core_state(this_core()), own);
  if (!own.ready.empty()) return false;
  if (own.request.in_flight) return true;  // the request's return wakes this core
  const unsigned blocker = find_blocker(own);
  if (blocker == core_count()) return false;  // all cores have now passed the batch
  own.request.home = this_core();
  own.request.run = &answer_request;
  own.request.in_flight = true;
  hand_over(blocker, own.request);
  return true;
}

}  // namespace neap::rcu
