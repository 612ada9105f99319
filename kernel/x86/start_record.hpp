// SPDX-License-Identifier: BSL-1.0
// The decision whether a core takes part.
//
// A core may take milliseconds to start on metal, seconds on a busy host of emulated cores, and for ever if it is broken. Core 0 stops
// waiting at some moment, and the core may start at the same moment. If the two sides decided by themselves, a core that was reported as
// left out could still join. So each core has a state, which starts as `waiting` and changes once, by compare-exchange: the core itself
// enters, or core 0 gives it up. The loser sees the winner's value, and no later access changes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace neap::x86 {

struct CoreStart;

/// The record of one core that core 0 starts. trampoline.S reads it, before the core has a stack. A cache line for each core, because the
/// cores read their records in a loop.
struct alignas(64) StartRecord {
  enum class State : std::uint32_t { waiting = 0, in = 1, out = 2 };

  std::uint32_t apic_id = 0;
  std::atomic<State> state{State::waiting};
  /// Set by core 0 for a core that is in: its parameters, or `no_start` if the core shall halt. Null: the core waits.
  std::atomic<CoreStart*> start{nullptr};

  /// Core 0's side. True: the core is out for ever. False: it is in.
  [[nodiscard]] bool give_up() noexcept {
    auto expected = State::waiting;
    return state.compare_exchange_strong(expected, State::out, std::memory_order_acq_rel) || expected == State::out;
  }
  [[nodiscard]] bool is_waiting() const noexcept { return state.load(std::memory_order_acquire) == State::waiting; }
  [[nodiscard]] bool is_in() const noexcept { return state.load(std::memory_order_acquire) == State::in; }
};
static_assert(sizeof(StartRecord) == 64 && offsetof(StartRecord, state) == 4 && offsetof(StartRecord, start) == 8, "see trampoline.S");

/// A value of `StartRecord::start`: no object, and no address of one.
inline CoreStart* no_start() noexcept { return reinterpret_cast<CoreStart*>(1); }

/// Waits until no core of `records` is `waiting`, at most for `limit_ns`, and gives up those that are then. All cores were started before
/// this call, so each has the whole limit. After the call every record is decided for ever. Returns the number of cores that are in.
template <typename Clock, typename Pause>
unsigned decide(std::span<StartRecord> records, std::uint64_t limit_ns, Clock now_ns, Pause pause) noexcept {
  const std::uint64_t begin_ns = now_ns();
  for (const StartRecord& record : records) {
    while (record.is_waiting() && now_ns() - begin_ns < limit_ns) pause();
  }
  unsigned in = 0;
  for (StartRecord& record : records) in += record.give_up() ? 0 : 1;
  return in;
}

}  // namespace neap::x86
