// SPDX-License-Identifier: BSL-1.0
// The modelled CPU: cores that share a package.
//
// Clocks, C-states, frequencies, energy and counters depend on each other: a core that falls asleep may free turbo for the others, change
// the package's C-state and, on some models, everybody's frequency. This class carries such a change through all parts, at its moment.
//
// It knows neither the emulator nor the guest. Its caller reports how many instructions ran, when a core sleeps and when it is woken.
// Moments are absolute virtual time, `now(core)`. Cores of the package that the guest does not use sleep in the deepest state.
//
// With SMT, the number `core` of these functions names one thread of a core: 2n and 2n + 1 are threads of the same core. Each thread has
// its own clock, counters, registers and requests. Their core is in the less deep of their two C-states, runs at the higher of their
// requests, and draws power once. While both threads run, each is slower (CpuModel::thread_speed).
#pragma once

#include <array>

#include "sim/machine/clock.hpp"
#include "sim/machine/counters.hpp"
#include "sim/machine/cpu_model.hpp"
#include "sim/machine/energy.hpp"
#include "sim/machine/frequency.hpp"

namespace neap::model {

/// The event that ended a sleep: a message of the card, the core's own timer, an interrupt that another core sent, a write to the watched
/// line, or an interrupt from another thread of the emulator.
enum class WakeCause : std::uint8_t { card, timer, core, write, outside };
constexpr unsigned wake_cause_count = 5;
constexpr std::array<const char*, wake_cause_count> wake_cause_names{"card", "timer", "core", "write", "outside"};
constexpr unsigned index_of(WakeCause cause) { return static_cast<unsigned>(cause); }

/// Registers that keep their value and that the model reads, or that only keep it.
struct CoreRegisters {
  std::uint64_t energy_bias = 6;  ///< IA32_ENERGY_PERF_BIAS; 6: balanced
  std::uint64_t clock_modulation = 0;
  std::uint64_t aperf_offset = 0, mperf_offset = 0;
};
struct PackageRegisters {
  std::uint64_t misc_enable = 0, power_ctl = 0, cstate_control = 0, power_limit = 0;
  std::uint64_t dram_limit = 0, cores_limit = 0, cores_policy = 0;
};

class Package {
 public:
  Package(const CpuModel& cpu, unsigned cores);
  Package(const Package&) = delete;  // parts refer to the model inside
  Package& operator=(const Package&) = delete;

  [[nodiscard]] const CpuModel& cpu() const noexcept { return cpu_; }
  [[nodiscard]] unsigned cores() const noexcept { return cores_; }

  // Time
  void set_skipped(Ticks skipped) noexcept { skipped_ = skipped; }
  [[nodiscard]] Ticks skipped() const noexcept { return skipped_; }
  [[nodiscard]] Ticks now(unsigned core) const noexcept { return core_[core].clock.local() + skipped_; }
  [[nodiscard]] const CoreClock& clock(unsigned core) const noexcept { return core_[core].clock; }
  [[nodiscard]] std::uint64_t tsc(Ticks now) const noexcept { return cycles_of(now, cpu_.base_ratio); }
  void run(unsigned core, std::int64_t instructions) noexcept { core_[core].clock.run(instructions); }
  void pause(unsigned core) noexcept { core_[core].clock.stall(cpu_.pause_cycles); }
  void set_user_level(unsigned core, bool user) noexcept { core_[core].clock.set_user_level(user); }
  void catch_up(unsigned core, Ticks local) noexcept { core_[core].clock.catch_up(local); }
  /// The core executes nothing for this time. It uses the power of C0.
  void hold(unsigned core, Ticks time) noexcept { core_[core].clock.wait(time); }

  // Sleep
  [[nodiscard]] State state(unsigned core) const noexcept { return core_[core].state; }
  [[nodiscard]] bool is_asleep(unsigned core) const noexcept { return core_[core].state != State::c0; }
  /// By HLT, or MWAIT with C1's hint: C1E if MSR_POWER_CTL promotes it.
  [[nodiscard]] State lightest_sleep() const noexcept;
  [[nodiscard]] State sleep_of_hint(std::uint8_t hint) const noexcept;
  void fall_asleep(unsigned core, State state) noexcept;
  /// Ends a sleep at now(core), and advances the core by the exit latency: of the core's state, which may be less deep than the thread's;
  /// of C1 if the other thread runs.
  void wake(unsigned core, WakeCause cause = WakeCause::outside) noexcept;
  /// Up to `until`, or to the core's own time if that is later: a sleeping core's clock may stand still for long.
  [[nodiscard]] Ticks residency(unsigned core, State state, Ticks until = 0) const noexcept;
  /// Of the core as a whole. Without SMT it equals `residency`.
  [[nodiscard]] Ticks core_residency(unsigned core, State state, Ticks until = 0) const noexcept;
  [[nodiscard]] State core_state(unsigned core) const noexcept { return core_[first_thread(core)].whole.state; }
  [[nodiscard]] std::uint64_t wakeups(unsigned core) const noexcept { return core_[core].wakeups; }
  [[nodiscard]] std::uint64_t wakeups(unsigned core, WakeCause cause) const noexcept { return core_[core].wakeups_by[index_of(cause)]; }
  [[nodiscard]] PackageState package_state() const noexcept { return package_state_; }
  [[nodiscard]] Ticks package_residency(PackageState state, Ticks now) const noexcept;

  // Frequency and power
  [[nodiscard]] const FrequencyControl& requests() const noexcept { return frequency_; }
  void set_perf_ctl(unsigned core, std::uint64_t value) noexcept;
  void set_hwp_request(unsigned core, std::uint64_t value) noexcept;
  void set_turbo_off(unsigned core, bool off) noexcept;
  void set_power_limit(unsigned core, bool on, double watts, double window_seconds) noexcept;
  /// When `control` is due: the end of a period, for the power limit and for HWP. ~0 if neither acts.
  [[nodiscard]] Ticks next_control() const noexcept;
  void control(Ticks now) noexcept;

  // Counters
  [[nodiscard]] Executed executed(unsigned core) const noexcept { return counts_of(core_[core].clock.work()); }
  [[nodiscard]] ExecutedByLevel executed_by_level(unsigned core) const noexcept {
    return {.all = executed(core), .user = counts_of(core_[core].clock.user_work())};
  }
  [[nodiscard]] Counters& counters(unsigned core) noexcept { return core_[core].counters; }
  [[nodiscard]] double package_joules(Ticks now) noexcept;
  [[nodiscard]] double cores_joules(Ticks now) noexcept;
  [[nodiscard]] double dram_joules(Ticks now) noexcept;
  EnergyCounter package_counter, cores_counter, dram_counter;

  CoreRegisters& registers(unsigned core) noexcept { return core_[core].registers; }
  PackageRegisters registers_of_package;

 private:
  /// A core with all its threads. Kept in the entry of its first thread; that of the second is unused.
  struct Whole {
    State state = State::c0;
    Ticks since = 0;  // of `state`
    std::array<Ticks, state_count> residency{};
    EnergyMeter power, dynamic_share, leakage_share;
  };
  struct Core {
    explicit Core(unsigned general_counters) noexcept : counters(general_counters) {}
    CoreClock clock;
    State state = State::c0;
    Ticks since = 0;  // of `state`
    std::array<Ticks, state_count> residency{};
    std::uint64_t wakeups = 0;
    std::array<std::uint64_t, wake_cause_count> wakeups_by{};
    Ticks busy_at_period = 0;
    Whole whole;
    Counters counters;
    CoreRegisters registers;
  };

  [[nodiscard]] Executed counts_of(const Work& work) const noexcept;
  void settle_changes(Ticks now) noexcept;
  void set_package_state(Ticks now) noexcept;
  [[nodiscard]] unsigned first_thread(unsigned core) const noexcept { return core - core % cpu_.threads; }
  [[nodiscard]] unsigned whole_cores() const noexcept { return (cores_ + cpu_.threads - 1) / cpu_.threads; }
  /// The other thread of the core runs.
  [[nodiscard]] bool is_shared(unsigned core) const noexcept;
  void set_core_state(unsigned core, Ticks now) noexcept;
  void set_core_power(unsigned core, Ticks now) noexcept;
  void book(Ticks now) noexcept;
  [[nodiscard]] std::array<State, cores_max> states_of_cores() const noexcept;
  [[nodiscard]] double highest_watts() const noexcept;

  const CpuModel cpu_;
  unsigned cores_;
  std::array<Core, cores_max> core_;
  Ticks skipped_ = 0;
  FrequencyControl frequency_;
  PowerLimit limit_;
  bool limit_matters_ = false;
  PackageState package_state_ = PackageState::pc0;
  Ticks package_since_ = 0;
  std::array<Ticks, package_state_count> package_residency_{};
  EnergyMeter uncore_, uncore_share_, dram_, other_cores_;
  Ticks period_began_ = 0;
  double joules_at_period_ = 0, dynamic_at_period_ = 0, leakage_at_period_ = 0;
};

}  // namespace neap::model
