// SPDX-License-Identifier: BSL-1.0
// One global epoch counts up whenever a core closes a batch of retired nodes. Every core stores the epoch that it last saw at an event
// boundary (in its own cache line, only when it changed), or "offline" while it sleeps. A batch may go once every core has stored its epoch
// or a later one, or sleeps.
//
// Why that is right, in terms of the C++ memory model: unlinking happens before the epoch's increment. A core that stores epoch e has
// loaded e or a later value before, which synchronises with that increment, so what it reads afterwards is without the unlinked node; what
// it read before happens before its store, which the reclaiming core loads. A core that comes online stores "seen nothing" and then loads
// the epoch: either the reclaiming core sees that store and waits, or the load sees the increment.
#include "kernel/rcu.hpp"

#include <atomic>

#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/panic.hpp"

namespace neap::rcu {
namespace {

constinit std::atomic<std::uint64_t> epoch{1};

/// Goes to a core that holds up this core's batch; runs there at an event boundary and comes back.
struct Question : RemoteNode {
  unsigned home = 0;
  bool on_its_way = false;
};

struct Batches {
  Node* first = nullptr;  // retired since the present batch was closed, oldest first
  Node* last = nullptr;
  Node* closed = nullptr;  // waits for `target`
  Node* ready = nullptr;   // may be reclaimed
  std::uint64_t target = 0;
  std::uint64_t pending = 0;
  std::uint64_t seen = 0;     // what this core stored last
  unsigned passed_cores = 0;  // cores below this one have passed `target`
  Question question;
};
constinit thread_local Batches batches;

/// The first core that has not passed the present batch's epoch; core_count() when all have.
unsigned find_blocker(Batches& own) noexcept {
  const unsigned count = core_count();
  while (own.passed_cores < count) {
    const std::uint64_t seen = core_state(own.passed_cores).quiescent_epoch.load(std::memory_order_seq_cst);
    if (seen < own.target) break;  // `offline` is greater than every epoch
    ++own.passed_cores;
  }
  return own.passed_cores;
}

void publish(Core& self, Batches& own) noexcept {
  const std::uint64_t now = epoch.load(std::memory_order_acquire);
  if (now == own.seen) return;
  own.seen = now;
  self.quiescent_epoch.store(now, std::memory_order_release);
}

void close_batch(Batches& own) noexcept {
  if (own.closed != nullptr || own.first == nullptr) return;
  own.closed = own.first;
  own.first = own.last = nullptr;
  own.target = epoch.fetch_add(1, std::memory_order_seq_cst) + 1;
  own.passed_cores = 0;
}

/// Moves the closed batch to `ready` if its time has come, and closes the next.
void look(Core& self, Batches& own) noexcept {
  close_batch(own);
  publish(self, own);
  if (own.closed == nullptr || own.ready != nullptr || find_blocker(own) < core_count()) return;
  own.ready = own.closed;
  own.closed = nullptr;
  close_batch(own);
}

void answer(RemoteNode* node) noexcept;

void come_back(RemoteNode* node) noexcept {
  static_cast<Question*>(node)->on_its_way = false;
  node->run = &answer;  // the boundary after this event looks again
}

// Runs on the blocking core. That this event began means that the one which blocked is over; the core's own boundary says so to all, but a
// question must not come home before it: so it is said here too.
void answer(RemoteNode* node) noexcept {
  publish(core_state(this_core()), batches);
  node->run = &come_back;
  hand_over(static_cast<Question*>(node)->home, *node);
}

}  // namespace

void retire(Node& node) noexcept {
  require(node.reclaim != nullptr, "an RCU node without a reclaim function");
  Batches& own = batches;
  node.next = nullptr;
  (own.first == nullptr ? own.first : own.last->next) = &node;
  own.last = &node;
  ++own.pending;
}

std::uint64_t pending() noexcept { return batches.pending; }

bool pass_boundary(unsigned budget) noexcept {
  Batches& own = batches;
  if (own.pending == 0) [[likely]] {
    // All that an ordinary turn pays: one load of a line that seldom changes.
    if (epoch.load(std::memory_order_relaxed) != own.seen) publish(core_state(this_core()), own);
    return false;
  }
  look(core_state(this_core()), own);
  if (own.ready == nullptr) return false;
  for (unsigned i = 0; i < budget && own.ready != nullptr; ++i) {
    Node* const node = own.ready;
    own.ready = node->next;
    --own.pending;
    EventLoop::begin_event(reinterpret_cast<std::uintptr_t>(node->reclaim));
    node->reclaim(node);
    event_loop.finish_event();
  }
  return true;
}

// A core that sleeps cannot look again, so it asks the core that holds it up to tell. That core is in an event just now (it would be
// offline otherwise), so this does not wake sleepers; at worst it keeps one awake that was about to lie down.
bool prepare_sleep() noexcept {
  Batches& own = batches;
  if (own.pending == 0) [[likely]]
    return true;
  look(core_state(this_core()), own);
  if (own.ready != nullptr) return false;
  if (own.question.on_its_way) return true;  // whoever has it now wakes this core
  const unsigned blocker = find_blocker(own);
  if (blocker == core_count()) return false;  // passed a moment ago
  own.question.home = this_core();
  own.question.run = &answer;
  own.question.on_its_way = true;
  hand_over(blocker, own.question);
  return true;
}

void go_offline() noexcept { core_state(this_core()).quiescent_epoch.store(Core::offline, std::memory_order_seq_cst); }

void come_online() noexcept {
  Core& self = core_state(this_core());
  self.quiescent_epoch.store(0, std::memory_order_seq_cst);
  batches.seen = epoch.load(std::memory_order_seq_cst);
  self.quiescent_epoch.store(batches.seen, std::memory_order_release);
}

}  // namespace neap::rcu
