// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/report.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/fake_cpu.hpp"

namespace neap::x86::power {
namespace {

using namespace test;
using Lines = std::vector<std::string>;

Lines report_of(FakeCpu& cpu, const FindOptions& options = {}) {
  CpuPower power;
  power.find(cpu, options);
  Report report(cpu, power.abilities());
  Lines lines;
  for (const Line& line : report.lines()) lines.emplace_back(line.text());
  EXPECT_TRUE(cpu.writes.empty()) << "reporting writes nothing";
  return lines;
}

/// A Platinum 8160: 24 cores of two threads, 2.1 GHz, HWP on; a BIOS that locks its settings.
FakeCpu skylake_sp() {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.model(0x55, test::monitor_feature | test::speed_step_feature);
  cpu.leaves[{5, 0}].edx = 0x2020;
  cpu.leaves[{6, 0}].eax = 0x77 | 1 << 7 | 1 << 10;
  cpu.leaves[{10, 0}] = {.eax = 0x07300804, .ebx = 0, .ecx = 0, .edx = 0x603};
  cpu.leaves[{0x0b, 0}] = {.eax = 1, .ebx = 2, .ecx = 0x100, .edx = 0};
  cpu.leaves[{0x0b, 1}] = {.eax = 6, .ebx = 48, .ecx = 0x201, .edx = 0};
  cpu.msrs[msr::turbo_ratio_limit] = 0x1c1c'1f20'2123'2525;
  cpu.msrs[msr::turbo_group_sizes] = 0x1818'1410'0c08'0402;
  cpu.msrs[msr::hwp_enable] = 1;
  cpu.msrs[msr::hwp_capabilities] = 0x08'0a'15'25;
  cpu.msrs[msr::hwp_request] = 0x8000'2508;
  cpu.msrs[msr::package_power_limit] |= power_limit_lock;
  cpu.msrs[msr::dram_power_limit] = 0x8000'0000 | 1 << 15 | 8 * 40;
  cpu.msrs[msr::package_cstate_control] = 0x8403;
  return cpu;
}

TEST(Report, DescribesASandyBridge) {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.msrs[msr::package_cstate_control] = 0x1e000407;
  cpu.msrs[msr::cores_power_limit] = 1 << 16;
  EXPECT_EQ(report_of(cpu),
            (Lines{
                "power: wake-up times, from the table: 2 us from c1, 10 us from c1e, 80 us from c3, 104 us from c6, 109 us from c7",
                "power: turbo ratio 38 to 3 cores, 37 to 4 cores, 36 to 5 cores, 35 to 6 cores, 34 to 7 cores, 33 to 8 cores",
                "power: firmware's limits: package 135 W, short-term 162 W; cores none; package C-state limit the deepest",
                "power: firmware lets the CPU demote C-states: to C3, to C1, with undemotion",
                "power: performance counters version 3, 4 of 48 bits and 3 fixed of 48",
            }));
}

TEST(Report, DescribesLocksGroupsHwpAndThreads) {
  FakeCpu cpu = skylake_sp();
  EXPECT_EQ(
      report_of(cpu),
      (Lines{
          "power: wake-up times, from the table: 2 us from c1, 10 us from c1e, 133 us from c6",
          "power: HWP is on, its performance 8 lowest, 10 efficient, 21 guaranteed, 37 highest; energy preference 128 of 255",
          "power: turbo ratio 37 to 4 cores, 35 to 8 cores, 33 to 12 cores, 32 to 16 cores, 31 to 20 cores, 28 to 24 cores",
          "power: firmware's limits: package 135 W, short-term 162 W, locked; DRAM 40 W, locked; package C-state limit C6, locked",
          "power: performance counters version 4, 8 of 48 bits and 3 fixed of 48, 2 threads of a core share its frequency and C-state",
      }));
  cpu.msrs[msr::hwp_enable] = 0;
  cpu.msrs.erase(msr::hwp_capabilities);
  EXPECT_EQ(report_of(cpu)[1], "power: HWP is available but off");
}

TEST(Report, SaysWhichWakeUpTimesWereMeasured) {
  FakeCpu cpu = sandy_bridge_ep();
  EXPECT_EQ(report_of(cpu, {.wake_up_us = {0, 3, 0, 0, 41, 0}})[0],
            "power: wake-up times, measured: 3 us from c1, 41 us from c6; from the table: 10 us from c1e, 80 us from c3, 109 us from c7");
  EXPECT_EQ(report_of(cpu, {.wake_up_us = {0, 3, 4, 5, 6, 7}})[0],
            "power: wake-up times, measured: 3 us from c1, 4 us from c1e, 5 us from c3, 6 us from c6, 7 us from c7");
  cpu.model(0x97, test::monitor_feature);  // in no table
  EXPECT_EQ(report_of(cpu, {.wake_up_us = {0, 3, 0, 0, 41, 0}})[0], "power: wake-up times, measured: 3 us from c1, 41 us from c6");
}

TEST(Report, ExplainsWhyStatesAreLeftOut) {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.leaves[{6, 0}].eax &= ~4U;
  EXPECT_EQ(report_of(cpu)[1],
            "power: this CPU's APIC timer stops in C3 and deeper (no ARAT in CPUID leaf 6), so only parked cores use them");
  FakeCpu ice_lake = skylake_sp();
  ice_lake.model(0x6a, test::monitor_feature | test::speed_step_feature);
  EXPECT_EQ(report_of(ice_lake)[1],
            "power: this CPU's MONITOR may miss a write (erratum): cores are woken by interrupts, and idle=monitor is not available");
}

// If two public sources differ on a code's meaning, the code is printed without a name.
TEST(Report, APackageLimitOfUnknownMeaningIsACode) {
  FakeCpu cpu = sandy_bridge_ep();
  cpu.model(0x3f, test::monitor_feature);
  cpu.msrs[msr::package_cstate_control] = 0x8002;
  EXPECT_TRUE(report_of(cpu)[2].ends_with("; package C-state limit code 2, locked")) << report_of(cpu)[2];
}

TEST(Report, AnEmulatedCpuHasNoLines) {
  for (const char* vendor : {"GenuineIntel", "AuthenticAMD"}) {
    FakeCpu cpu = emulated(vendor);
    EXPECT_EQ(report_of(cpu), Lines{});
  }
}

TEST(Report, FaultingRegistersAreLeftOut) {
  FakeCpu cpu = skylake_sp();
  cpu.msrs.clear();
  cpu.leaves.erase({0x0b, 0});
  EXPECT_EQ(report_of(cpu), (Lines{
                                "power: wake-up times, from the table: 2 us from c1, 10 us from c1e, 133 us from c6",
                                "power: HWP is available but off",
                                "power: performance counters version 4, 8 of 48 bits and 3 fixed of 48",
                            }));
}

// Under a hypervisor the MSRs are not the machine's, so the report has only facts from CPUID.
TEST(Report, UnderAHypervisorMsrsAreNotRead) {
  FakeCpu cpu = skylake_sp();
  cpu.model(0x55, test::monitor_feature | test::speed_step_feature | test::hypervisor_feature);
  for (const std::string& line : report_of(cpu)) {
    EXPECT_EQ(line.find("limits"), std::string::npos) << line;
    EXPECT_EQ(line.find("turbo"), std::string::npos) << line;
    EXPECT_EQ(line.find("HWP"), std::string::npos) << line;
  }
}

// Registers may hold any value on an unknown machine.
TEST(Report, AnyContentsAreHandled) {
  std::minstd_rand random(7);
  const auto any = [&] { return static_cast<std::uint64_t>(random()) << 40 ^ static_cast<std::uint64_t>(random()) << 20 ^ random(); };
  const auto word = [&] { return static_cast<std::uint32_t>(any()); };
  for (int round = 0; round < 100; ++round) {
    FakeCpu cpu = skylake_sp();
    cpu.model(static_cast<std::uint8_t>(random()), test::monitor_feature | test::speed_step_feature);
    for (auto& [number, value] : cpu.msrs) value = any();
    for (auto& [place, words] : cpu.leaves) {
      if (place.first == 6 || place.first == 10 || place.first == 0x0b)
        words = {.eax = word(), .ebx = word(), .ecx = word(), .edx = word()};
    }
    for (const std::string& line : report_of(cpu)) {
      EXPECT_TRUE(line.starts_with("power: ")) << line;
      EXPECT_GT(line.size(), 12U) << line;
    }
  }
}

}  // namespace
}  // namespace neap::x86::power
