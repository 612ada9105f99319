// SPDX-License-Identifier: BSL-1.0
// Lying down without missing the call to get up.
//
// A core that finds nothing to do sleeps, and between its last look and the instruction that sleeps somebody may hand it work. Three ways
// of sleeping close that gap differently:
//
// - halt: the sender sees `halted` in the core's word and sends an interrupt, which HLT takes, because STI opens interrupts only after it.
// - mwait: the core's word is the monitored line, so the sender's write to it is the call. It comes before MONITOR, and then the look after
//   MONITOR finds it; or after, and then MWAIT ends or falls through (SDM 2B, MWAIT).
// - watch: the monitored line is the card's next descriptor, so others send an interrupt as for halt.
//
// In all three the word changes before the last look, by a sequentially consistent exchange; and a sender queues its work before it looks
// at the word. So either the look finds the work or the sender finds the word.
//
// QEMU's emulator has an MWAIT that returns at once. Where the command line says that MWAIT is to be taken for one that sleeps, it is
// executed there again and again until what it waits for has come, and nothing else is looked at: so a line that nobody writes any more, or
// a call by the wrong means, is slept through there as on a CPU.
//
// On some CPUs MONITOR misses writes (`MonitorErrata`). There a core in MWAIT is called by an interrupt as well, as one in HLT is, and
// `watch` is not offered: the card's write would have to be seen.
//
// The instructions are behind `Cpu`, so that tests can put a wake-up into every gap.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/power.hpp"
#include "kernel/watched_line.hpp"
#include "kernel/x86/power/models.hpp"

namespace neap::x86::power {

enum class Way : std::uint8_t { halt, mwait, watch };

struct SleepPlan {
  Way way = Way::halt;
  std::uint8_t hint = 0;             ///< EAX of MWAIT
  bool returns_at_once = false;      ///< MWAIT does, so it is repeated
  bool flush_line = false;           ///< before MONITOR: an erratum (models.hpp)
  bool called_by_interrupt = false;  ///< `mwait`: a write alone may not end the sleep, likewise
};

/// What this CPU can sleep in; found once at boot.
struct SleepWays {
  bool mwait_sleeps = false;
  bool mwait_returns_at_once = false;  ///< and is to be repeated until it may end
  MonitorErrata errata{};
  Hints hints{};                       ///< only those that the CPU lists, and that leave the core's timer running
  std::uint8_t parked_hint = no_hint;  ///< the deepest that the CPU lists: a parked core has no timer to miss

  /// Halt for everything that is not there: a core must sleep somehow. `monitor` sleeps as lightly as MWAIT can: it is for quick answers.
  [[nodiscard]] constexpr SleepPlan plan(IdleState asked, bool watched) const noexcept {
    if (!mwait_sleeps) return {};
    const bool watch = asked == IdleState::monitor;
    const std::uint8_t hint = hints[static_cast<unsigned>(watch ? IdleState::c1 : asked)];
    if (hint == no_hint || (watch && !watched)) return {};
    return {.way = watch ? Way::watch : Way::mwait,
            .hint = hint,
            .returns_at_once = mwait_returns_at_once,
            .flush_line = errata.flush_before,
            .called_by_interrupt = errata.writes_missed};
  }
  /// For a core that runs nothing and waits for nothing. Halt where MWAIT would return at once: nothing ends this sleep.
  [[nodiscard]] constexpr SleepPlan plan_parked() const noexcept {
    if (!mwait_sleeps || mwait_returns_at_once || parked_hint == no_hint) return {};
    return {.way = Way::mwait, .hint = parked_hint};
  }
};

/// One core's word. A cache line of its own: writes to neighbours would end its sleep.
class alignas(64) WakeWord {
 public:
  /// Own core. False: somebody called since it got up last.
  [[nodiscard]] bool lie_down(SleepPlan plan) noexcept {
    auto expected = State::awake;
    const bool write_ends_it = plan.way == Way::mwait && !plan.called_by_interrupt;
    return state_.compare_exchange_strong(expected, write_ends_it ? State::dozing : State::halted, std::memory_order_seq_cst);
  }
  [[nodiscard]] bool was_called() const noexcept { return state_.load(std::memory_order_seq_cst) == State::woken; }
  /// Own core; true if somebody called.
  bool get_up() noexcept { return state_.exchange(State::awake, std::memory_order_seq_cst) == State::woken; }

  /// Any core. True: the write alone does not end the sleep, send an interrupt too.
  [[nodiscard]] bool wake() noexcept { return state_.exchange(State::woken, std::memory_order_seq_cst) == State::halted; }

  [[nodiscard]] const volatile void* line() const noexcept { return this; }

 private:
  enum class State : std::uint32_t { awake, halted, dozing, woken };
  std::atomic<State> state_{State::awake};
};
static_assert(sizeof(WakeWord) == 64);

/// The vectors that the judgement knows by name.
struct OwnVectors {
  std::uint8_t alarm, wake;
};

/// What ended a sleep: the first interrupt taken (`vector`, 0: none), else a call by memory.
constexpr Sleep judge(std::uint8_t vector, bool called, OwnVectors own) noexcept {
  if (vector == own.alarm) return {.cause = WakeCause::timer, .vector = vector};
  if (vector == own.wake) return {.cause = WakeCause::wake_up, .vector = vector};
  if (vector != 0) return {.cause = WakeCause::interrupt, .vector = vector};
  return {.cause = called ? WakeCause::memory : WakeCause::unknown, .vector = 0};
}

/// `Cpu`: `flush(line)` from all caches, `monitor(line)`, `halt()` (sti; hlt; cli), `mwait(hint)` (sti; mwait; cli), `first_vector_taken()`
/// in the last of these two, 0 if none.
template <typename Cpu>
Sleep lie_down_and_sleep(Cpu& cpu, WakeWord& word, SleepPlan plan, const volatile void* watched, bool (*still_idle)() noexcept,
                         OwnVectors own) noexcept {
  bool slept = false;
  if (word.lie_down(plan)) {
    const volatile void* const line = plan.way == Way::mwait ? word.line() : watched;
    if (plan.flush_line) [[unlikely]]
      cpu.flush(line);
    if (plan.way != Way::halt) cpu.monitor(line);
    const WatchedLine before = plan.returns_at_once ? WatchedLine(line) : WatchedLine();
    if (!word.was_called() && still_idle()) {
      slept = true;
      if (plan.way == Way::halt) {
        cpu.halt();
      } else {
        do cpu.mwait(plan.hint);
        while (plan.returns_at_once && cpu.first_vector_taken() == 0 && !before.changed());
      }
    }
  }
  const bool called = word.get_up();
  return slept ? judge(cpu.first_vector_taken(), called, own) : Sleep{};
}

}  // namespace neap::x86::power
