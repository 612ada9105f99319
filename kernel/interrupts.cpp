// SPDX-License-Identifier: BSL-1.0
#include "kernel/interrupts.hpp"

#include <cstddef>
#include <utility>

#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/panic.hpp"

namespace neap {

constinit thread_local MarkedInterrupts marked_interrupts;

using State = VectorSlot::State;

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

// The callback may be running now on its own core, and the callback may be the caller of this function. So an event of that core destroys
// the callback, and the vector is free only after that event.
void free_vector(unsigned core, std::uint8_t vector) {
  require(vector >= machine::vector_first && vector <= machine::vector_last, "free_vector of a vector that is not for devices", vector);
  require(core < core_count(), "a vector of a core that does not run", core);
  VectorSlot& slot = core_state(core).vectors[vector - machine::vector_first];
  State expected = State::owned;
  require(slot.state.compare_exchange_strong(expected, State::changing, std::memory_order_acquire), "free_vector of a free vector", vector);
  hand_over(core, slot.release);
}

void interrupt_arrived(std::uint8_t vector) noexcept { marked_interrupts.mark(vector); }

void alarm_fired() noexcept {
  forget_alarm();
  if (Core* const self = event_loop.core(); self != nullptr) self->counters.alarms.add();
}

void VectorSlot::release_callback(RemoteNode* node) noexcept {
  VectorSlot& slot = *static_cast<ReleaseNode*>(node)->slot;
  require(slot.state.load(std::memory_order_relaxed) == State::changing, "a vector that is in use is released");
  slot.callback = nullptr;
  slot.state.store(State::free, std::memory_order_release);
}

}  // namespace neap
