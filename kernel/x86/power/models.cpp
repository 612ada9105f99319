// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/models.hpp"

#include <algorithm>

#include "kernel/x86/power/encodings.hpp"

namespace neap::x86::power {

namespace {

constexpr std::uint8_t family_core = 6;

constexpr Hints hints_of(std::uint8_t c1, std::uint8_t c1e, std::uint8_t c3, std::uint8_t c6, std::uint8_t c7) {
  Hints hints{};
  hints.fill(no_hint);
  hints[static_cast<unsigned>(IdleState::c1)] = c1;
  hints[static_cast<unsigned>(IdleState::c1e)] = c1e;
  hints[static_cast<unsigned>(IdleState::c3)] = c3;
  hints[static_cast<unsigned>(IdleState::c6)] = c6;
  hints[static_cast<unsigned>(IdleState::c7)] = c7;
  return hints;
}
constexpr WakeTimes wakes(std::uint16_t c1, std::uint16_t c1e, std::uint16_t c3, std::uint16_t c6, std::uint16_t c7) {
  return {0, c1, c1e, c3, c6, c7};
}

constexpr std::uint16_t c2_to_c7 = counter::core_c3 | counter::core_c6 | counter::core_c7 | counter::package_c2 | counter::package_c3 |
                                   counter::package_c6 | counter::package_c7;
constexpr std::uint16_t c2_to_c6 = counter::core_c3 | counter::core_c6 | counter::package_c2 | counter::package_c3 | counter::package_c6;
constexpr std::uint16_t c2_and_c6 = counter::core_c6 | counter::package_c2 | counter::package_c6;

// 1/65536 J, "15.3 uJ" in the datasheets of the E5 v3 and later servers. On these servers MSR_RAPL_POWER_UNIT applies only to the package.
constexpr std::uint8_t dram_15uj = 16;
using enum PackageLimits;
constexpr Hints to_c7 = hints_of(0x00, 0x01, 0x10, 0x20, 0x30);
constexpr Hints to_c6 = hints_of(0x00, 0x01, 0x10, 0x20, no_hint);
constexpr Hints without_c3 = hints_of(0x00, 0x01, no_hint, 0x20, no_hint);

// The rows were compared with tables in Linux and its tools. Order: E5, E7 and Scalable; then D; then E3 and E, which are client dies.
constexpr std::array models{
    // Compared with intel_idle snb_cstates, turbostat snx_features, perf snb_cstates.
    Model{0x2d, "Sandy Bridge-EP", to_c7, wakes(2, 10, 80, 104, 109), c2_to_c7, true, 0, false, sandy_bridge},
    // Compared with intel_idle ivt_cstates (one or two packages), turbostat ivx_features, perf snb_cstates.
    Model{0x3e, "Ivy Bridge-EP", to_c6, wakes(1, 10, 59, 82, 0), c2_to_c7, true, 0, false, sandy_bridge},
    // Compared with intel_idle hsw_cstates, turbostat hsx_features, perf snb_cstates.
    Model{0x3f, "Haswell-EP", to_c6, wakes(2, 10, 33, 133, 0), c2_to_c6, true, dram_15uj, false, unknown},
    // Compared with intel_idle bdw_cstates, turbostat bdx_features, perf snb_cstates.
    Model{0x4f, "Broadwell-EP", to_c6, wakes(2, 10, 40, 133, 0), c2_to_c6, true, dram_15uj, false, unknown},
    // Compared with intel_idle skx_cstates, turbostat skx_features. Cascade Lake and Cooper Lake have the same model number.
    Model{0x55, "Skylake-SP", without_c3, wakes(2, 10, 0, 133, 0), c2_and_c6, true, dram_15uj, true, skylake_server},
    // Compared with intel_idle icx_cstates, turbostat icx_features, perf icx_cstates.
    Model{0x6a, "Ice Lake-SP", without_c3, wakes(1, 4, 0, 170, 0), c2_and_c6, true, dram_15uj, true, skylake_server},
    // This row and the next one were compared with intel_idle spr_cstates, turbostat spr_features, perf icx_cstates.
    Model{0x8f, "Sapphire Rapids", without_c3, wakes(1, 2, 0, 290, 0), c2_and_c6, true, 0, true, skylake_server},
    Model{0xcf, "Emerald Rapids", without_c3, wakes(1, 2, 0, 290, 0), c2_and_c6, true, 0, true, skylake_server},
    // Compared with intel_idle gnr_cstates, turbostat spr_features, perf icx_cstates. 20h is C6 of the core alone. The package enters C6
    // only with 21h ("C6P"), which corresponds to c6 on the earlier models.
    Model{0xad, "Granite Rapids", hints_of(0, 1, no_hint, 0x21, no_hint), wakes(1, 4, 0, 210, 0), c2_and_c6, true, 0, true, skylake_server},
    // Compared with intel_idle srf_cstates, turbostat srf_features, perf srf_cstates. 22h is "C6S". Only with 23h ("C6SP") the package
    // enters C6.
    Model{0xaf, "Sierra Forest", hints_of(0, 1, no_hint, 0x23, no_hint), wakes(1, 2, 0, 310, 0), c2_and_c6, true, 0, true, skylake_server},

    // Compared with intel_idle bdw_cstates, turbostat bdx_features, perf snb_cstates.
    Model{0x56, "Broadwell-DE", to_c6, wakes(2, 10, 40, 133, 0), c2_to_c6, true, dram_15uj, false, unknown},
    // Compared with intel_idle icx_cstates, turbostat icx_features, perf icx_cstates.
    Model{0x6c, "Ice Lake-D", without_c3, wakes(1, 4, 0, 170, 0), c2_and_c6, true, dram_15uj, true, skylake_server},
    // Compared with intel_idle gnrd_cstates, turbostat spr_features, perf icx_cstates.
    Model{0xae, "Granite Rapids-D", hints_of(0, 1, no_hint, 0x21, no_hint), wakes(1, 4, 0, 240, 0), c2_and_c6, true, 0, true,
          skylake_server},

    // Compared with intel_idle snb_cstates, turbostat and perf as for Sandy Bridge-EP. intel_rapl lists no DRAM counter.
    Model{0x2a, "Sandy Bridge", to_c7, wakes(2, 10, 80, 104, 109), c2_to_c7, false, 0, false, sandy_bridge},
    // Compared with intel_idle ivb_cstates, perf snb_cstates. intel_rapl lists no DRAM counter.
    Model{0x3a, "Ivy Bridge", to_c7, wakes(1, 10, 59, 80, 87), c2_to_c7, false, 0, false, sandy_bridge},
    // Compared with intel_idle hsw_cstates (its C7 is C7s), perf snb_cstates. C8 and deeper are left out here and below.
    Model{0x3c, "Haswell", hints_of(0, 1, 0x10, 0x20, 0x32), wakes(2, 10, 33, 133, 166), c2_to_c7, true, 0, false, unknown},
    // Compared with intel_idle bdw_cstates, perf snb_cstates.
    Model{0x47, "Broadwell", hints_of(0, 1, 0x10, 0x20, 0x32), wakes(2, 10, 40, 133, 166), c2_to_c7, true, 0, false, unknown},
    // Compared with intel_idle skl_cstates, perf snb_cstates.
    Model{0x5e, "Skylake", hints_of(0, 1, 0x10, 0x20, 0x33), wakes(2, 10, 70, 85, 124), c2_to_c7, true, 0, false, unknown},
    // Compared with intel_idle skl_cstates, perf hswult_cstates. Coffee Lake (Xeon E) has the same model number.
    Model{0x9e, "Kaby Lake", hints_of(0, 1, 0x10, 0x20, 0x33), wakes(2, 10, 70, 85, 124), c2_to_c7, true, 0, false, unknown},
};

}  // namespace

const Model* find_model(std::uint8_t family, std::uint8_t model) noexcept {
  if (family != family_core) return nullptr;
  const auto* const found = std::find_if(models.begin(), models.end(), [model](const Model& entry) { return entry.model == model; });
  return found == models.end() ? nullptr : found;
}

// Sources: the lists of Linux (arch/x86/kernel/cpu/intel.c: X86_BUG_CLFLUSH_MONITOR and X86_BUG_MONITOR) with Intel's errata numbers.
MonitorErrata monitor_errata(std::uint8_t family, std::uint8_t model) noexcept {
  if (family != family_core) return {};
  switch (model) {
    case 0x1d:  // Dunnington, Xeon 7400: AAI65
    case 0x2e:  // Nehalem-EX
    case 0x2f:  // Westmere-EX
      return {.flush_before = true};
    case 0x5c:  // Goldmont: APL30
    case 0x6a:  // Ice Lake-SP: ICX143
    case 0x6c:  // Ice Lake-D has Ice Lake-SP's core. Linux does not list it. An extra interrupt is harmless, a lost wake-up is not.
    case 0xbd:  // Lunar Lake
      return {.writes_missed = true};
    default:
      return {};
  }
}

Hints usual_hints(bool intel) noexcept { return intel ? to_c7 : hints_of(0x00, no_hint, no_hint, no_hint, no_hint); }

std::uint64_t demotion_bits(const Model* model) noexcept {
  if (model == nullptr) return 0;
  const bool has_c3 = model->hints[static_cast<unsigned>(IdleState::c3)] != no_hint;
  return demote_to_c1 | undemote_c1 | (has_c3 ? demote_to_c3 | undemote_c3 : 0);
}

std::uint32_t ratio_step_khz(std::uint8_t model) noexcept {
  constexpr std::array<std::uint8_t, 7> nehalem_and_westmere{0x1a, 0x1e, 0x1f, 0x2e, 0x25, 0x2c, 0x2f};
  const bool old = std::find(nehalem_and_westmere.begin(), nehalem_and_westmere.end(), model) != nehalem_and_westmere.end();
  return old ? 133'333 : 100'000;
}

}  // namespace neap::x86::power
