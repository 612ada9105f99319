// SPDX-License-Identifier: BSL-1.0
// Facts about CPU models that CPUID does not report.
//
// CPUID reports the number of MWAIT sub-states but not their names. It reports neither residency counters nor the unit of DRAM energy. This
// table has these facts for each model. An MWAIT hint is used only if CPUID leaf 5 lists it, too (encodings.hpp).
//
// Sources of the columns; each row names the tables it was compared with:
// - hints and wake-up times: the tables of Linux's intel_idle. Each time was measured, or stated by Intel, for one machine. The times serve
//   for comparison, not as a promise.
// - residencies: SDM volume 4, MSR_CORE_C3, C6 and C7_RESIDENCY (3FCh to 3FEh), MSR_PKG_C3, C6 and C7_RESIDENCY (3F8h to 3FAh),
//   MSR_PKG_C2_RESIDENCY (60Dh). A model has those that Linux's turbostat or perf (events/intel/cstate.c) reads. Both programs also read
//   C7 of Haswell-EP and Broadwell-EP, but these CPUs have no C7.
// - DRAM: MSR_DRAM_ENERGY_STATUS (619h). The fixed unit is from the E5 v3 datasheet, volume 2 (Intel 330784), for the models on which
//   Linux's intel_rapl and perf use it: Haswell-EP to Ice Lake, but not Sapphire Rapids.
// - turbo: MSR_TURBO_RATIO_LIMIT (1ADh) has a ratio for 1, 2, 3 ... active cores. From Skylake-SP on it has one for each group of cores,
//   whose sizes are in 1AEh (turbostat: TRL_CORECOUNT).
// - package limit: the meaning of MSR_PKG_CST_CONFIG_CONTROL (E2h) 2:0, from SDM volume 4 and turbostat's snb_, skx_ and
//   icx_pkg_cstate_limits. The two sources differ for Haswell and Broadwell, so this table names no codes for these models.
//
// A model that is not listed gets only what CPUID reports.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/power.hpp"

namespace neap::x86::power {

constexpr std::uint8_t no_hint = 0xff;
/// MWAIT hints, indexed by `IdleState`; `no_hint` for a state that MWAIT does not offer or that is missing.
using Hints = std::array<std::uint8_t, idle_states>;

/// The meaning of bits 2:0 of MSR_PKG_CST_CONFIG_CONTROL.
enum class PackageLimits : std::uint8_t { unknown, sandy_bridge, skylake_server };

struct Model {
  std::uint8_t model;  ///< model number of family 6, including the extended model
  const char* name;
  Hints hints;
  WakeTimes wake_us;
  std::uint16_t residencies;        ///< the residency counters that exist (namespace `counter`)
  bool dram_energy;                 ///< MSR_DRAM_ENERGY_STATUS exists
  std::uint8_t dram_unit_exponent;  ///< 0: the package's unit; otherwise a fixed unit, which overrides MSR_RAPL_POWER_UNIT
  bool turbo_by_group;              ///< true: MSR 1ADh has a turbo ratio for each group of cores; the groups' sizes are in MSR 1AEh
  PackageLimits package_limits;
};

struct MonitorErrata {
  bool flush_before = false;   ///< the line MUST be flushed from the caches before MONITOR
  bool writes_missed = false;  ///< a write to the line does not always end MWAIT, so a wake-up needs an interrupt
};
[[nodiscard]] MonitorErrata monitor_errata(std::uint8_t family, std::uint8_t model) noexcept;

/// Null: not in the table.
[[nodiscard]] const Model* find_model(std::uint8_t family, std::uint8_t model) noexcept;

/// Hints for a model that is not in the table. Intel's Core and Xeon CPUs have used these values since Nehalem. An Atom or a Xeon Phi may
/// use a hint for another state: Xeon Phi's 10h is C6. For other vendors only the hint of C1 is known.
[[nodiscard]] Hints usual_hints(bool intel) noexcept;

/// The bits of MSR_PKG_CST_CONFIG_CONTROL that let this model demote C-states and undo the demotion; 0 for a model that is not in the
/// table.
[[nodiscard]] std::uint64_t demotion_bits(const Model* model) noexcept;

/// Frequency of one ratio step: 133.33 MHz on Nehalem and Westmere, 100 MHz on later CPUs (SDM 4, MSR_PLATFORM_INFO of each).
[[nodiscard]] std::uint32_t ratio_step_khz(std::uint8_t model) noexcept;

}  // namespace neap::x86::power
