// SPDX-License-Identifier: BSL-1.0
// What this CPU can be told about power, and telling it.
//
// None of this is architecture: it differs by model, by what firmware locked and by what a hypervisor lets through, and an emulator answers
// reads with zeros instead of faults. So nothing is believed because a read succeeded. A feature counts as there when its bit in CPUID says
// so, or where there is no bit when the vendor has it, no hypervisor is in between, and the value read makes sense. What is not there is
// `unsupported`, never a made-up number.
#pragma once

#include <cstdint>

#include "kernel/console.hpp"
#include "kernel/error.hpp"
#include "kernel/power.hpp"
#include "kernel/x86/firmware/cpu_facts.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/encodings.hpp"
#include "kernel/x86/power/models.hpp"
#include "kernel/x86/power/sleep.hpp"

namespace neap::x86::power {

/// What the command line says of the CPU.
struct FindOptions {
  bool assume_mwait = false;   ///< MWAIT sleeps, whatever CPUID says of its states
  bool keep_demotion = false;  ///< the CPU may demote C-states where firmware allows it to
};

/// How a core stood when it was started, to go back to.
struct CoreAtBoot {
  std::uint64_t performance = 0;  ///< IA32_PERF_CTL or IA32_HWP_REQUEST
  std::uint64_t power_limit = 0;  ///< MSR_PKG_POWER_LIMIT of its package
  bool demotes = false;           ///< C-states, although it was told not to
};

class CpuPower {
 public:
  constexpr CpuPower() = default;

  /// Looks at the CPU, changes nothing. Once, on the first core.
  void find(CpuAccess& cpu, FindOptions options = {}) noexcept;

  /// On each core as it starts: turns its counters on, and off what the CPU makes of C-states on its own: promotion of C1 to C1E where both
  /// can be asked for, and demotion of deeper ones.
  [[nodiscard]] CoreAtBoot start_core(CpuAccess& cpu) const noexcept;
  /// On each core that is parked: it asks for the lowest P-state. The highest request of the threads of a core wins, and on many CPUs that
  /// of a package; firmware's request would stand for ever. Errors: the MSR faults.
  Result<void> park_core(CpuAccess& cpu) const noexcept;

  [[nodiscard]] const PowerAbilities& abilities() const noexcept { return abilities_; }
  [[nodiscard]] const SleepWays& sleep_ways() const noexcept { return ways_; }

  // machine.hpp says what these do; `cpu` is the core that is meant, or one of its package.
  [[nodiscard]] Result<void> set_performance(CpuAccess& cpu, const CoreAtBoot& at_boot, std::uint64_t raw) const noexcept;
  [[nodiscard]] Result<std::uint8_t> granted_ratio(CpuAccess& cpu) const noexcept;
  [[nodiscard]] Result<void> set_energy_preference(CpuAccess& cpu, const CoreAtBoot& at_boot, unsigned preference) const noexcept;
  [[nodiscard]] Result<std::uint32_t> set_power_limit(CpuAccess& cpu, const CoreAtBoot& at_boot, std::uint32_t milliwatts) const noexcept;
  [[nodiscard]] Result<void> set_turbo(CpuAccess& cpu, bool on) const noexcept;
  [[nodiscard]] CounterSample sample(CpuAccess& cpu) const noexcept;

  /// The line that is said at boot.
  void describe(Line& line) const noexcept;

 private:
  enum class MwaitLack : std::uint8_t { none, assumed_none, missing, no_states, emulated };
  struct Identity : cpu_facts::Identity {
    std::uint32_t largest_leaf = 0;
    CpuidWords leaf1;
  };

  void find_idle_states(CpuAccess& cpu, const Identity& identity, bool assume_mwait) noexcept;
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
  bool c1e_promotion_ = false;  // can be turned off
  bool amd_c1e_ = false;        // likewise: C1E, which stops the timer (erratum 400)
  std::uint64_t demotion_ = 0;  // bits of MSR_PKG_CST_CONFIG_CONTROL to be cleared
  std::uint8_t fixed_counters_ = 0;
};

/// How far an x2APIC id is to be shifted right to give the package's number (SDM 3A, 9.9.3: leaf 1Fh, 0Bh, or 1).
[[nodiscard]] unsigned package_shift(CpuAccess& cpu) noexcept;

}  // namespace neap::x86::power
