// SPDX-License-Identifier: BSL-1.0
// What other cores may touch of a core.
//
// Everything else of a core is its own, in its thread-local storage, and needs no thought. What stands here is written across cores, so it
// is atomic, lies in cache lines apart, and is made by core 0 before the core starts: nobody ever meets a core that is half there.
// Kernel-internal.
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

namespace neap {

namespace policy {
enum class Segmentation : std::uint8_t;
}

/// One vector of a core. `owned` is the only state in which the core runs the callback.
struct VectorSlot {
  enum class State : std::uint8_t { free, changing, owned };
  std::atomic<State> state{State::free};
  Callback callback;

  /// Carries the slot to its core when the vector is given back.
  struct ReleaseNode : RemoteNode {
    VectorSlot* slot = nullptr;
  };
  static void release_callback(RemoteNode* node) noexcept;
  ReleaseNode release{{.run = &VectorSlot::release_callback, .next = nullptr}, this};
};

/// Written by the core itself alone.
struct CoreCounters {
  Counter events, interrupts, spurious, alarms, remote_received, remote_refused, sleeps, asleep_ns;
};

/// What policy.cpp keeps of a core; written by the core itself alone, but for what a card that comes into use brings with it (`use`).
struct PolicySlot {
  std::atomic<IdleState> idle{IdleState::halt};
  std::atomic<std::uint8_t> turbo{2};
  std::atomic<std::uint16_t> epp{machine::firmwares_preference};
  std::atomic<std::uint32_t> itr_us{0}, poll_budget_us{0}, power_limit_mw{0}, generation{0};
  std::atomic<std::uint64_t> performance{0};
  std::atomic<policy::Segmentation> segmentation{};
  std::atomic<const char*> no_segmentation{"no network is up"};
};

struct Core {
  /// `Core::quiescent_epoch` of a core that sleeps or has not started: it holds no pointer, whatever the epoch.
  static constexpr std::uint64_t offline = ~std::uint64_t{0};

  RemoteQueue<Callback, remote_queue_capacity> remote;
  alignas(64) RemoteList<RemoteNode> handed_over;
  /// Set by the core before it looks at its queues for the last time, cleared by whoever takes it upon himself to wake it. Both sides
  /// store, then load, all sequentially consistent: so either the core sees the work or the sender sees that the core sleeps.
  alignas(64) std::atomic<bool> asleep{false};
  /// The last RCU epoch that this core saw at an event boundary (rcu.cpp).
  alignas(64) std::atomic<std::uint64_t> quiescent_epoch{offline};
  alignas(64) CoreCounters counters;
  PolicySlot policy;
  std::array<VectorSlot, machine::vector_last - machine::vector_first + 1> vectors;
};

/// Makes the state of cores 0 to `count - 1`; core 0, before the others start. Throws `bad_alloc`.
void prepare_cores(unsigned count);
/// Tests only: no core may run any more.
void release_cores() noexcept;

/// The state of a prepared core.
[[nodiscard]] Core& core_state(unsigned core) noexcept;
/// The calling core's; null on a thread that is no core (tests).
[[nodiscard]] Core* this_core_state() noexcept;
/// Ends `core`'s sleep after something was queued for it.
void wake_if_asleep(Core& core, unsigned index) noexcept;

}  // namespace neap
