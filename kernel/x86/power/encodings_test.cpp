// SPDX-License-Identifier: BSL-1.0
// Compares the encoded words with words composed by hand from the SDM's bit tables.
#include "kernel/x86/power/encodings.hpp"

#include <gtest/gtest.h>

namespace neap::x86::power {
namespace {

// Sandy Bridge-EP to Broadwell-EP: power 1/8 W, energy 1/65536 J, time 1/1024 s.
constexpr std::uint64_t unit_register = 0xa1003;
constexpr RaplUnits units = rapl_units(unit_register);

TEST(PerfCtl, HoldsTheRatioInBits15To8) {
  EXPECT_EQ(ratio_of(0x1d00), 29);
  EXPECT_EQ(ratio_of(0x1'0000'1800), 24) << "bit 32, turbo disengage, is not part of it";
}

TEST(HwpRequest, MinimumAndMaximumAreTheRatioAndDesiredIsZero) {
  EXPECT_EQ(hwp_request_value(0, 24), 0x0000'1818U);
  EXPECT_EQ(hwp_request_value(0x8000'2a08, 24), 0x8000'1818U) << "the energy preference is kept";
  EXPECT_EQ(hwp_request_value(0x3'ff80'ff'2a'08, 20), 0x3'ff80'00'14'14U) << "the activity window is kept, the desired value is cleared";
  EXPECT_EQ(hwp_request_value(0xf800'0400'8000'2a08, 24), 0x8000'1818U) << "package control and its valid bits are cleared";
}

TEST(HwpRequest, ThePreferenceIsInBits31To24) {
  EXPECT_EQ(hwp_request_with_preference(0x8000'2a08, 0xc000'0000), 0xc000'2a08U);
  EXPECT_EQ(hwp_request_with_preference(0x3ff'0014'2a08, 0xff12'3456), 0x3ff'ff14'2a08U) << "no other field changes";
  EXPECT_EQ(hwp_request_with_preference(0xf800'0400'8000'2a08, 0), 0x2a08U) << "package control and its valid bits are cleared";
}

TEST(RaplUnits, AreRead) {
  EXPECT_EQ(units.power, 3);
  EXPECT_EQ(units.energy, 16);
  EXPECT_EQ(units.time, 10);
  EXPECT_EQ(rapl_units(0xa0e03).energy, 14) << "Haswell-EP: 61 uJ";
}

TEST(PowerLimit, RoundsToTheNearestUnit) {
  EXPECT_EQ(power_units_of(35'000, units), 280U);
  EXPECT_EQ(power_units_of(35'062, units), 280U);
  EXPECT_EQ(power_units_of(35'063, units), 281U);
  EXPECT_EQ(milliwatts_of(280, units), 35'000U);
  EXPECT_EQ(milliwatts_of(281, units), 35'125U);
  EXPECT_EQ(power_units_of(1, units), 1U) << "never a limit of zero";
  EXPECT_EQ(power_units_of(0xffff'ffff, units), 0x7fffU) << "the field has 15 bits";
  constexpr RaplUnits whole{.power = 0, .energy = 16, .time = 10};
  EXPECT_EQ(milliwatts_of(95, whole), 95'000U);
  EXPECT_EQ(power_units_of(95'499, whole), 95U);
  for (std::uint32_t i = 1; i <= 0x7fff; ++i) ASSERT_EQ(power_units_of(milliwatts_of(i, units), units), i);
}

TEST(PowerLimit, ChangesOnlyTheSustainedLimit) {
  // Firmware's value: limit 1 of 135 W, enabled, window 1 s; limit 2 of 162 W, enabled and clamped, window 7.8 ms.
  constexpr std::uint64_t firmware = 0x0007'8510'0014'8438;
  // 60 W = 480 units = 0x1e0, enable and clamp set, firmware's window and limit 2 kept.
  EXPECT_EQ(power_limit_value(firmware, 480, units), 0x0007'8510'0015'81e0U);
  EXPECT_EQ(power_limit_value(0, 480, units), 0x0000'0000'0015'81e0U) << "without a window: one second";
}

TEST(PowerLimit, LockIsBit63) {
  EXPECT_EQ(power_limit_lock, 0x8000'0000'0000'0000U);
  EXPECT_EQ(power_limit_value(power_limit_lock, 1, units) & power_limit_lock, power_limit_lock) << "never cleared by us";
}

TEST(PowerLimit, WindowIsAPowerOfTwoAndQuarters) {
  EXPECT_EQ(window_field(1000, units), 0x0a);
  EXPECT_EQ(window_field(1250, units), 0x2a);
  EXPECT_EQ(window_field(1120, units), 0x0a) << "below the middle of 1000 and 1250";
  EXPECT_EQ(window_field(1130, units), 0x2a);
  EXPECT_EQ(window_field(1900, units), 0x0b) << "rounding up reaches the next power";
  EXPECT_EQ(window_field(0, units), 0x00) << "at least one unit";
}

TEST(PowerInfo, HasMinimumAndMaximum) {
  // A thermal power of 130 W, a minimum of 51 W and a maximum of 200 W.
  constexpr std::uint64_t raw = 0x0000'0640'0198'0410;
  EXPECT_EQ(milliwatts_of(power_info_min(raw), units), 51'000U);
  EXPECT_EQ(milliwatts_of(power_info_max(raw), units), 200'000U);
}

TEST(Counters, AreTurnedOnAtAllLevelsWithoutInterrupts) {
  EXPECT_EQ(fixed_control_value(3), 0x333U);
  EXPECT_EQ(fixed_control_value(1), 0x3U);
  EXPECT_EQ(event_select_llc_misses, 0x43412eU);
  EXPECT_EQ(global_control_value(3, 1), 0x7'0000'0001U);
  EXPECT_EQ(global_control_value(2, 0), 0x3'0000'0000U);
  EXPECT_EQ(global_control_value(3, 0b1011), 0x7'0000'000bU);
}

TEST(MwaitHints, CountOnlyIfLeaf5ListsTheirSubState) {
  constexpr std::uint32_t sandy_bridge_ep = 0x00021120;
  EXPECT_TRUE(hint_is_listed(0x00, sandy_bridge_ep)) << "C1";
  EXPECT_TRUE(hint_is_listed(0x01, sandy_bridge_ep)) << "C1E";
  EXPECT_FALSE(hint_is_listed(0x02, sandy_bridge_ep));
  EXPECT_TRUE(hint_is_listed(0x10, sandy_bridge_ep)) << "C3";
  EXPECT_TRUE(hint_is_listed(0x20, sandy_bridge_ep)) << "C6";
  EXPECT_TRUE(hint_is_listed(0x30, sandy_bridge_ep)) << "C7";
  EXPECT_FALSE(hint_is_listed(0x40, sandy_bridge_ep));
  constexpr std::uint32_t skylake_sp = 0x00002020;
  EXPECT_FALSE(hint_is_listed(0x10, skylake_sp));
  EXPECT_TRUE(hint_is_listed(0x21, skylake_sp));
  EXPECT_TRUE(hint_is_listed(0x23, skylake_sp)) << "numbered with gaps";
  EXPECT_FALSE(hint_is_listed(0x33, skylake_sp)) << "no C7";
  EXPECT_TRUE(hint_is_listed(0x20, skylake_sp));
  EXPECT_FALSE(hint_is_listed(0x70, 0xffffffff)) << "leaf 5 ends with C7 in its own numbering";
  EXPECT_FALSE(hint_is_listed(0xf0, 0xffffffff)) << "C0 is not a sleep state";
}

}  // namespace
}  // namespace neap::x86::power
