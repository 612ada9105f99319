// SPDX-License-Identifier: BSL-1.0
// A CPU for tests: CPUID leaves and MSRs in tables. An MSR that is not in the table faults, as on a CPU. Writes are recorded in order.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/encodings.hpp"

namespace neap::x86::power::test {

class FakeCpu final : public CpuAccess {
 public:
  [[nodiscard]] CpuidWords cpuid(std::uint32_t leaf, std::uint32_t subleaf) noexcept override {
    const auto found = leaves.find({leaf, subleaf});
    return found == leaves.end() ? CpuidWords{} : found->second;
  }
  [[nodiscard]] Result<std::uint64_t> read_msr(std::uint32_t msr) noexcept override {
    const auto found = msrs.find(msr);
    if (found == msrs.end()) return failure(ErrorCode::unsupported, "reading this MSR faults", msr);
    return found->second;
  }
  [[nodiscard]] Result<void> write_msr(std::uint32_t msr, std::uint64_t value) noexcept override {
    const auto found = msrs.find(msr);
    if (found == msrs.end()) return failure(ErrorCode::unsupported, "writing this MSR faults", msr);
    writes.emplace_back(msr, value);
    if (!swallows.contains(msr)) found->second = value;
    return {};
  }

  void vendor(std::string_view name, std::uint32_t largest_leaf) {
    const auto word = [&](std::size_t at) {
      std::uint32_t value = 0;
      for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<std::uint8_t>(name[at + i])} << (8 * i);
      return value;
    };
    leaves[{0, 0}] = {.eax = largest_leaf, .ebx = word(0), .ecx = word(8), .edx = word(4)};
  }
  /// Sets leaf 1 for a CPU of family 6; `features` is ECX.
  void model(std::uint8_t number, std::uint32_t features) {
    leaves[{1, 0}] = {.eax = (number & 15U) << 4 | (number >> 4U) << 16 | 6U << 8, .ebx = 0, .ecx = features, .edx = 0};
  }

  /// Sets leaves 0x80000002 to 0x80000004, the brand string.
  void name(std::string text) {
    text.resize(48, '\0');
    leaves[{0x80000000, 0}] = {.eax = 0x80000008};
    for (std::uint32_t i = 0; i < 3; ++i)
      std::memcpy(&leaves[{0x80000002 + i, 0}], text.data() + i * sizeof(CpuidWords), sizeof(CpuidWords));
  }

  std::map<std::pair<std::uint32_t, std::uint32_t>, CpuidWords> leaves;
  std::map<std::uint32_t, std::uint64_t> msrs;
  std::set<std::uint32_t> swallows;  ///< writes to these have no effect, as with some hypervisors
  using Writes = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
  Writes writes;
};

constexpr std::uint32_t monitor_feature = 1 << 3, speed_step_feature = 1 << 7, hypervisor_feature = 1U << 31;

/// An E5-2690: eight cores, 2.9 GHz, turbo 3.8 GHz.
inline FakeCpu sandy_bridge_ep() {
  FakeCpu cpu;
  cpu.vendor("GenuineIntel", 13);
  cpu.model(0x2d, monitor_feature | speed_step_feature);
  cpu.leaves[{5, 0}] = {.eax = 64, .ebx = 64, .ecx = 3, .edx = 0x00021120};
  cpu.leaves[{6, 0}] = {.eax = 0x77, .ebx = 2, .ecx = 9, .edx = 0};
  cpu.leaves[{10, 0}] = {.eax = 0x07300403, .ebx = 0, .ecx = 0, .edx = 0x603};
  cpu.leaves[{0x80000000, 0}] = {.eax = 0x80000008};
  cpu.msrs = {{msr::platform_info, 0x0000'0c00'7001'1d00},
              {msr::turbo_ratio_limit, 0x2122'2324'2526'2626},
              {msr::perf_ctl, 0x1d00},
              {msr::misc_enable, 0x85'0089},
              {msr::power_ctl, 0x14'005b},
              {msr::rapl_power_unit, 0xa1003},
              {msr::package_power_limit, 0x0007'8510'0014'8438},
              {msr::package_power_info, 0x0000'0640'0198'0410},
              {msr::package_energy, 0xffff'fff0},
              {msr::dram_energy, 0x1234},
              {msr::perf_global_control, 0},
              {msr::fixed_counter_control, 0},
              {msr::perf_event_select0, 0},
              {msr::pmc0, 77},
              {msr::fixed_counter0, 1},
              {msr::fixed_counter1, 2},
              {msr::fixed_counter2, 3},
              {msr::core_c3_residency, 103},
              {msr::core_c6_residency, 106},
              {msr::core_c7_residency, 107},
              {msr::package_c2_residency, 202},
              {msr::package_c3_residency, 203},
              {msr::package_c6_residency, 206},
              {msr::package_c7_residency, 207}};
  return cpu;
}

/// An AMD CPU with MONITOR and C1; `signature`: EAX of leaf 1.
inline FakeCpu amd(std::uint32_t signature) {
  FakeCpu cpu;
  cpu.vendor("AuthenticAMD", 13);
  cpu.leaves[{1, 0}] = {.eax = signature, .ebx = 0, .ecx = monitor_feature, .edx = 0};
  cpu.leaves[{5, 0}] = {.eax = 64, .ebx = 64, .ecx = 3, .edx = 0x11};
  return cpu;
}

/// QEMU's emulator: MONITOR is there, leaf 5 lists no state, MSRs read as zero and take writes without effect.
inline FakeCpu emulated(std::string_view vendor) {
  FakeCpu cpu;
  cpu.vendor(vendor, 13);
  cpu.model(0x06, monitor_feature | hypervisor_feature);
  cpu.leaves[{5, 0}] = {.eax = 0, .ebx = 0, .ecx = 3, .edx = 0};
  cpu.leaves[{6, 0}] = {.eax = 4};
  cpu.leaves[{0x40000000, 0}] = {.eax = 0x40000001, .ebx = 0x54474354, .ecx = 0x43544743, .edx = 0x47435447};
  for (const auto& [number, value] : sandy_bridge_ep().msrs) {
    cpu.msrs[number] = 0;
    cpu.swallows.insert(number);
  }
  cpu.msrs[msr::misc_enable] = 1;
  return cpu;
}

inline CpuPower found_on(FakeCpu& cpu) {
  const std::size_t before = cpu.writes.size();
  CpuPower power;
  power.find(cpu);
  EXPECT_EQ(cpu.writes.size(), before) << "finding abilities writes nothing";
  return power;
}

constexpr std::uint16_t states(std::initializer_list<IdleState> list) {
  std::uint16_t mask = 0;
  for (const IdleState state : list) mask |= static_cast<std::uint16_t>(1 << static_cast<unsigned>(state));
  return mask;
}

}  // namespace neap::x86::power::test
