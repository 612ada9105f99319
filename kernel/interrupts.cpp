// SPDX-License-Identifier: BSL-1.0
#include "kernel/interrupts.hpp"

#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/panic.hpp"

namespace neap {
namespace {

using State = VectorSlot::State;

// One bit a vector. Written by the handler, which runs on this core in the loop's window and nowhere else, and by the loop: no concurrency.
constinit thread_local std::uint64_t marked[4] = {};

void run_vector(Core& self, unsigned vector) noexcept {
  if (vector < machine::vector_first || vector > machine::vector_last) {
    self.counters.spurious.add();
    return;
  }
  VectorSlot& slot = self.vectors[vector - machine::vector_first];
  if (slot.state.load(std::memory_order_acquire) != State::owned) {
    self.counters.spurious.add();
    return;
  }
  slot.callback();
  event_loop.finish_event();
}

}  // namespace

Result<std::uint8_t> allocate_vector(unsigned core, Callback callback) {
  require(core < core_count(), "a vector of a core that does not run", core);
  require(callback != nullptr, "a vector without a callback");
  Core& owner = core_state(core);
  for (std::size_t i = 0; i < owner.vectors.size(); ++i) {
    VectorSlot& slot = owner.vectors[i];
    State expected = State::free;
    if (!slot.state.compare_exchange_strong(expected, State::changing, std::memory_order_acquire, std::memory_order_relaxed)) continue;
    slot.callback = std::move(callback);
    slot.state.store(State::owned, std::memory_order_release);
    return static_cast<std::uint8_t>(machine::vector_first + i);
  }
  return failure(ErrorCode::full, "no free interrupt vector on the core", core);
}

// The callback may be running right now, on its own core, perhaps calling this. So it is destroyed by an event of that core, and the vector
// is free only then.
void free_vector(unsigned core, std::uint8_t vector) {
  require(vector >= machine::vector_first && vector <= machine::vector_last, "free_vector of a vector that is not for devices", vector);
  VectorSlot& slot = core_state(core).vectors[vector - machine::vector_first];
  State expected = State::owned;
  require(slot.state.compare_exchange_strong(expected, State::changing, std::memory_order_acquire), "free_vector of a free vector", vector);
  hand_over(core, slot.release);
}

void interrupt_arrived(std::uint8_t vector) noexcept {
  marked[vector / 64] |= std::uint64_t{1} << (vector % 64);
  if (Core* const self = this_core_state(); self != nullptr) self->counters.interrupts.add();
}

bool interrupts_marked() noexcept { return (marked[0] | marked[1] | marked[2] | marked[3]) != 0; }

bool run_marked_interrupts() noexcept {
  if (!interrupts_marked()) return false;
  Core& self = core_state(this_core());
  for (unsigned word = 0; word < 4; ++word) {
    std::uint64_t bits = std::exchange(marked[word], 0);
    while (bits != 0) {
      run_vector(self, word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
      bits &= bits - 1;
    }
  }
  return true;
}

void VectorSlot::release_callback(RemoteNode* node) noexcept {
  VectorSlot& slot = *static_cast<ReleaseNode*>(node)->slot;
  slot.callback = nullptr;
  slot.state.store(State::free, std::memory_order_release);
}

}  // namespace neap
