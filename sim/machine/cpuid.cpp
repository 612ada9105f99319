// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <array>

#include "sim/machine/registers.hpp"

namespace neap::model {

namespace {

constexpr std::uint32_t bit(unsigned number) { return std::uint32_t{1} << number; }

// Leaf 5: lines of 64 bytes; extensions, and interrupts that end MWAIT while they are disabled. EDX counts each C-state's sub-states in
// four bits; a hint's bits 7:4 are the C-state less one.
CpuidWords monitor_leaf(const CpuModel& cpu) {
  std::array<std::uint32_t, 8> sub_states{};
  for (const SleepState& state : cpu.sleep) {
    if (!state.present) continue;
    std::uint32_t& count = sub_states[std::min(7U, (state.hint >> 4) + 1U)];
    count = std::max(count, (state.hint & 0xfU) + 1);
  }
  CpuidWords words{.eax = 64, .ebx = 64, .ecx = 3, .edx = 0};
  for (unsigned i = 0; i < sub_states.size(); ++i) words.edx |= sub_states[i] << (4 * i);
  return words;
}

// Leaf 6: thermal sensor, turbo, ARAT; HWP with activity window and energy preference; APERF and MPERF, energy bias.
CpuidWords power_leaf(const Package& package) {
  constexpr std::uint64_t turbo_off = std::uint64_t{1} << 38;
  const bool turbo = (package.registers_of_package.misc_enable & turbo_off) == 0;
  CpuidWords words{.eax = bit(0) | bit(2), .ebx = 2, .ecx = bit(0) | bit(3), .edx = 0};
  if (turbo) words.eax |= bit(1);
  if (package.cpu().hwp) words.eax |= bit(7) | bit(9) | bit(10);
  return words;
}

// Leaf 0Ah: version 3. EBX marks architectural events as absent: all but core cycles, instructions and reference cycles (bits 0 to 2).
CpuidWords counter_leaf(const CpuModel& cpu) {
  constexpr std::uint32_t version = 3, events = 7, absent_events = 0b111'1000;
  return {.eax = version | cpu.general_counters << 8 | Counters::bits << 16 | events << 24,
          .ebx = absent_events,
          .ecx = 0,
          .edx = Counters::fixed_counters | Counters::bits << 5};
}

}  // namespace

void change_cpuid(const Package& package, std::uint32_t leaf, CpuidWords& words) noexcept {
  const CpuModel& cpu = package.cpu();
  switch (leaf) {
    case 1:
      words.ecx |= bit(7) | bit(15);  // SpeedStep, IA32_PERF_CAPABILITIES
      break;
    case 5:
      words = monitor_leaf(cpu);
      break;
    case 6:
      words = power_leaf(package);
      break;
    case 0x0a:
      words = counter_leaf(cpu);
      break;
    case model_machine_leaf:
      words = {.eax = 1, .ebx = 0x7061654e, .ecx = 0x65646f6d, .edx = 0x64656c6c};  // version 1, "Neapmodelled"
      break;
    case 0x80000007:
      words.edx |= bit(8);  // the TSC runs at a constant rate in all states
      break;
    default:
      break;
  }
}

}  // namespace neap::model
