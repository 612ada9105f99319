// SPDX-License-Identifier: BSL-1.0
#include <array>

#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"

namespace neap {

EventCounters event_counters(unsigned core) noexcept {
  const CoreCounters& counters = core_state(core).counters;
  std::array<std::uint64_t, c_states> sleeps, asleep_ns;
  std::uint64_t all_sleeps = 0, all_ticks = 0;
  for (unsigned state = 0; state < c_states; ++state) {
    sleeps[state] = counters.sleeps[state].value();
    std::uint64_t ticks = counters.asleep_ticks[state].value();
    if (static_cast<std::int64_t>(ticks) < 0) ticks += machine::timestamp();  // the core is asleep
    asleep_ns[state] = nanoseconds(ticks);
    all_sleeps += sleeps[state];
    all_ticks += ticks;
  }
  static_assert(static_cast<unsigned>(IdleState::c1) == 1 && static_cast<unsigned>(IdleState::c7) == c_states - 1);
  // Each interrupt that is not spurious is one callback. An interrupt is counted after the callback, a spurious one before.
  const std::uint64_t interrupts = counters.interrupts.value(), spurious = counters.spurious.value();
  return {.events = counters.events.value() + interrupts - std::min(spurious, interrupts),
          .interrupts = interrupts,
          .spurious = spurious,
          .alarms = counters.alarms.value(),
          .remote_received = counters.remote_received.value(),
          .remote_refused = counters.remote_refused.value(),
          .polling_phases = counters.polling_phases.value(),
          .sleeps = all_sleeps,
          .asleep_ns = nanoseconds(all_ticks),
          .halts = sleeps[0],
          .sleeps_c1 = sleeps[1],
          .sleeps_c1e = sleeps[2],
          .sleeps_c3 = sleeps[3],
          .sleeps_c6 = sleeps[4],
          .sleeps_c7 = sleeps[5],
          .halted_ns = asleep_ns[0],
          .asleep_c1_ns = asleep_ns[1],
          .asleep_c1e_ns = asleep_ns[2],
          .asleep_c3_ns = asleep_ns[3],
          .asleep_c6_ns = asleep_ns[4],
          .asleep_c7_ns = asleep_ns[5]};
}

}  // namespace neap
