// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/facts.hpp"

#include <gtest/gtest.h>

#include <string_view>

#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/fake_cpu.hpp"

namespace neap::x86::power {
namespace {

using namespace test;

MachineFacts facts_of(FakeCpu& cpu) {
  CpuPower power;
  power.find(cpu);
  return find_facts(cpu, power.abilities(), power.sleep_ways());
}

constexpr std::size_t at(IdleState state) { return static_cast<std::size_t>(state); }

TEST(Facts, AreThoseOfASandyBridgeAndItsFirmware) {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.leaves[{1, 0}].eax |= 7;
  constexpr std::uint32_t signature_msr = 0x8b;
  cpu.msrs[signature_msr] = 0x0000'071a'0000'0000;
  cpu.swallows.insert(signature_msr);
  cpu.msrs[msr::package_cstate_control] = 0x1e00'8402;
  cpu.msrs[msr::misc_enable] |= misc_enable_turbo_off;
  const MachineFacts facts = facts_of(cpu);
  ASSERT_TRUE(facts.signature.has_value());
  EXPECT_EQ(facts.signature->family, 6);
  EXPECT_EQ(facts.signature->model, 0x2d);
  EXPECT_EQ(facts.signature->stepping, 7);
  EXPECT_EQ(facts.microcode, 0x71aU);
  EXPECT_STREQ(facts.c_state_limit, "c6_no_retention");
  EXPECT_EQ(facts.c_state_limit_locked, true);
  EXPECT_EQ(facts.turbo_off, true);
  EXPECT_EQ(facts.power_limit_mw, 135'000U);
  EXPECT_EQ(facts.power_limit_2_mw, 162'000U);
  EXPECT_EQ(facts.mwait_sub_states, cpu.cpuid(5, 0).edx);
  EXPECT_FALSE(facts.hypervisor);
  EXPECT_EQ(facts.mwait_hints[at(IdleState::c1)], 0x00);
  EXPECT_EQ(facts.mwait_hints[at(IdleState::c1e)], 0x01);
  EXPECT_EQ(facts.mwait_hints[at(IdleState::c6)], 0x20);
  EXPECT_EQ(facts.mwait_hints[at(IdleState::halt)], std::nullopt);
  EXPECT_EQ(facts.mwait_hints[at(IdleState::monitor)], std::nullopt);
}

TEST(Facts, ThatAMachineDoesNotReportAreAbsent) {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.msrs.erase(msr::misc_enable);
  cpu.msrs[msr::package_power_limit] &= ~limit1_enable;
  MachineFacts facts = facts_of(cpu);
  EXPECT_EQ(facts.microcode, std::nullopt);
  EXPECT_EQ(facts.c_state_limit, nullptr);
  EXPECT_EQ(facts.c_state_limit_locked, std::nullopt);
  EXPECT_EQ(facts.turbo_off, std::nullopt);
  EXPECT_EQ(facts.power_limit_mw, std::nullopt) << "a limit that is off limits nothing";
  EXPECT_EQ(facts.power_limit_2_mw, 162'000U) << "the two limits are switched on separately";

  // An emulator answers with zeros. They are not firmware's limits.
  FakeCpu emulator = emulated("GenuineIntel");
  emulator.msrs[msr::package_cstate_control] = 0;
  facts = facts_of(emulator);
  EXPECT_TRUE(facts.signature.has_value());
  EXPECT_EQ(facts.c_state_limit, nullptr);
  EXPECT_EQ(facts.turbo_off, std::nullopt);
  EXPECT_EQ(facts.power_limit_mw, std::nullopt);
  for (const auto& hint : facts.mwait_hints) EXPECT_EQ(hint, std::nullopt);

  FakeCpu other = amd(0x0080'0f12);
  facts = facts_of(other);
  EXPECT_EQ(facts.signature->family, 0x17);
  EXPECT_EQ(facts.c_state_limit, nullptr);
}

TEST(Facts, TheShortTermLimitIsInTheUpperHalfOfTheRegister) {
  FakeCpu cpu = sandy_bridge_ep();
  const std::uint64_t limit1 = cpu.msrs[msr::package_power_limit] & (limit1_mask | limit1_enable);
  cpu.msrs[msr::package_power_limit] = limit1 | ((limit1 & limit1_mask) * 2 | limit1_enable) << 32;
  const MachineFacts facts = facts_of(cpu);
  EXPECT_EQ(facts.power_limit_mw, 135'000U);
  EXPECT_EQ(facts.power_limit_2_mw, 270'000U);
}

TEST(Facts, AHypervisorIsNamedAsItNamesItself) {
  FakeCpu emulator = emulated("GenuineIntel");
  emulator.leaves[{0x40000000, 0}] = {.eax = 0x40000000, .ebx = 0x54474354, .ecx = 0x43544743, .edx = 0x47435447};
  const MachineFacts facts = facts_of(emulator);
  EXPECT_TRUE(facts.hypervisor);
  EXPECT_STREQ(facts.hypervisor_name.data(), "TCGTCGTCGTCG");
  emulator.leaves[{0x40000000, 0}] = {};
  EXPECT_STREQ(facts_of(emulator).hypervisor_name.data(), "");
}

TEST(Facts, EachCodeOfALimitHasANameOfItsOwn) {
  for (const PackageLimits meaning : {PackageLimits::unknown, PackageLimits::sandy_bridge, PackageLimits::skylake_server}) {
    for (unsigned code = 0; code < 8; ++code) {
      for (unsigned other = 0; other < code; ++other) {
        EXPECT_NE(std::string_view(package_limit_name(meaning, code)), package_limit_name(meaning, other));
      }
    }
  }
  EXPECT_STREQ(package_limit_name(PackageLimits::sandy_bridge, 7), "unlimited");
  EXPECT_STREQ(package_limit_name(PackageLimits::unknown, 3), "code_3");
}

}  // namespace
}  // namespace neap::x86::power
