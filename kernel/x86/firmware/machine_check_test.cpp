// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/machine_check.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernel/x86/power/fake_cpu.hpp"

namespace neap::x86::machine_check {
namespace {

using power::test::FakeCpu;
using Writes = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
constexpr std::uint64_t everything = ~std::uint64_t{0};
constexpr std::uint32_t machine_check_features = 1 << 7 | 1 << 14;

/// A Sandy Bridge with two banks, IA32_MCG_CTL, counts of corrected errors and software recovery.
FakeCpu two_banks() {
  FakeCpu cpu;
  cpu.vendor("GenuineIntel", 13);
  cpu.model(0x2d, 0);
  cpu.leaves[{1, 0}].edx = machine_check_features;
  cpu.msrs = {{0x179, 0x100'0502}, {0x17a, 0}, {0x17b, 0}};
  for (std::uint32_t number = 0x400; number < 0x408; ++number) cpu.msrs[number] = 0;
  return cpu;
}
std::string text_of(const Error& error) {
  Line line;
  error.describe(line);
  return std::string(line.text());
}

TEST(MachineCheck, AllBanksAreTurnedOn) {
  FakeCpu cpu = two_banks();
  turn_on(cpu, find_banks(cpu));
  EXPECT_EQ(cpu.writes, (Writes{{0x17b, everything}, {0x400, everything}, {0x404, everything}}));
}

TEST(MachineCheck, MissingAndPlatformBanksAreNotWritten) {
  FakeCpu cpu = two_banks();
  cpu.msrs[0x179] = 2;  // no IA32_MCG_CTL
  cpu.model(0x0f, 0);   // Core 2: bank 0's control register belongs to the platform
  cpu.leaves[{1, 0}].edx = machine_check_features;
  turn_on(cpu, find_banks(cpu));
  EXPECT_EQ(cpu.writes, (Writes{{0x404, everything}}));

  for (const std::uint32_t features : {0U, 1U << 7, 1U << 14}) {
    cpu.leaves[{1, 0}].edx = features;
    EXPECT_EQ(find_banks(cpu).count, 0U);
  }
  cpu.leaves[{1, 0}].edx = machine_check_features;
  cpu.msrs[0x179] = 0xff;
  EXPECT_EQ(find_banks(cpu).count, 32U) << "the MSRs after them have another purpose";
  cpu.msrs.clear();
  cpu.writes.clear();
  EXPECT_EQ(find_banks(cpu).count, 0U);
  turn_on(cpu, find_banks(cpu));
  EXPECT_EQ(cpu.writes, Writes{});

  FakeCpu opteron = two_banks();
  opteron.vendor("AuthenticAMD", 1);
  opteron.leaves[{1, 0}] = {.eax = 0x00000f5a, .ebx = 0, .ecx = 0, .edx = machine_check_features};
  opteron.msrs[0x179] = 5;
  for (std::uint32_t number = 0x408; number < 0x414; ++number) opteron.msrs[number] = 0;
  turn_on(opteron, find_banks(opteron));
  EXPECT_EQ(opteron.msrs[0x410], everything & ~std::uint64_t{0x400});
  EXPECT_EQ(opteron.msrs[0x40c], everything);
}

TEST(MachineCheck, AnErrorIsReadWithTheFieldsThatItsStatusMarksValid) {
  FakeCpu cpu = two_banks();
  EXPECT_FALSE(read_bank(cpu, 1).has_value());
  cpu.msrs[0x405] = 0x3e00'0000'0000'009f;  // not valid
  EXPECT_FALSE(read_bank(cpu, 1).has_value());
  cpu.msrs[0x405] = 0xfe00'0000'0000'009f;
  cpu.msrs[0x406] = 0x12345000;
  cpu.msrs[0x407] = 0x86;
  const auto error = read_bank(cpu, 1);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(text_of(*error),
            "bank 1: memory error, uncorrected, the core's state is corrupt, further errors were lost, status 0xfe0000000000009f, address "
            "0x12345000, misc 0x86");
  cpu.msrs[0x405] = 0x8000'0000'0000'0135;
  EXPECT_EQ(text_of(*read_bank(cpu, 1)), "bank 1: cache error, corrected, status 0x8000000000000135");
  clear_bank(cpu, 1);
  EXPECT_EQ(cpu.writes, (Writes{{0x405, 0}}));
}

TEST(MachineCheck, PollingTakesOnlyErrorsWithoutAnException) {
  FakeCpu cpu = two_banks();
  const Banks banks = find_banks(cpu);
  const auto taken = [&] {
    std::uint64_t corrected = 0, uncorrected = 0;
    take_silent_errors(cpu, banks, [&](const Error& error) { (error.uncorrected() ? uncorrected : corrected) += error.times(banks); });
    return std::pair{corrected, uncorrected};
  };
  cpu.msrs[0x401] = 0x8000'0140'0000'0090;  // five corrected errors
  cpu.msrs[0x405] = 0xb200'0000'0000'0175;  // uncorrected, context corrupt
  EXPECT_EQ(taken(), (std::pair<std::uint64_t, std::uint64_t>{5, 0}));
  EXPECT_EQ(cpu.msrs[0x401], 0U);
  EXPECT_EQ(cpu.msrs[0x405], 0xb200'0000'0000'0175U) << "the exception's";
  EXPECT_EQ(taken(), (std::pair<std::uint64_t, std::uint64_t>{0, 0}));
  cpu.msrs[0x405] = 0xa000'0000'0000'0090;  // not signalled, so there is no exception
  EXPECT_EQ(taken(), (std::pair<std::uint64_t, std::uint64_t>{0, 1}));
  cpu.msrs[0x405] = 0xb100'0000'0000'0090;  // signalled
  EXPECT_EQ(taken(), (std::pair<std::uint64_t, std::uint64_t>{0, 0}));
  cpu.msrs[0x405] = 0x8000'0000'0000'0090;
  EXPECT_EQ(taken().first, 1U) << "a count of 0 means one error";
}

TEST(MachineCheck, CodesHaveNames) {
  EXPECT_STREQ(kind_of(0x0005), "internal parity error");
  EXPECT_STREQ(kind_of(0x0400), "internal timer error");
  EXPECT_STREQ(kind_of(0x0405), "internal error");
  EXPECT_STREQ(kind_of(0x000f), "cache error");
  EXPECT_STREQ(kind_of(0x0014), "TLB error");
  EXPECT_STREQ(kind_of(0x1090), "memory error");
  EXPECT_STREQ(kind_of(0x0c0f), "bus or interconnect error");
  EXPECT_STREQ(kind_of(0x8000), "error");
}

// Registers may hold anything, and any access may fault.
TEST(MachineCheck, AnyContentsAreHandled) {
  std::minstd_rand random(5);
  const auto any = [&] { return std::uint64_t{random()} << 40 ^ std::uint64_t{random()} << 20 ^ random(); };
  for (int round = 0; round < 200; ++round) {
    FakeCpu cpu = two_banks();
    for (std::uint32_t number = 0x408; number < 0x480; ++number) cpu.msrs[number] = 0;
    for (auto& [number, value] : cpu.msrs) value = any();
    std::erase_if(cpu.msrs, [&](const auto&) { return random() % 8 == 0; });
    const Banks banks = find_banks(cpu);
    EXPECT_LE(banks.count, banks_max);
    turn_on(cpu, banks);
    take_silent_errors(cpu, banks, [](const Error& error) { EXPECT_FALSE(text_of(error).empty()); });
  }
}

}  // namespace
}  // namespace neap::x86::machine_check
