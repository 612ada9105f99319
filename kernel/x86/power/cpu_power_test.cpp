// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/cpu_power.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <string>

#include "kernel/x86/power/fake_cpu.hpp"

namespace neap::x86::power {
namespace {

using namespace test;
using Writes = FakeCpu::Writes;

std::string description(const CpuPower& power) {
  Line line;
  power.describe(line);
  return std::string(line.text());
}
using enum IdleState;

struct SandyBridge : testing::Test {
  FakeCpu cpu = sandy_bridge_ep();
};
/// A Sandy Bridge whose core has started; `cpu.writes` has only writes after the start.
struct StartedSandyBridge : SandyBridge {
  const CpuPower power = found_on(cpu);
  const CoreAtBoot at_boot = power.start_core(cpu);
  void SetUp() override { cpu.writes.clear(); }
};

TEST_F(SandyBridge, SandyBridgeHasAllFeatures) {
  const CpuPower power = found_on(cpu);
  const PowerAbilities& has = power.abilities();
  EXPECT_EQ(has.idle_states, states({halt, c1, c1e, c3, c6, c7, poll, monitor, menu}));
  EXPECT_EQ(has.deepest, c7);
  EXPECT_TRUE(has.mwait_sleeps);
  EXPECT_TRUE(has.pstates);
  EXPECT_FALSE(has.hwp);
  EXPECT_EQ(has.ratio_min, 12);
  EXPECT_EQ(has.ratio_max, 29);
  EXPECT_EQ(has.ratio_turbo_max, 38);
  EXPECT_EQ(has.ratio_khz, 100'000U);
  EXPECT_TRUE(has.power_limit);
  EXPECT_FALSE(has.power_limit_locked);
  EXPECT_EQ(has.power_limit_min_mw, 51'000U);
  EXPECT_EQ(has.power_limit_max_mw, 200'000U);
  EXPECT_TRUE(has.turbo);
  EXPECT_EQ(has.counters, 0x1fff);
  EXPECT_EQ(has.energy_unit_exponent, 16);
  EXPECT_EQ(has.dram_energy_unit_exponent, 16);
  EXPECT_EQ(
      description(power),
      "power: Sandy Bridge-EP; idle states halt c1 c1e c3 c6 c7 monitor menu; P-states 12 to 29 (turbo 38) x 100 MHz by PERF_CTL; package "
      "limit 51 to 200 W; counters instructions, cycles, reference cycles, LLC misses, package energy, DRAM energy, C3, C6, C7, package "
      "C2, package C3, package C6, package C7");
}

// The emulator's MSRs read as zero. Zero must not count as a feature, whatever vendor CPUID reports.
TEST(CpuPower, TheEmulatedCpuHasNoFeaturesAndReportsThat) {
  for (const char* vendor : {"GenuineIntel", "AuthenticAMD"}) {
    FakeCpu cpu = emulated(vendor);
    const CpuPower power = found_on(cpu);
    const PowerAbilities& has = power.abilities();
    EXPECT_EQ(has.idle_states, states({halt, poll}));
    EXPECT_EQ(has.deepest, halt);
    EXPECT_FALSE(has.mwait_sleeps || has.pstates || has.power_limit || has.turbo);
    EXPECT_EQ(has.counters, 0);
    EXPECT_EQ(description(power),
              "power: idle states halt; MWAIT returns at once here, so halt is used; no P-states, no power limit, no counters on this CPU");
    const CoreAtBoot at_boot = power.start_core(cpu);
    EXPECT_EQ(power.set_pstate(cpu, at_boot, 0x1800).error().code, ErrorCode::unsupported);
    EXPECT_EQ(power.set_power_limit(cpu, at_boot, 35'000).error().code, ErrorCode::unsupported);
    EXPECT_EQ(power.set_turbo(cpu, false).error().code, ErrorCode::unsupported);
    EXPECT_EQ(power.sample(cpu).present, 0);
    EXPECT_EQ(cpu.writes, Writes{}) << "not even at start";
  }
}

// Times that were measured replace those of the table, and give a CPU that is not in the table a choice of states.
TEST(CpuPower, MeasuredWakeUpTimesReplaceTheTables) {
  const auto found_with = [](FakeCpu& cpu, const WakeTimes& times) {
    CpuPower power;
    power.find(cpu, {.wake_up_us = times});
    return power.abilities();
  };
  FakeCpu known = sandy_bridge_ep();
  const PowerAbilities of_table = found_on(known).abilities();
  EXPECT_EQ(of_table.wake_us, (WakeTimes{0, 2, 10, 80, 104, 109}));
  EXPECT_EQ(of_table.wake_us_measured, 0);
  const PowerAbilities measured = found_with(known, {0, 3, 0, 0, 41, 0});
  EXPECT_EQ(measured.wake_us, (WakeTimes{0, 3, 10, 80, 41, 109}));
  EXPECT_EQ(measured.wake_us_measured, states({c1, c6}));

  FakeCpu unknown = sandy_bridge_ep();
  unknown.model(0x97, test::monitor_feature);
  EXPECT_EQ(found_on(unknown).abilities().idle_states & states({menu}), 0);
  EXPECT_EQ(found_with(unknown, {0, 3, 0, 0, 41, 0}).idle_states & states({menu}), states({menu}));

  FakeCpu without_c7 = sandy_bridge_ep();
  without_c7.leaves[{5, 0}].edx = 0x20;  // C1 and C1E only
  const PowerAbilities ignored = found_with(without_c7, {0, 3, 0, 0, 41, 0});
  EXPECT_EQ(ignored.wake_us_measured, states({c1})) << "this machine does not offer c6";
  EXPECT_EQ(ignored.wake_us, (WakeTimes{0, 3, 10, 0, 0, 0}));
}

// KVM gives a guest MWAIT and an empty leaf 5, and `mwait=assumed` corrects that. If CPUID lacks MONITOR, MWAIT would be an invalid
// instruction.
TEST(CpuPower, AnAssumedMwaitHasTheStatesOfAKnownModelOrC1) {
  const auto assumed_on = [](FakeCpu& cpu) {
    CpuPower power;
    power.find(cpu, {.assume_mwait = true});
    EXPECT_EQ(cpu.writes, Writes{});
    return power;
  };
  FakeCpu known = sandy_bridge_ep();
  known.model(0x2d, test::monitor_feature | test::speed_step_feature | test::hypervisor_feature);
  EXPECT_EQ(assumed_on(known).abilities().idle_states, states({halt, c1, c1e, c3, c6, c7, poll, monitor, menu}));
  EXPECT_EQ(description(assumed_on(known)), description(found_on(known))) << "no assumption was needed";
  known.leaves[{5, 0}].edx = 0;
  EXPECT_EQ(found_on(known).abilities().idle_states, states({halt, poll}));
  const CpuPower power = assumed_on(known);
  EXPECT_EQ(power.abilities().idle_states, states({halt, c1, c1e, c3, c6, c7, poll, monitor, menu}));
  EXPECT_EQ(power.abilities().deepest, c7);
  EXPECT_FALSE(power.sleep_ways().mwait_returns_at_once);
  EXPECT_NE(description(power).find("idle states halt c1 c1e c3 c6 c7 monitor menu; MWAIT is assumed to sleep; "), std::string::npos);

  FakeCpu unknown = known;
  unknown.model(0x97, test::monitor_feature | test::hypervisor_feature);
  EXPECT_EQ(assumed_on(unknown).abilities().idle_states, states({halt, c1, poll, monitor}));
  FakeCpu emulator = emulated("AuthenticAMD");
  EXPECT_EQ(assumed_on(emulator).abilities().idle_states, states({halt, c1, poll, monitor}));
  EXPECT_TRUE(assumed_on(emulator).sleep_ways().mwait_returns_at_once);
  known.model(0x2d, test::hypervisor_feature);
  EXPECT_EQ(assumed_on(known).abilities().idle_states, states({halt, poll}));
}

TEST_F(SandyBridge, ACpuOnWhichEveryMsrFaultsIsHandled) {
  cpu.msrs.clear();
  const CpuPower power = found_on(cpu);
  EXPECT_FALSE(power.abilities().pstates || power.abilities().power_limit || power.abilities().turbo);
  EXPECT_EQ(power.abilities().counters, 0) << "although CPUID lists them";
  EXPECT_EQ(power.abilities().deepest, c7) << "MWAIT needs no MSR";
}

// KVM shows a Sandy Bridge without its power management: RAPL and ratios read as zero.
TEST_F(SandyBridge, ZerosOfAHypervisorAreIgnored) {
  cpu.model(0x2d, test::speed_step_feature | test::hypervisor_feature);
  for (const std::uint32_t number : {msr::platform_info, msr::rapl_power_unit, msr::package_energy, msr::package_power_limit})
    cpu.msrs[number] = 0;
  const CpuPower power = found_on(cpu);
  EXPECT_FALSE(power.abilities().pstates);
  EXPECT_FALSE(power.abilities().power_limit);
  EXPECT_EQ(power.abilities().counters, counter::instructions | counter::cycles | counter::reference_cycles | counter::llc_misses)
      << "the counters that CPUID lists, and no residencies";
  EXPECT_EQ(power.abilities().idle_states, states({halt, poll}));
  EXPECT_NE(description(power).find("MWAIT is missing, so halt is used"), std::string::npos);
}

TEST(CpuPower, IdleStatesAreThoseOfTheModelThatLeaf5Lists) {
  struct Case {
    std::uint8_t model;
    std::uint32_t leaf5;
    std::uint16_t has;
    IdleState deepest;
  };
  for (const Case& now : {
           Case{0x3e, 0x00021120, states({halt, c1, c1e, c3, c6, poll, monitor, menu}), c6},
           Case{0x3f, 0x00002120, states({halt, c1, c1e, c3, c6, poll, monitor, menu}), c6},
           Case{0x4f, 0x00002120, states({halt, c1, c1e, c3, c6, poll, monitor, menu}), c6},
           Case{0x55, 0x00002020, states({halt, c1, c1e, c6, poll, monitor, menu}), c6},
           Case{0x6a, 0x00002020, states({halt, c1, c1e, c6, poll, menu}), c6},  // this CPU's MONITOR misses writes
           Case{0x2d, 0x00000010, states({halt, c1, poll, monitor}), c1}, Case{0x2d, 0x00000000, states({halt, poll}), halt},
           Case{0x8f, 0x00002020, states({halt, c1, c1e, c6, poll, monitor, menu}), c6},
           Case{0xcf, 0x00002020, states({halt, c1, c1e, c6, poll, monitor, menu}), c6},
           Case{0xad, 0x00002020, states({halt, c1, c1e, c6, poll, monitor, menu}), c6},
           Case{0xad, 0x00001020, states({halt, c1, c1e, poll, monitor, menu}), c1e},  // 21h is not listed
           Case{0xaf, 0x00002020, states({halt, c1, c1e, c6, poll, monitor, menu}), c6},
           Case{0xaf, 0x00000020, states({halt, c1, c1e, poll, monitor, menu}), c1e},
           Case{0x56, 0x00002120, states({halt, c1, c1e, c3, c6, poll, monitor, menu}), c6},
           Case{0x3c, 0x00042120, states({halt, c1, c1e, c3, c6, c7, poll, monitor, menu}), c7},
           Case{0x9e, 0x00142120, states({halt, c1, c1e, c3, c6, c7, poll, monitor, menu}), c7},
           Case{0x97, 0x00002020, states({halt, c1, c1e, c6, poll, monitor}), c6},  // not in the table of models: only CPUID counts
       }) {
    FakeCpu cpu = sandy_bridge_ep();
    cpu.model(now.model, test::monitor_feature);
    cpu.leaves[{5, 0}].edx = now.leaf5;
    const CpuPower power = found_on(cpu);
    EXPECT_EQ(power.abilities().idle_states, now.has) << "model " << int{now.model};
    EXPECT_EQ(power.abilities().deepest, now.deepest) << "model " << int{now.model};
  }
  FakeCpu amd = test::amd(0x00a20f10);
  EXPECT_EQ(found_on(amd).abilities().idle_states, states({halt, c1, poll, monitor}));
}

TEST_F(SandyBridge, DramEnergyHasItsOwnUnitOnLaterServers) {
  cpu.model(0x3f, test::monitor_feature);
  cpu.msrs[msr::rapl_power_unit] = 0xa0e03;
  const CpuPower power = found_on(cpu);
  EXPECT_EQ(power.abilities().energy_unit_exponent, 14);
  EXPECT_EQ(power.abilities().dram_energy_unit_exponent, 16);
}

TEST_F(SandyBridge, StartingACoreEnablesCountersAndSeparatesC1FromC1E) {
  const CpuPower power = found_on(cpu);
  const CoreAtBoot at_boot = power.start_core(cpu);
  EXPECT_EQ(at_boot.performance, 0x1d00U);
  EXPECT_EQ(at_boot.power_limit, 0x0007'8510'0014'8438U);
  EXPECT_EQ(cpu.writes, (Writes{{0x1fc, 0x14'0059},
                                {0x38f, 0},
                                {0xc1, 0},
                                {0x186, 0x43412e},
                                {0x309, 0},
                                {0x30a, 0},
                                {0x30b, 0},
                                {0x38d, 0x333},
                                {0x38f, 0x7'0000'0001}}));
}

TEST_F(StartedSandyBridge, PerfCtlIsWrittenAndZeroRestoresFirmwaresValue) {
  ASSERT_TRUE(power.set_pstate(cpu, at_boot, 0x1800).has_value());
  ASSERT_TRUE(power.set_pstate(cpu, at_boot, 0).has_value());
  EXPECT_EQ(cpu.writes, (Writes{{0x199, 0x1800}, {0x199, 0x1d00}})) << "SpeedStep was on already";
  cpu.msrs[msr::misc_enable] = 0;
  ASSERT_TRUE(power.set_pstate(cpu, at_boot, 0x0c00).has_value());
  EXPECT_EQ(cpu.msrs[msr::misc_enable], 0x1'0000U) << "firmware had left P-states off";
}

TEST_F(SandyBridge, TheGrantedRatioIsRead) {
  const CpuPower power = found_on(cpu);
  EXPECT_FALSE(power.granted_ratio(cpu).has_value()) << "the MSR faults";
  cpu.msrs[msr::perf_status] = 0x2149'0000'1a00;
  EXPECT_EQ(power.granted_ratio(cpu).value(), 26);
  cpu.msrs[msr::perf_status] = 0;
  EXPECT_FALSE(power.granted_ratio(cpu).has_value()) << "a hypervisor's zero";
  FakeCpu nothing = emulated("GenuineIntel");
  EXPECT_FALSE(found_on(nothing).granted_ratio(nothing).has_value());
}

TEST_F(SandyBridge, WithHwpOnTheRequestIsWritten) {
  cpu.model(0x55, test::monitor_feature | test::speed_step_feature);
  cpu.leaves[{6, 0}].eax |= 1 << 7;
  cpu.msrs[msr::hwp_enable] = 1;
  cpu.msrs[msr::hwp_capabilities] = 0x01'0a'1d'27;
  cpu.msrs[msr::hwp_request] = 0x8000'2701;
  const CpuPower power = found_on(cpu);
  EXPECT_TRUE(power.abilities().hwp);
  EXPECT_EQ(power.abilities().ratio_turbo_max, 39);
  const CoreAtBoot at_boot = power.start_core(cpu);
  cpu.writes.clear();
  ASSERT_TRUE(power.set_pstate(cpu, at_boot, 0x1800).has_value());
  ASSERT_TRUE(power.set_pstate(cpu, at_boot, 0).has_value());
  EXPECT_EQ(cpu.writes, (Writes{{0x774, 0x8000'1818}, {0x774, 0x8000'2701}}));

  EXPECT_FALSE(power.abilities().energy_preference) << "not every HWP has one";
  EXPECT_EQ(power.set_energy_preference(cpu, at_boot, 0).error().code, ErrorCode::unsupported);

  cpu.leaves[{6, 0}].eax |= 1 << 10;
  CpuPower preferring;
  preferring.find(cpu);
  EXPECT_TRUE(preferring.abilities().energy_preference);
  cpu.writes.clear();
  ASSERT_TRUE(preferring.set_energy_preference(cpu, at_boot, 192).has_value());
  ASSERT_TRUE(preferring.set_pstate(cpu, at_boot, 0x1800).has_value());
  ASSERT_TRUE(preferring.set_pstate(cpu, at_boot, 0).has_value());
  ASSERT_TRUE(preferring.set_energy_preference(cpu, at_boot, machine::firmwares_preference).has_value());
  EXPECT_EQ(cpu.writes, (Writes{{0x774, 0xc000'2701}, {0x774, 0xc000'1818}, {0x774, 0xc000'2701}, {0x774, 0x8000'2701}}));
  cpu.msrs.erase(msr::hwp_request);
  EXPECT_FALSE(preferring.set_energy_preference(cpu, at_boot, 0).has_value()) << "a hypervisor without it";
  cpu.msrs[msr::hwp_request] = 0;

  cpu.msrs[msr::hwp_enable] = 0;  // HWP is present, but firmware left it off: PERF_CTL is used
  CpuPower without;
  without.find(cpu);
  EXPECT_FALSE(without.abilities().hwp);
  EXPECT_FALSE(without.abilities().energy_preference);
  EXPECT_TRUE(without.abilities().pstates);
}

TEST_F(StartedSandyBridge, PowerLimitIsRoundedCheckedAndRestored) {
  EXPECT_EQ(power.set_power_limit(cpu, at_boot, 60'000).value(), 60'000U);
  EXPECT_EQ(power.set_power_limit(cpu, at_boot, 60'070).value(), 60'125U);
  EXPECT_EQ(power.set_power_limit(cpu, at_boot, 0).value(), 0U);
  EXPECT_EQ(cpu.writes, (Writes{{0x610, 0x0007'8510'0015'81e0}, {0x610, 0x0007'8510'0015'81e1}, {0x610, 0x0007'8510'0014'8438}}));
  cpu.writes.clear();
  for (const std::uint32_t outside : {1U, 50'999U, 200'001U, 4'000'000U}) {
    EXPECT_EQ(power.set_power_limit(cpu, at_boot, outside).error().code, ErrorCode::invalid) << outside;
  }
  EXPECT_EQ(cpu.writes, Writes{});
}

TEST_F(SandyBridge, ALockedOrIgnoredPowerLimitIsRefused) {
  cpu.msrs[msr::package_power_limit] |= power_limit_lock;
  const CpuPower power = found_on(cpu);
  EXPECT_TRUE(power.abilities().power_limit_locked);
  EXPECT_NE(description(power).find("package limit locked by firmware"), std::string::npos);
  const CoreAtBoot at_boot = power.start_core(cpu);
  cpu.writes.clear();
  EXPECT_EQ(power.set_power_limit(cpu, at_boot, 60'000).error().code, ErrorCode::unsupported);
  EXPECT_EQ(cpu.writes, Writes{});

  cpu.msrs[msr::package_power_limit] &= ~power_limit_lock;
  cpu.swallows.insert(msr::package_power_limit);
  EXPECT_EQ(power.set_power_limit(cpu, at_boot, 60'000).error().code, ErrorCode::unsupported) << "the write is verified";
}

TEST_F(SandyBridge, TurboIsBit38AndIsFoundWhileItIsOff) {
  const CpuPower power = found_on(cpu);
  ASSERT_TRUE(power.set_turbo(cpu, false).has_value());
  EXPECT_EQ(cpu.msrs[msr::misc_enable], 0x40'0085'0089U);
  cpu.leaves[{6, 0}].eax &= ~2U;  // CPUID then reports turbo as absent
  cpu.writes.clear();
  const CpuPower again = found_on(cpu);
  EXPECT_TRUE(again.abilities().turbo);
  ASSERT_TRUE(again.set_turbo(cpu, true).has_value());
  EXPECT_EQ(cpu.msrs[msr::misc_enable], 0x85'0089U);
}

TEST_F(SandyBridge, ChosenEventsAreCountedBesideLlcMisses) {
  CpuPower power = found_on(cpu);
  EXPECT_EQ(power.abilities().free_event_counters, 3) << "of four counters, one counts LLC misses";
  for (const std::uint32_t number : {1U, 2U, 3U}) cpu.msrs[msr::pmc0 + number] = cpu.msrs[msr::perf_event_select0 + number] = 9;
  const std::uint32_t chosen[] = {0x4300c5, 0x4320d1};
  power.choose_events(chosen);
  ASSERT_TRUE(power.count_chosen_events(cpu).has_value());
  EXPECT_EQ(cpu.msrs[msr::perf_event_select0 + 1], 0x4300c5U);
  EXPECT_EQ(cpu.msrs[msr::perf_event_select0 + 2], 0x4320d1U);
  EXPECT_EQ(cpu.msrs[msr::perf_event_select0 + 3], 9U) << "this counter was not asked for";
  EXPECT_EQ(cpu.msrs[msr::pmc0 + 1], 0U);
  EXPECT_EQ(cpu.msrs[msr::perf_global_control], 0x7'0000'0007U);
  cpu.msrs[msr::pmc0 + 1] = 31;
  cpu.msrs[msr::pmc0 + 2] = 32;
  const CounterSample all = power.sample(cpu);
  EXPECT_EQ(all.present & counter::events, counter::event1 | counter::event2);
  EXPECT_EQ(all.events[0], 31U);
  EXPECT_EQ(all.events[1], 32U);
  EXPECT_EQ(all.llc_misses, 77U);
  cpu.msrs.erase(msr::perf_event_select0 + 1);
  EXPECT_FALSE(power.count_chosen_events(cpu).has_value()) << "a register that faults is an error";
}

TEST_F(SandyBridge, EveryCounterIsSampledAndAFaultReadsAsZero) {
  const CpuPower power = found_on(cpu);
  cpu.msrs[msr::package_energy] = 0xdead'beef'0000'0005;
  const CounterSample all = power.sample(cpu);
  EXPECT_EQ(all.present, 0x1fff);
  EXPECT_EQ(all.package_energy, 5U) << "32 bits, the rest is reserved";
  EXPECT_EQ(all.instructions, 1U);
  EXPECT_EQ(all.reference_cycles, 3U);
  EXPECT_EQ(all.llc_misses, 77U);
  EXPECT_EQ(all.core_c6, 106U);
  EXPECT_EQ(all.package_c2, 202U);
  cpu.msrs.erase(msr::core_c6_residency);
  const CounterSample without = power.sample(cpu);
  EXPECT_EQ(without.present, 0x1fff & ~counter::core_c6) << "a counter that faults is absent";
  EXPECT_EQ(without.core_c6, 0U);
  EXPECT_EQ(without.core_c7, 107U);
}

// Registers and leaves may hold any value on an unknown machine, and any access may fault. The sanitizers find errors.
TEST(CpuPower, AnyContentsAreHandled) {
  std::minstd_rand random(3);
  const auto any = [&] { return std::uint64_t{random()} << 40 ^ std::uint64_t{random()} << 20 ^ random(); };
  const auto word = [&] { return static_cast<std::uint32_t>(any()); };
  for (int round = 0; round < 100; ++round) {
    FakeCpu cpu = sandy_bridge_ep();
    cpu.model(static_cast<std::uint8_t>(random()), test::monitor_feature | test::speed_step_feature);
    for (const std::uint32_t leaf : {5U, 6U, 10U}) cpu.leaves[{leaf, 0}] = {.eax = word(), .ebx = word(), .ecx = word(), .edx = word()};
    for (const std::uint32_t number : {msr::hwp_enable, msr::hwp_capabilities, msr::hwp_request}) cpu.msrs[number] = 0;
    for (auto& [number, value] : cpu.msrs) value = any();
    std::erase_if(cpu.msrs, [&](const auto&) { return random() % 8 == 0; });
    const CpuPower power = found_on(cpu);
    const CoreAtBoot at_boot = power.start_core(cpu);
    (void)power.set_pstate(cpu, at_boot, any());
    if (const auto set = power.set_power_limit(cpu, at_boot, word() % 300'000)) {
      EXPECT_LE(*set, 400'000U);
    }
    (void)power.set_turbo(cpu, random() % 2 == 0);
    (void)power.sample(cpu);
    EXPECT_TRUE(description(power).starts_with("power: "));
  }
}

TEST_F(SandyBridge, BrandIsTrimmed) {
  cpu.name("      Intel(R) Xeon(R) CPU E5-2690 0 @ 2.90GHz  ");
  EXPECT_STREQ(found_on(cpu).abilities().cpu, "Intel(R) Xeon(R) CPU E5-2690 0 @ 2.90GHz");
}

TEST(PackageShift, ComesFromTheBestAvailableLeaf) {
  FakeCpu cpu;
  cpu.vendor("GenuineIntel", 0x1f);
  cpu.leaves[{0x1f, 0}] = {.eax = 1, .ebx = 2, .ecx = 0x100, .edx = 0};
  cpu.leaves[{0x1f, 1}] = {.eax = 7, .ebx = 80, .ecx = 0x201, .edx = 0};
  EXPECT_EQ(package_shift(cpu), 7U);
  cpu.leaves.erase({0x1f, 0});
  cpu.leaves[{0x0b, 0}] = {.eax = 1, .ebx = 2, .ecx = 0x100, .edx = 0};
  cpu.leaves[{0x0b, 1}] = {.eax = 5, .ebx = 16, .ecx = 0x201, .edx = 0};
  EXPECT_EQ(package_shift(cpu), 5U);
  FakeCpu old;
  old.vendor("AuthenticAMD", 1);
  EXPECT_EQ(package_shift(old), 0U);
  old.leaves[{1, 0}] = {.eax = 0, .ebx = 6U << 16, .ecx = 0, .edx = 1U << 28};
  EXPECT_EQ(package_shift(old), 3U);
}

}  // namespace
}  // namespace neap::x86::power
