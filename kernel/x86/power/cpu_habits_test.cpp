// SPDX-License-Identifier: BSL-1.0
// Tests of the CPU's own decisions and of its errata: requests of parked threads, demotion, timers that stop, MONITOR that misses writes.
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/fake_cpu.hpp"

namespace neap::x86::power {
namespace {

using namespace test;
using Writes = FakeCpu::Writes;
using enum IdleState;

CpuPower found_on_copy(FakeCpu cpu) { return found_on(cpu); }

// The CPU grants the highest request of a core's threads, and on many models the highest request of all cores of a package. A core that
// does not run (a parked core) keeps firmware's request, usually the highest, unless the core requests a lower p-state.
TEST(CpuHabits, AParkedCoreAsksForTheLowestPState) {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.msrs[msr::misc_enable] = 0;
  const CpuPower power = found_on(cpu);
  ASSERT_TRUE(power.park_core(cpu).has_value());
  EXPECT_EQ(cpu.writes, (Writes{{0x1a0, 0x1'0000}, {0x199, 0x0c00}})) << "its counters stay off";

  cpu.model(0x55, test::monitor_feature | test::speed_step_feature);
  cpu.leaves[{6, 0}].eax |= 1 << 7 | 1 << 10;
  cpu.msrs[msr::hwp_enable] = 1;
  cpu.msrs[msr::hwp_capabilities] = 0x05'0a'1d'27;
  cpu.msrs[msr::hwp_request] = 0x400'8030'2701;  // bit 42: firmware gives the package's request priority
  cpu.writes.clear();
  const CpuPower by_hwp = found_on(cpu);
  ASSERT_TRUE(by_hwp.park_core(cpu).has_value());
  EXPECT_EQ(cpu.writes, (Writes{{0x774, 0xff00'0505}})) << "minimum and maximum are the lowest, desired is zero, the preference is 255";

  cpu.leaves[{6, 0}].eax &= ~(1U << 10);
  cpu.writes.clear();
  ASSERT_TRUE(found_on(cpu).park_core(cpu).has_value());
  EXPECT_EQ(cpu.writes, (Writes{{0x774, 0xff00'0505}})) << "a reserved field is not changed";
  cpu.msrs.erase(msr::hwp_request);
  EXPECT_FALSE(by_hwp.park_core(cpu).has_value());

  FakeCpu nothing = emulated("GenuineIntel");
  EXPECT_TRUE(found_on(nothing).park_core(nothing).has_value());
  EXPECT_EQ(nothing.writes, Writes{});
}

TEST(CpuHabits, DemotionByTheCpuIsTurnedOffByDefault) {
  constexpr std::uint64_t left = 0x1e00'8407;  // locked, but the lock covers bits 15:0 only
  FakeCpu cpu = sandy_bridge_ep();
  cpu.msrs[msr::package_cstate_control] = left;
  const CpuPower power = found_on(cpu);
  EXPECT_FALSE(power.start_core(cpu).demotes);
  EXPECT_EQ(cpu.msrs[msr::package_cstate_control], 0x8407U) << "bits 25 to 28";

  cpu.msrs[msr::package_cstate_control] = left;
  ASSERT_TRUE(power.park_core(cpu).has_value());
  EXPECT_EQ(cpu.msrs[msr::package_cstate_control], 0x8407U) << "a parked core has its own register";

  cpu.msrs[msr::package_cstate_control] = left;
  cpu.swallows.insert(msr::package_cstate_control);
  EXPECT_TRUE(power.start_core(cpu).demotes) << "the write is verified";
  cpu.swallows.clear();

  CpuPower keeping;
  keeping.find(cpu, {.keep_demotion = true});
  EXPECT_FALSE(keeping.start_core(cpu).demotes);
  EXPECT_EQ(cpu.msrs[msr::package_cstate_control], left);

  cpu.model(0x55, test::monitor_feature);  // Skylake-SP has no C3
  EXPECT_FALSE(found_on_copy(cpu).start_core(cpu).demotes);
  EXPECT_EQ(cpu.msrs[msr::package_cstate_control], 0x0a00'8407U) << "bits 26 and 28";

  for (const auto& [model, features] : {std::pair{std::uint8_t{0x97}, test::monitor_feature},
                                        std::pair{std::uint8_t{0x2d}, test::monitor_feature | test::hypervisor_feature}}) {
    cpu.model(model, features);
    cpu.msrs[msr::package_cstate_control] = left;
    EXPECT_FALSE(found_on_copy(cpu).start_core(cpu).demotes);
    EXPECT_EQ(cpu.msrs[msr::package_cstate_control], left) << "an unknown model, a hypervisor";
  }
}

// Without ARAT the APIC timer stops in C3 and deeper states, so a core's alarm would be late.
TEST(CpuHabits, WithoutAratTheDeepestStateIsC1E) {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.leaves[{6, 0}].eax &= ~4U;
  const CpuPower power = found_on(cpu);
  EXPECT_EQ(power.abilities().idle_states, states({halt, c1, c1e, poll, monitor, menu}));
  EXPECT_EQ(power.abilities().deepest, c1e);
  EXPECT_TRUE(power.abilities().timer_stops);
  EXPECT_EQ(power.sleep_ways().plan(c6, false).way, Way::halt) << "whatever is asked";
  EXPECT_EQ(power.sleep_ways().plan_parked().hint, 0x30) << "a parked core has no alarm";
  EXPECT_FALSE(found_on_copy(test::sandy_bridge_ep()).abilities().timer_stops);

  cpu.leaves[{5, 0}].edx = 0x20;
  EXPECT_FALSE(found_on(cpu).abilities().timer_stops) << "no state was left out";

  FakeCpu old = sandy_bridge_ep();
  old.vendor("GenuineIntel", 5);
  EXPECT_TRUE(found_on(old).abilities().timer_stops) << "no leaf 6 at all";
}

TEST(CpuHabits, AMonitorThatMissesWritesNeedsInterrupts) {
  for (const std::uint8_t model : {0x5c, 0x6a, 0x6c, 0xbd}) {
    FakeCpu cpu = sandy_bridge_ep();
    cpu.model(model, test::monitor_feature);
    const CpuPower power = found_on(cpu);
    EXPECT_TRUE(power.abilities().writes_missed) << int{model};
    EXPECT_EQ(power.abilities().idle_states & states({monitor}), 0) << int{model};
    Line line;
    power.describe(line);
    EXPECT_EQ(line.text().find("monitor"), std::string_view::npos) << int{model};
    EXPECT_TRUE(power.sleep_ways().plan(c1, false).called_by_interrupt) << int{model};
    EXPECT_FALSE(power.sleep_ways().plan(c1, false).flush_line) << int{model};
  }
  for (const std::uint8_t model : {0x1d, 0x2e, 0x2f}) {
    FakeCpu cpu = sandy_bridge_ep();
    cpu.model(model, test::monitor_feature);
    const SleepPlan plan = found_on(cpu).sleep_ways().plan(c1, true);
    EXPECT_TRUE(plan.flush_line && plan.way == Way::watch && !plan.called_by_interrupt) << int{model};
  }
  FakeCpu amd = test::amd(0x000506c0);
  EXPECT_FALSE(found_on(amd).abilities().writes_missed) << "the models are Intel's";
}

// AMD's erratum 400: HLT becomes C1E, in which the timer stops.
TEST(CpuHabits, C1EOnHaltIsTurnedOffOnOldOpterons) {
  FakeCpu amd;
  amd.vendor("AuthenticAMD", 5);
  amd.leaves[{1, 0}] = {.eax = 0x00100f42, .ebx = 0, .ecx = 0, .edx = 0};  // family 10h
  amd.msrs[msr::amd_interrupt_pending] = 0x1800'0000;
  (void)found_on(amd).start_core(amd);
  EXPECT_EQ(amd.msrs[msr::amd_interrupt_pending], 0U);
  amd.leaves[{1, 0}].eax = 0x00a20f10;  // Zen 3, where this MSR is another register
  amd.msrs[msr::amd_interrupt_pending] = 0x1800'0000;
  (void)found_on_copy(amd).start_core(amd);
  EXPECT_EQ(amd.msrs[msr::amd_interrupt_pending], 0x1800'0000U);
}

}  // namespace
}  // namespace neap::x86::power
