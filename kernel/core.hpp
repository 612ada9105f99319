// SPDX-License-Identifier: BSL-1.0
// The state of a core that other cores may access.
//
// All other state of a core is in its thread-local storage. Other cores access the members here, so these members are atomic and in
// separate cache lines. Core 0 makes the state of a core before that core starts, so no core sees half-initialised state. Kernel-internal.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "kernel/counter.hpp"
#include "kernel/events.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/machine.hpp"
#include "kernel/power.hpp"
#include "kernel/remote_queue.hpp"
#include "kernel/wake_word.hpp"

namespace neap {

namespace policy {
enum class Segmentation : std::uint8_t;
}

/// One interrupt vector of a core. The core runs the callback only in the state `owned`.
struct alignas(64) VectorSlot {  // the alignment makes it 128 bytes, so that a vector's slot is found by a shift
  enum class State : std::uint8_t { free, changing, owned };
  std::atomic<State> state{State::free};
  Callback callback;

  /// Queues the vector on its core, which destroys the callback and frees the vector.
  struct ReleaseNode : RemoteNode {
    VectorSlot* slot = nullptr;
  };
  static void release_callback(RemoteNode* node) noexcept;
  ReleaseNode release{{.run = &VectorSlot::release_callback}, this};
};

/// Counters of a core. Only the core itself writes them. `events` does not include the callbacks of vectors.
struct CoreCounters {
  Counter events, interrupts, spurious, alarms, remote_received, remote_refused, polling_phases;
  // For each C-state that was requested. At the begin of a sleep its time is subtracted from `asleep_ticks`, and at its end the time is
  // added, so the sum is negative during a sleep.
  std::array<Counter, c_states> sleeps, asleep_ticks;
};

/// The settings of a core (policy.cpp). Only the core itself writes them. Exception: `policy::use` writes the values of a card.
struct PolicySlot {
  std::atomic<IdleState> idle{IdleState::halt}, monitor_state{IdleState::c1};
  std::atomic<std::uint8_t> turbo{2};
  std::atomic<std::uint16_t> epp{machine::firmwares_preference};
  std::atomic<std::uint32_t> itr_us{0}, poll_budget_us{0}, adaptive_poll_us{0}, power_limit_mw{0}, generation{0};
  std::atomic<std::uint64_t> pstate{0};
  std::atomic<policy::Segmentation> segmentation{};
  std::atomic<const char*> no_segmentation{"no network is up"};
};

struct Core {
  /// The value of `quiescent_epoch` for a core whose loop does not run. Such a core has no pointer to an RCU node.
  static constexpr std::uint64_t offline = ~std::uint64_t{0};

  RemoteQueue<Callback, remote_queue_capacity> remote;
  alignas(64) RemoteList<RemoteNode, &queue_end<RemoteNode>> handed_over;
  /// Announces work in the two queues above. A core that sleeps by this word has no pointer to an RCU node, either.
  WakeWord wake_word;
  /// The last RCU epoch that this core saw at an event boundary (rcu.cpp).
  alignas(64) std::atomic<std::uint64_t> quiescent_epoch{offline};
  alignas(64) CoreCounters counters;
  PolicySlot policy;
  std::array<VectorSlot, machine::vector_last - machine::vector_first + 1> vectors;
};

/// Makes the state of cores 0 to `count - 1`. Called by core 0 before the others start. Throws `bad_alloc`.
void prepare_cores(unsigned count);
/// For tests. MUST NOT be called while a core runs.
void release_cores() noexcept;

[[nodiscard]] Core& core_state(unsigned core) noexcept;
/// The calling core's state; null on a thread that is no core (tests).
[[nodiscard]] Core* this_core_state() noexcept;
/// Announces work for `core`, whose state is `state`, and ends its sleep if it sleeps. Called after the work was queued.
inline void announce_work(Core& state, unsigned core, WakeWord::Request what) noexcept {
  if (state.wake_word.request(what)) machine::end_sleep(core);
}
/// Ends the present or next sleep of `core`, without work. A wake is never lost, and is cheap if the core does not sleep.
void wake(unsigned core) noexcept;

}  // namespace neap
