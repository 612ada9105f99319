// SPDX-License-Identifier: BSL-1.0
// The power features of this CPU, and their control.
//
// These features are not architectural. They differ by model, by firmware's locks and by hypervisor, and an emulator answers reads with
// zeros instead of faults. So a successful read proves nothing. A feature counts as present if CPUID says so. A feature without a CPUID bit
// counts as present if this vendor's CPUs have it, no hypervisor runs, and the value read is plausible. A missing feature is reported as
// `unsupported`.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernel/console.hpp"
#include "kernel/error.hpp"
#include "kernel/power.hpp"
#include "kernel/x86/firmware/cpu_facts.hpp"
#include "kernel/x86/power/counters.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/encodings.hpp"
#include "kernel/x86/power/events.hpp"
#include "kernel/x86/power/models.hpp"
#include "kernel/x86/power/sleep.hpp"

namespace neap::x86::power {

/// Boot options about the CPU.
struct FindOptions {
  bool assume_mwait = false;   ///< assume that MWAIT sleeps, even if CPUID lists no states for it
  bool keep_demotion = false;  ///< the CPU may demote C-states where firmware allows it to
  WakeTimes wake_up_us{};      ///< measured on this machine; they replace those of the table. 0: not measured
};

/// A core's registers before Neap changed them, for restoring them.
struct CoreAtBoot {
  std::uint64_t performance = 0;  ///< IA32_PERF_CTL or IA32_HWP_REQUEST
  std::uint64_t power_limit = 0;  ///< MSR_PKG_POWER_LIMIT of the core's package
  bool demotes = false;           ///< the CPU still demotes C-states, although Neap turned demotion off
};

class CpuPower {
 public:
  constexpr CpuPower() = default;

  /// Finds the CPU's abilities and changes nothing. Called once, on the first core.
  void find(CpuAccess& cpu, FindOptions options = {}) noexcept;

  /// Called on each core as it starts. Turns its counters on. Turns off two decisions of the CPU: promotion of C1 to C1E if both can be
  /// requested, and demotion of deeper states.
  [[nodiscard]] CoreAtBoot start_core(CpuAccess& cpu) const noexcept;
  /// Called on each parked core (a core that will not run events). Requests the lowest p-state instead of firmware's, because the CPU
  /// grants the highest request of a core's threads, and on many models of a package's cores. Fails if the MSR faults.
  Result<void> park_core(CpuAccess& cpu) const noexcept;

  [[nodiscard]] const PowerAbilities& abilities() const noexcept { return abilities_; }
  [[nodiscard]] const SleepWays& sleep_ways() const noexcept { return ways_; }

  // Documented in machine.hpp. `cpu` is the core to change, or any core of the package to change.
  [[nodiscard]] Result<void> set_pstate(CpuAccess& cpu, const CoreAtBoot& at_boot, std::uint64_t raw) const noexcept;
  [[nodiscard]] Result<std::uint8_t> granted_ratio(CpuAccess& cpu) const noexcept;
  [[nodiscard]] Result<void> set_energy_preference(CpuAccess& cpu, const CoreAtBoot& at_boot, unsigned preference) const noexcept;
  [[nodiscard]] Result<std::uint32_t> set_power_limit(CpuAccess& cpu, const CoreAtBoot& at_boot, std::uint32_t milliwatts) const noexcept;
  [[nodiscard]] Result<void> set_turbo(CpuAccess& cpu, bool on) const noexcept;
  template <class Cpu>
  [[nodiscard]] CounterSample sample(Cpu& cpu) const noexcept {
    return sample_counters(cpu, abilities_.counters);
  }

  [[nodiscard]] const EventFacts& event_facts() const noexcept { return event_facts_; }
  void choose_events(std::span<const std::uint32_t> events) noexcept;
  [[nodiscard]] Result<void> count_chosen_events(CpuAccess& cpu) const noexcept;

  /// Appends the line that is printed at boot.
  void describe(Line& line) const noexcept;

 private:
  enum class MwaitLack : std::uint8_t { none, assumed_none, missing, no_states, emulated };
  struct Identity : cpu_facts::Identity {
    std::uint32_t largest_leaf = 0;
    CpuidWords leaf1;
  };

  void find_idle_states(CpuAccess& cpu, const Identity& identity, const FindOptions& options) noexcept;
  void leave_out_states_without_timer(CpuAccess& cpu, const Identity& identity) noexcept;
  void find_demotion(const Identity& identity, bool keep) noexcept;
  void find_performance(CpuAccess& cpu, const Identity& identity) noexcept;
  void find_turbo(CpuAccess& cpu, const Identity& identity) noexcept;
  void find_rapl(CpuAccess& cpu, const Identity& identity) noexcept;
  void find_counters(CpuAccess& cpu, const Identity& identity) noexcept;
  void find_residencies(CpuAccess& cpu, const Identity& identity) noexcept;

  PowerAbilities abilities_;
  SleepWays ways_;
  const Model* model_ = nullptr;
  RaplUnits units_;
  MwaitLack mwait_lack_ = MwaitLack::missing;
  bool c1e_promotion_ = false;  // promotion of C1 to C1E can be turned off
  bool amd_c1e_ = false;        // C1E on HLT, which stops the timer, can be turned off (erratum 400)
  std::uint64_t demotion_ = 0;  // bits of MSR_PKG_CST_CONFIG_CONTROL to be cleared
  std::uint8_t fixed_counters_ = 0;
  EventFacts event_facts_;
  std::array<std::uint32_t, chosen_events_max> chosen_events_{};  // values of IA32_PERFEVTSELx
};

/// The right shift that turns an x2APIC id into the package's number (SDM 3A, 9.9.3: leaf 1Fh, 0Bh, or 1).
[[nodiscard]] unsigned package_shift(CpuAccess& cpu) noexcept;

}  // namespace neap::x86::power
