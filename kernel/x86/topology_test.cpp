// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/topology.hpp"

#include <gtest/gtest.h>

#include "kernel/x86/power/fake_cpu.hpp"

namespace neap::x86 {
namespace {

using power::test::FakeCpu;

TEST(Topology, FollowsTheLevelsOfLeafEleven) {
  FakeCpu cpu;
  cpu.leaves[{0, 0}] = {.eax = 0x0b};
  cpu.leaves[{0x0b, 0}] = {.eax = 1, .ebx = 2, .ecx = 0x100};
  cpu.leaves[{0x0b, 1}] = {.eax = 5, .ebx = 16, .ecx = 0x201};
  EXPECT_EQ(find_topology(cpu).thread_bits, 1U);
  EXPECT_EQ(find_topology(cpu).package_shift, 5U);
}

TEST(Topology, OfAnOlderCpuFollowsLeavesOneAndFour) {
  FakeCpu cpu;
  cpu.leaves[{0, 0}] = {.eax = 4};
  cpu.leaves[{1, 0}] = {.ebx = 16U << 16, .edx = 1U << 28};
  cpu.leaves[{4, 0}] = {.eax = 7U << 26 | 1};
  EXPECT_EQ(find_topology(cpu).thread_bits, 1U);
  EXPECT_EQ(find_topology(cpu).package_shift, 4U);
}

TEST(Topology, WithoutAnyInformationEachPackageHasOneThread) {
  FakeCpu cpu;
  cpu.leaves[{0, 0}] = {.eax = 1};
  EXPECT_EQ(find_topology(cpu).thread_bits, 0U);
  EXPECT_EQ(find_topology(cpu).package_shift, 0U);
}

}  // namespace
}  // namespace neap::x86
