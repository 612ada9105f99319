// SPDX-License-Identifier: BSL-1.0
// What a CPU does not say of itself.
//
// CPUID tells how many MWAIT sub-states there are, not what they are called, and says nothing of residency counters or of the unit of DRAM
// energy. That is known by model. A hint counts only if CPUID leaf 5 lists it too (encodings.hpp).
//
// Where each column is from; the rows name what they were compared with:
// - hints and wake-up times: Linux's intel_idle, the table that it takes for the model. Its times are measured or Intel's, for one machine
//   each: a scale to choose by, no promise.
// - residencies: SDM volume 4, MSR_CORE_C3, C6 and C7_RESIDENCY (3FCh to 3FEh), MSR_PKG_C3, C6 and C7_RESIDENCY (3F8h to 3FAh),
//   MSR_PKG_C2_RESIDENCY (60Dh), by model as Linux's turbostat and perf (events/intel/cstate.c) read them. They read C7 of Haswell-EP and
//   Broadwell-EP too, which have no such state.
// - DRAM: MSR_DRAM_ENERGY_STATUS (619h); the fixed unit from the E5 v3 datasheet, volume 2 (Intel 330784), for the models for which
//   Linux's intel_rapl and perf take it: Haswell-EP to Ice Lake, no longer Sapphire Rapids.
// - turbo: MSR_TURBO_RATIO_LIMIT (1ADh) has a ratio for 1, 2, 3 ... active cores; from Skylake-SP on one for each group of cores whose
// sizes
//   are in 1AEh (turbostat: TRL_CORECOUNT).
// - package limit: what MSR_PKG_CST_CONFIG_CONTROL (E2h) 2:0 mean: SDM volume 4, turbostat's snb_, skx_ and icx_pkg_cstate_limits. For
//   Haswell and Broadwell the two sources differ, so their numbers get no names.
//
// A model that is missing gets what CPUID alone allows.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/power.hpp"

namespace neap::x86::power {

constexpr std::uint8_t no_hint = 0xff;
/// By `IdleState`; `no_hint` where the state is not MWAIT's or not there.
using Hints = std::array<std::uint8_t, idle_states>;
/// Microseconds that waking takes, by `IdleState`; 0 where not known.
using WakeTimes = std::array<std::uint16_t, idle_states>;

/// What bits 2:0 of MSR_PKG_CST_CONFIG_CONTROL mean.
enum class PackageLimits : std::uint8_t { unknown, sandy_bridge, skylake_server };

struct Model {
  std::uint8_t model;  ///< with the extended part; family 6
  const char* name;
  Hints hints;
  WakeTimes wake_us;
  std::uint16_t residencies;        ///< counters (namespace `counter`) that count on it
  bool dram_energy;                 ///< MSR_DRAM_ENERGY_STATUS is there
  std::uint8_t dram_unit_exponent;  ///< 0: the package's; otherwise fixed, whatever MSR_RAPL_POWER_UNIT says
  bool turbo_by_group;              ///< MSR_TURBO_RATIO_LIMIT's ratios are for the groups of cores in 1AEh
  PackageLimits package_limits;
};

/// CPUs on which MONITOR does not do what the manual says.
struct MonitorErrata {
  bool flush_before = false;   ///< the line has to be flushed from the caches before MONITOR
  bool writes_missed = false;  ///< a write to the line may not end MWAIT: a wake-up needs an interrupt
};
[[nodiscard]] MonitorErrata monitor_errata(std::uint8_t family, std::uint8_t model) noexcept;

/// Null: not in the table.
[[nodiscard]] const Model* find_model(std::uint8_t family, std::uint8_t model) noexcept;

/// For a model that is not in the table. Intel's Core and Xeon have had these places since Nehalem (an Atom or a Xeon Phi may mean another
/// state by a hint: Xeon Phi's 10h is C6); of others only the first is known.
[[nodiscard]] Hints usual_hints(bool intel) noexcept;

/// The bits of MSR_PKG_CST_CONFIG_CONTROL by which this model demotes C-states and takes that back; 0 for a model that is not in the table.
[[nodiscard]] std::uint64_t demotion_bits(const Model* model) noexcept;

/// Frequency of one ratio step: 133.33 MHz on Nehalem and Westmere, 100 MHz since (SDM 4, MSR_PLATFORM_INFO of each).
[[nodiscard]] std::uint32_t ratio_step_khz(std::uint8_t model) noexcept;

}  // namespace neap::x86::power
