// SPDX-License-Identifier: BSL-1.0
// How a core sleeps without missing a wake-up.
//
// A core with nothing to do sleeps. Another core may hand over work after the sleeping core's last check and before the instruction that
// sleeps. Three ways of sleeping close that gap differently:
//
// - halt: the sender sees in the core's `WakeWord` that it has to send an interrupt. HLT takes it, because STI enables interrupts only once
//   HLT begins.
// - mwait: the core's `WakeWord` is the monitored line, so the sender's write to it is the wake-up. A write before MONITOR is found by the
//   check after MONITOR. A later write makes MWAIT end or fall through (SDM 2B, MWAIT).
// - watch: the monitored line is the card's next descriptor, so other cores send an interrupt as for halt.
//
// In all three ways the core announces its sleep in its `WakeWord`, which fails if a sender has set a bit there (kernel/wake_word.hpp).
//
// QEMU's emulator has an MWAIT that returns at once. With the boot option `mwait=assumed`, MWAIT is repeated until the monitored line is
// written or an interrupt arrives. So if the line is never written, or the wrong kind of wake-up is sent, the core stays asleep, as on a
// real CPU.
//
// On some CPUs MONITOR misses writes (`MonitorErrata`). There the sender also sends an interrupt to a core in MWAIT, as for HLT. `watch` is
// not offered, because it depends on MONITOR alone.
//
// The template argument `Cpu` executes the instructions, so that tests can insert a wake-up between any two of them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "kernel/panic.hpp"
#include "kernel/power.hpp"
#include "kernel/wake_word.hpp"
#include "kernel/watched_line.hpp"
#include "kernel/x86/power/models.hpp"

namespace neap::x86::power {

enum class Way : std::uint8_t { halt, mwait, watch };

/// Eight bytes, so that a table of plans is indexed by a shift.
struct SleepPlan {
  Way way = Way::halt;
  std::uint8_t hint = 0;             ///< EAX of MWAIT
  bool returns_at_once = false;      ///< MWAIT returns at once, so it is repeated
  bool flush_line = false;           ///< flush the line before MONITOR: an erratum (models.hpp)
  bool called_by_interrupt = false;  ///< `mwait`: by another erratum, a write alone does not always end the sleep

  std::array<std::uint8_t, 3> unused{};

  [[nodiscard]] constexpr bool unusual() const noexcept { return flush_line || returns_at_once; }
  /// True for `mwait` without any of the errata. One comparison, because nearly all sleeps are of this kind.
  [[nodiscard]] constexpr bool is_plain_mwait() const noexcept {
    constexpr std::uint64_t hint_bits = 0xff00;  // the second byte; x86 is little-endian
    return (std::bit_cast<std::uint64_t>(*this) & ~hint_bits) == static_cast<std::uint64_t>(Way::mwait);
  }
  [[nodiscard]] constexpr WakeWord::Sleeps announcement() const noexcept {
    return way == Way::mwait && !called_by_interrupt ? WakeWord::Sleeps::until_write : WakeWord::Sleeps::until_interrupt;
  }
};
static_assert(sizeof(SleepPlan) == 8);

/// The ways in which this CPU can sleep; found once at boot.
struct SleepWays {
  bool mwait_sleeps = false;
  bool mwait_returns_at_once = false;  ///< MWAIT returns at once, so it must be repeated
  MonitorErrata errata{};
  Hints hints{};                       ///< hints of states that the CPU lists and in which the core's timer runs
  std::uint8_t parked_hint = no_hint;  ///< hint of the deepest state that the CPU lists: a core that never runs needs no timer

  /// The plan for `asked`: halt if that state is missing, because a core must have some way to sleep. `watched`: MWAIT watches a line of
  /// the caller's, with the hint of `asked`. Halting is right then, too, only if the caller has another way to notice a write, so a state
  /// without a hint is the caller's mistake.
  [[nodiscard]] constexpr SleepPlan plan(IdleState asked, bool watched) const noexcept {
    require(static_cast<unsigned>(asked) < hints.size(), "SleepWays::plan: no such idle state", static_cast<unsigned>(asked));
    const std::uint8_t hint = mwait_sleeps ? hints[static_cast<unsigned>(asked)] : no_hint;
    require(!watched || hint != no_hint, "SleepWays::plan: a line is watched in a state without MWAIT", static_cast<unsigned>(asked));
    if (hint == no_hint) return {};
    return {.way = watched ? Way::watch : Way::mwait,
            .hint = hint,
            .returns_at_once = mwait_returns_at_once,
            .flush_line = errata.flush_before,
            .called_by_interrupt = errata.writes_missed};
  }
  /// The plans without and with a watched line. If the state has no MWAIT, both halt.
  [[nodiscard]] constexpr std::array<SleepPlan, 2> plans(IdleState asked) const noexcept {
    const SleepPlan unwatched = plan(asked, false);
    return {unwatched, unwatched.way == Way::halt ? unwatched : plan(asked, true)};
  }
  /// The plan for a core that never runs events. It halts if MWAIT returns at once, because MWAIT would have to be repeated for ever.
  [[nodiscard]] constexpr SleepPlan plan_parked() const noexcept {
    if (!mwait_sleeps || mwait_returns_at_once || parked_hint == no_hint) return {};
    return {.way = Way::mwait, .hint = parked_hint};
  }
};

/// Vectors that no device uses.
struct OwnVectors {
  std::uint8_t alarm, wake;
};

/// The cause that ended a sleep: the first interrupt taken (`vector`, 0: none), otherwise another core's write if `called`.
constexpr Sleep judge(std::uint8_t vector, bool called, OwnVectors own) noexcept {
  if (vector == own.alarm) return {.cause = WakeCause::timer, .vector = vector};
  if (vector == own.wake) return {.cause = WakeCause::wake_up, .vector = vector};
  if (vector != 0) return {.cause = WakeCause::interrupt, .vector = vector};
  return {.cause = called ? WakeCause::memory : WakeCause::unknown, .vector = 0};
}

/// Sleeps on a CPU whose MONITOR has an erratum, or whose MWAIT returns at once and is repeated, as if it slept. Returns false if there is
/// work, so that the core MUST NOT sleep.
template <typename Cpu>
[[gnu::noinline]] bool mwait_on_unusual_cpu(Cpu& cpu, WakeWord& word, const SleepPlan& plan, const volatile void* line,
                                            const WatchedLine* watched) noexcept {
  if (plan.flush_line) cpu.flush(line);
  cpu.monitor(line);
  const WatchedLine before(line);
  if (!word.undisturbed(plan.announcement()) || (watched != nullptr && watched->changed())) return false;
  do cpu.mwait(plan.hint);
  while (plan.returns_at_once && cpu.first_vector_taken() == 0 && !before.changed());
  return true;
}

/// Sleeps after the announcement. Returns false if there is work.
template <typename Cpu>
[[nodiscard]] bool sleep_as_announced(Cpu& cpu, WakeWord& word, const SleepPlan& plan, const WatchedLine* watched) noexcept {
  if (plan.way == Way::halt) {  // a request after the announcement sends an interrupt, which ends HLT
    cpu.halt();
    return true;
  }
  const volatile void* const line = plan.way == Way::watch ? watched->line() : word.line();
  const WatchedLine* const compared = plan.way == Way::watch ? watched : nullptr;
  if (plan.unusual()) return mwait_on_unusual_cpu(cpu, word, plan, line, compared);
  cpu.monitor(line);
  if (!word.undisturbed(plan.announcement()) || (compared != nullptr && compared->changed())) return false;
  cpu.mwait(plan.hint);
  return true;
}

/// `Cpu` provides: `flush(line)` from all caches, `monitor(line)`, `halt()` (sti; hlt; cli), `mwait(hint)` (sti; mwait; cli),
/// `first_vector_taken()`. The last function returns the first vector taken during `halt` or `mwait` (0: none). Inlined into its one caller
/// in the image, because the parameters and the result would take some 60 instructions to pack and unpack.
template <typename Cpu>
[[gnu::always_inline]] inline Sleep sleep_until_woken(Cpu& cpu, WakeWord& word, const SleepPlan& plan, const WatchedLine* watched,
                                                      OwnVectors own) noexcept {
  bool slept = false;
  if (plan.is_plain_mwait()) [[likely]] {
    constexpr auto how = WakeWord::Sleeps::until_write;
    if (word.announce_sleep(how)) [[likely]] {
      cpu.monitor(word.line());
      if (word.undisturbed(how)) [[likely]] {
        slept = true;
        cpu.mwait(plan.hint);
      }
      word.mark_awake();
    }
  } else {
    require(plan.way != Way::watch || watched != nullptr, "a core would sleep on no line");
    if (word.announce_sleep(plan.announcement())) {
      slept = sleep_as_announced(cpu, word, plan, watched);
      word.mark_awake();
    }
  }
  return slept ? judge(cpu.first_vector_taken(), word.any(), own) : Sleep{};
}

}  // namespace neap::x86::power
