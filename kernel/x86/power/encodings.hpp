// SPDX-License-Identifier: BSL-1.0
// The MSRs of power management and the encodings of their values.
//
// This code does not access a CPU. It converts numbers, and a test compares the results with the manual. Section numbers are those of
// Intel's Software Developer's Manual (SDM), volume 3B, chapter 15 "Power and thermal management", and volume 4 (MSR tables).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace neap::x86::power {

namespace msr {
constexpr std::uint32_t pmc0 = 0xc1;
constexpr std::uint32_t platform_info = 0xce;
constexpr std::uint32_t package_cstate_control = 0xe2;
constexpr std::uint32_t perf_event_select0 = 0x186;
constexpr std::uint32_t perf_status = 0x198;
constexpr std::uint32_t perf_ctl = 0x199;
constexpr std::uint32_t misc_enable = 0x1a0;
constexpr std::uint32_t turbo_ratio_limit = 0x1ad;
constexpr std::uint32_t turbo_group_sizes = 0x1ae;
constexpr std::uint32_t power_ctl = 0x1fc;
constexpr std::uint32_t fixed_counter0 = 0x309;
constexpr std::uint32_t fixed_counter1 = 0x30a;
constexpr std::uint32_t fixed_counter2 = 0x30b;
constexpr std::uint32_t fixed_counter_control = 0x38d;
constexpr std::uint32_t perf_global_control = 0x38f;
constexpr std::uint32_t package_c3_residency = 0x3f8;
constexpr std::uint32_t package_c6_residency = 0x3f9;
constexpr std::uint32_t package_c7_residency = 0x3fa;
constexpr std::uint32_t core_c3_residency = 0x3fc;
constexpr std::uint32_t core_c6_residency = 0x3fd;
constexpr std::uint32_t core_c7_residency = 0x3fe;
constexpr std::uint32_t rapl_power_unit = 0x606;
constexpr std::uint32_t package_c2_residency = 0x60d;
constexpr std::uint32_t package_power_limit = 0x610;
constexpr std::uint32_t package_energy = 0x611;
constexpr std::uint32_t package_power_info = 0x614;
constexpr std::uint32_t dram_power_limit = 0x618;
constexpr std::uint32_t dram_energy = 0x619;
constexpr std::uint32_t cores_power_limit = 0x638;
constexpr std::uint32_t hwp_enable = 0x770;
constexpr std::uint32_t hwp_capabilities = 0x771;
constexpr std::uint32_t hwp_request = 0x774;
constexpr std::uint32_t amd_interrupt_pending = 0xc001'0055;
}  // namespace msr

/// `length` bits of `value` from bit `first` on.
constexpr std::uint64_t bits(std::uint64_t value, unsigned first, unsigned length) {
  return value >> first & ((std::uint64_t{1} << length) - 1);
}
constexpr std::uint64_t bit(unsigned number) { return std::uint64_t{1} << number; }

// --- Frequency ---------------------------------------------------------------------------------------------------------------------------
/// The requested ratio in IA32_PERF_CTL, the granted ratio in IA32_PERF_STATUS (15.1.1; its position is in volume 4, tables of each model).
constexpr std::uint64_t perf_ctl_of(std::uint8_t ratio) { return std::uint64_t{ratio} << 8; }
constexpr std::uint8_t ratio_of(std::uint64_t perf_ctl) { return static_cast<std::uint8_t>(bits(perf_ctl, 8, 8)); }

/// IA32_HWP_REQUEST (15.4.4). Minimum and maximum performance become `ratio`, the desired value becomes zero. The energy preference and the
/// activity window are kept. Package control and its valid bits (15.4.4.2) are cleared, so that the CPU uses the core's own request.
constexpr std::uint64_t hwp_request_value(std::uint64_t before, std::uint8_t ratio) {
  constexpr std::uint64_t preference_and_window = 0x3'ffff'000000;  // bits 41:24
  return (before & preference_and_window) | std::uint64_t{ratio} << 8 | ratio;
}
/// The preference is bits 31:24: 0 is speed, 255 saving. The function replaces it, and clears package control and its valid bits as above.
constexpr unsigned hwp_preference_shift = 24;
constexpr std::uint64_t hwp_preference_mask = std::uint64_t{0xff} << hwp_preference_shift;
constexpr std::uint64_t hwp_request_with_preference(std::uint64_t before, std::uint64_t preference_bits) {
  constexpr std::uint64_t own_request = 0x3ff'ffff'ffff;  // bits 41:0
  return (before & own_request & ~hwp_preference_mask) | (preference_bits & hwp_preference_mask);
}

/// A thread's lowest request: minimum and maximum are the CPU's lowest performance, and the preference is for saving energy. If CPUID lists
/// no preference, its field is reserved and kept. IA32_HWP_CAPABILITIES (15.4.3) has the lowest performance in bits 31:24.
constexpr std::uint64_t hwp_request_lowest(std::uint64_t before, std::uint64_t capabilities, bool has_preference) {
  const std::uint64_t lowest = hwp_request_value(before, static_cast<std::uint8_t>(bits(capabilities, 24, 8)));
  return has_preference ? hwp_request_with_preference(lowest, hwp_preference_mask) : lowest;
}

/// IA32_MISC_ENABLE: bit 16 turns enhanced SpeedStep on, bit 38 turns turbo off (volume 4, table 2-2).
constexpr std::uint64_t misc_enable_speed_step = bit(16);
constexpr std::uint64_t misc_enable_turbo_off = bit(38);

/// MSR_POWER_CTL: bit 1 makes the CPU turn every C1 into C1E (volume 4, table 2-20).
constexpr std::uint64_t power_ctl_c1e_promotion = bit(1);

// --- Power limit and energy: RAPL (15.10) ------------------------------------------------------------------------------------------------
/// MSR_RAPL_POWER_UNIT: each unit is 2^-exponent of a watt, a joule, a second (15.10.1).
struct RaplUnits {
  std::uint8_t power = 0, energy = 0, time = 0;
};
constexpr RaplUnits rapl_units(std::uint64_t raw) {
  return {.power = static_cast<std::uint8_t>(bits(raw, 0, 4)),
          .energy = static_cast<std::uint8_t>(bits(raw, 8, 5)),
          .time = static_cast<std::uint8_t>(bits(raw, 16, 4))};
}

constexpr std::uint32_t power_units_max = 0x7fff;  // 15 bits

/// Power units in milliwatts, rounded to the nearest.
constexpr std::uint32_t milliwatts_of(std::uint32_t power_units, RaplUnits units) {
  const std::uint64_t half = std::uint64_t{1} << units.power >> 1;
  return static_cast<std::uint32_t>((std::uint64_t{power_units} * 1000 + half) >> units.power);
}
/// The nearest number of power units. At least one, because a limit of zero is never intended, and at most the field's maximum.
constexpr std::uint32_t power_units_of(std::uint32_t milliwatts, RaplUnits units) {
  const std::uint64_t nearest = ((std::uint64_t{milliwatts} << units.power) + 500) / 1000;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(nearest, 1, power_units_max));
}

/// A time window is encoded as 2^Y * (1 + Z/4) time units, Y in bits 4:0, Z in bits 6:5 of its field (15.10.3). Returns the field with the
/// window nearest to `milliseconds`, at least one unit.
constexpr std::uint8_t window_field(std::uint32_t milliseconds, RaplUnits units) {
  const std::uint64_t quarters = std::max<std::uint64_t>((std::uint64_t{milliseconds} << (units.time + 2)) / 1000, 4);
  auto y = static_cast<unsigned>(63 - std::countl_zero(quarters)) - 2;
  auto z = (quarters + (bit(y) >> 1)) >> y;  // 4 to 8: (1 + Z/4) in quarters, rounded
  if (z == 8) {
    z = 4;
    ++y;
  }
  return y > 31 ? std::uint8_t{0x7f} : static_cast<std::uint8_t>((z - 4) << 5 | y);
}

/// MSR_PKG_POWER_LIMIT (15.10.3). Limit 1 is the sustained limit. Limit 2, the short-term one, has the same fields from bit 32 on.
constexpr std::uint64_t limit1_mask = 0x7fff;
constexpr std::uint64_t limit1_enable = bit(15);
constexpr std::uint64_t limit1_clamp = bit(16);  // may reduce the frequency below the requested one
constexpr unsigned limit1_window_shift = 17;
constexpr std::uint64_t limit1_window_mask = std::uint64_t{0x7f} << limit1_window_shift;
constexpr std::uint64_t power_limit_lock = bit(63);
/// Used if firmware left no window.
constexpr std::uint32_t window_default_ms = 1000;

/// The register with `power_units` as enabled sustained limit. All other fields are kept, except that an empty window gets the default.
constexpr std::uint64_t power_limit_value(std::uint64_t before, std::uint32_t power_units, RaplUnits units) {
  std::uint64_t value = (before & ~limit1_mask) | (power_units & limit1_mask) | limit1_enable | limit1_clamp;
  if ((value & limit1_window_mask) == 0) value |= std::uint64_t{window_field(window_default_ms, units)} << limit1_window_shift;
  return value;
}

/// MSR_PKG_POWER_INFO (15.10.3): the minimum and maximum package limit in power units; 0 if not stated.
constexpr std::uint32_t power_info_min(std::uint64_t raw) { return static_cast<std::uint32_t>(bits(raw, 16, 15)); }
constexpr std::uint32_t power_info_max(std::uint64_t raw) { return static_cast<std::uint32_t>(bits(raw, 32, 15)); }

// --- Performance counters (chapter 20) ---------------------------------------------------------------------------------------------------
/// Fixed counters 0 to `count` - 1 count at every privilege level and raise no interrupt (20.2.2, figure 20-2: four bits each).
constexpr std::uint64_t fixed_control_value(unsigned count) {
  constexpr std::uint64_t all_levels = 3;
  std::uint64_t value = 0;
  for (unsigned i = 0; i < count; ++i) value |= all_levels << (4 * i);
  return value;
}
/// IA32_PERFEVTSELx (20.2.1.1): event 7:0, mask 15:8, user 16, kernel 17, edge 18, enabled 22, inverted 23, counter mask 31:24.
constexpr unsigned select_edge_bit = 18, select_invert_bit = 23;
constexpr std::uint64_t event_select(std::uint8_t event, std::uint8_t umask) {
  return event | std::uint64_t{umask} << 8 | bit(16) | bit(17) | bit(22);
}
/// Last-level cache misses, the architectural event (20.2.1.2, table 20-1): event 2Eh, mask 41h.
constexpr std::uint64_t event_select_llc_misses = event_select(0x2e, 0x41);
/// `general`: bit i for general counter i.
constexpr std::uint64_t global_control_value(unsigned fixed, std::uint64_t general) { return (bit(fixed) - 1) << 32 | general; }

// --- MWAIT (CPUID leaf 5; SDM 2B, MWAIT) -------------------------------------------------------------------------------------------------
/// Bits 7:4 of a hint are the C-state minus one (15: C0), bits 3:0 the sub-state. Leaf 5 counts each C-state's sub-states in four bits of
/// EDX. True if the CPU lists this sub-state. Beyond C1, sub-states from 2 on are numbered with gaps (Haswell's C7s is 2, Sierra Forest's
/// C6SP 3). For these it is enough that the CPU lists any sub-state of the C-state. Linux's intel_idle applies that rule to all sub-states.
constexpr bool hint_is_listed(std::uint8_t hint, std::uint32_t leaf5_edx) {
  const unsigned state = (hint >> 4) + 1U, sub_state = hint & 0xfU;
  if (state > 7) return false;
  const unsigned listed = leaf5_edx >> (4 * state) & 0xfU;
  return sub_state < listed || (state > 1 && sub_state >= 2 && listed != 0);
}

// --- Limits set by firmware (volume 4) ---------------------------------------------------------------------------------------------------
/// MSR_PKG_CST_CONFIG_CONTROL: bits 2:0 limit the package's C-state, bit 15 locks the register.
constexpr unsigned package_cstate_code(std::uint64_t raw) { return static_cast<unsigned>(bits(raw, 0, 3)); }
constexpr std::uint64_t package_cstate_lock = bit(15);
/// The CPU demotes requests for deeper states to C3 or C1 by its own forecast, and may undo that ("undemotion"). Bits 25 to 28 allow
/// demotion and undemotion, in each table of volume 4 from Sandy Bridge on.
constexpr std::uint64_t demote_to_c3 = bit(25), demote_to_c1 = bit(26), undemote_c3 = bit(27), undemote_c1 = bit(28);

/// MSRC001_0055 of AMD's families 0Fh and 10h: when all cores halt, bit 27 causes an SMI, bit 28 C1E (AMD 31116, "CMP-Halt").
constexpr std::uint64_t amd_c1e_on_halt = bit(27) | bit(28);

/// MSR_PKG_POWER_LIMIT's second limit, which applies for milliseconds; 0: off.
constexpr std::uint32_t limit2_power_units(std::uint64_t raw) {
  return (raw & bit(47)) == 0 ? 0 : static_cast<std::uint32_t>(bits(raw, 32, 15));
}
/// MSR_DRAM_POWER_LIMIT and MSR_PP0_POWER_LIMIT: bits 14:0 are the limit in units, bit 15 turns it on, bit 31 locks it.
constexpr std::uint32_t domain_limit_power_units(std::uint64_t raw) {
  return (raw & bit(15)) == 0 ? 0 : static_cast<std::uint32_t>(bits(raw, 0, 15));
}
constexpr std::uint64_t domain_limit_lock = bit(31);

}  // namespace neap::x86::power
