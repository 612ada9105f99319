// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/machine/registers.hpp"

namespace neap::model {

namespace {

// Fixed units of MSR_RAPL_POWER_UNIT: 1/8 W and 2^-10 s (SDM 3B 15.10.1).
constexpr unsigned power_unit_exponent = 3, time_unit_exponent = 10;
constexpr std::uint64_t limit_watts_mask = 0x7fff, limit_enabled = 1 << 15;
constexpr std::uint64_t turbo_off_bit = std::uint64_t{1} << 38;  // IA32_MISC_ENABLE
constexpr std::uint64_t writable_limit_bits = 0x00ff'ffff'00ff'ffff;
// Thermal registers: 50 degrees below the point at which the CPU slows down, always. Temperature is not modelled.
constexpr std::uint64_t degrees_below_limit = 50 << 16, reading_valid = std::uint64_t{1} << 31, limit_celsius = 95 << 16;

std::uint64_t power_units(double watts) { return static_cast<std::uint64_t>(std::lround(watts * (1 << power_unit_exponent))); }

/// A time window is 2^Y * (1 + Z/4) units, Y in bits 21:17, Z in bits 23:22 (15.10.3).
double window_seconds(std::uint64_t limit) {
  return std::ldexp(1 + static_cast<double>(limit >> 22 & 3) / 4,
                    static_cast<int>(limit >> 17 & 0x1f) - static_cast<int>(time_unit_exponent));
}

/// PL1 at the thermal design power, PL2 a fifth above it, over 10 and 3 units (9.8 and 2.9 ms), both on and clamping. The firmware of the
/// ancestor's E5-2630 v3 had set them so (handong32/cloudlab, folder baremetal_ebbrt/c220g1); of other CPUs it is assumed.
std::uint64_t power_limit_at_reset(const CpuModel& cpu) {
  constexpr std::uint64_t ten_units = 3 << 17 | 1 << 22, three_units = 1 << 17 | 2 << 22;
  constexpr std::uint64_t on = limit_enabled | 1 << 16;
  return power_units(cpu.tdp_w) | on | ten_units | (power_units(cpu.tdp_w * 1.2) | on | three_units) << 32;
}

std::uint64_t power_limit_of(const Package& package) {
  const std::uint64_t written = package.registers_of_package.power_limit;
  return written != 0 ? written : power_limit_at_reset(package.cpu());
}

// Each byte is the ratio for one number of active cores: 1 to 8 here, more in 1AEh and 1AFh. On models with HWP, 1AEh holds group sizes
// instead.
std::uint64_t turbo_ratios(const CpuModel& cpu, unsigned first, unsigned step) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{cpu.turbo_ratio(first + (i + 1) * step)} << (8 * i);
  return value;
}
unsigned group_size(const CpuModel& cpu) { return std::max(1U, cpu.package_cores / 8); }
std::uint64_t group_sizes(const CpuModel& cpu) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{(i + 1) * group_size(cpu)} << (8 * i);
  return value;
}

std::uint64_t platform_info(const CpuModel& cpu) {
  constexpr std::uint64_t programmable_turbo = 1 << 28, programmable_tdp = 1 << 29;
  return std::uint64_t{cpu.base_ratio} << 8 | programmable_turbo | programmable_tdp | std::uint64_t{cpu.min_ratio} << 40;
}

/// The ratio in bits 15:8; the voltage in bits 47:32, in units of 2^-13 V (volume 4, table 2-20).
std::uint64_t perf_status(const Package& package, unsigned core) {
  const unsigned ratio = package.clock(core).ratio();
  return std::uint64_t{ratio} << 8 | static_cast<std::uint64_t>(package.cpu().volts(ratio) * 8192) << 32;
}

bool read_frequency(Package& package, unsigned core, std::uint32_t number, std::uint64_t& value) {
  const CpuModel& cpu = package.cpu();
  const Executed executed = package.executed(core);
  const CoreRegisters& own = package.registers(core);
  switch (number) {
    case time_stamp_counter_msr:
      value = package.tsc(package.now(core));
      return true;
    case 0xce:
      value = platform_info(cpu);
      return true;
    case 0xe7:  // IA32_MPERF, IA32_APERF (15.2)
      value = executed.reference_cycles + own.mperf_offset;
      return true;
    case 0xe8:
      value = executed.core_cycles + own.aperf_offset;
      return true;
    case 0x198:
      value = perf_status(package, core);
      return true;
    case 0x199:
      value = package.requests().perf_ctl(core);
      return true;
    case 0x19a:
      value = own.clock_modulation;
      return true;
    case 0x19c:
    case 0x1b1:
      value = reading_valid | degrees_below_limit;
      return true;
    case 0x1a0:
      value = package.registers_of_package.misc_enable;
      return true;
    case 0x1a2:
      value = limit_celsius;
      return true;
    case 0x1ad:
      value = cpu.hwp ? turbo_ratios(cpu, 0, group_size(cpu)) : turbo_ratios(cpu, 0, 1);
      return true;
    case 0x1ae:
      value = cpu.hwp ? group_sizes(cpu) : cpu.package_cores > 8 ? turbo_ratios(cpu, 8, 1) : 0;
      return true;
    case 0x1b0:
      value = own.energy_bias;
      return true;
    default:
      return false;
  }
}

// 15.4: IA32_PM_ENABLE, IA32_HWP_CAPABILITIES, IA32_HWP_REQUEST, IA32_HWP_STATUS.
bool read_hwp(const Package& package, unsigned core, std::uint32_t number, std::uint64_t& value) {
  const CpuModel& cpu = package.cpu();
  if (!cpu.hwp) return false;
  switch (number) {
    case 0x770:
      value = 1;
      return true;
    case 0x771:
      value = std::uint64_t{cpu.min_ratio} << 24 | std::uint64_t{cpu.efficient_ratio} << 16 | std::uint64_t{cpu.base_ratio} << 8 |
              cpu.highest_ratio();
      return true;
    case 0x774:
      value = package.requests().hwp_request(core);
      return true;
    case 0x777:
      value = 0;
      return true;
    default:
      return false;
  }
}

bool read_energy(Package& package, unsigned core, std::uint32_t number, std::uint64_t& value) {
  const CpuModel& cpu = package.cpu();
  const PackageRegisters& shared = package.registers_of_package;
  const Ticks now = package.now(core);
  switch (number) {
    case 0x606:
      value = power_unit_exponent | cpu.energy_unit_exponent << 8 | time_unit_exponent << 16;
      return true;
    case 0x610:
      value = power_limit_of(package);
      return true;
    case 0x611:
      value = package.package_counter.read(package.package_joules(now), cpu.energy_unit_exponent);
      return true;
    case 0x614:
      value = power_units(cpu.tdp_w) | power_units(cpu.power_min_w) << 16 | power_units(cpu.power_max_w) << 32;
      return true;
    case 0x618:
      value = shared.dram_limit;
      return true;
    case 0x619:
      value = package.dram_counter.read(package.dram_joules(now), cpu.dram_unit_exponent);
      return true;
    case 0x613:
    case 0x61b:
    case 0x61c:
      value = 0;  // no time below the requested frequency is reported
      return true;
    case 0x638:
      value = shared.cores_limit;
      return true;
    case 0x639:
      value = package.cores_counter.read(package.cores_joules(now), cpu.energy_unit_exponent);
      return true;
    case 0x63a:
      value = shared.cores_policy;
      return true;
    default:
      return false;
  }
}

bool read_sleep(const Package& package, unsigned core, std::uint32_t number, std::uint64_t& value) {
  const Ticks now = package.now(core);
  const auto core_residency = [&](State state) { return package.tsc(package.core_residency(core, state, now)); };
  const auto package_residency = [&](PackageState state) { return package.tsc(package.package_residency(state, now)); };
  switch (number) {
    case 0xe2:
      value = package.registers_of_package.cstate_control;
      return true;
    case 0x1fc:
      value = package.registers_of_package.power_ctl;
      return true;
    case 0x3f8:
      value = package_residency(PackageState::pc3);
      return true;
    case 0x3f9:
      value = package_residency(PackageState::pc6);
      return true;
    case 0x3fa:
      value = package_residency(PackageState::pc7);
      return true;
    case 0x3fc:
      value = core_residency(State::c3);
      return true;
    case 0x3fd:
      value = core_residency(State::c6);
      return true;
    case 0x3fe:
      value = core_residency(State::c7);
      return true;
    case 0x60d:
      value = package_residency(PackageState::pc2);
      return true;
    default:
      return false;
  }
}

constexpr bool in_range(std::uint32_t number, std::uint32_t first, unsigned count) { return number >= first && number < first + count; }

bool read_counters(Package& package, unsigned core, std::uint32_t number, std::uint64_t& value) {
  const Counters& counters = package.counters(core);
  const unsigned general = counters.general_counters();
  const ExecutedByLevel now = package.executed_by_level(core);
  constexpr std::uint64_t full_width_writes = 1 << 13;
  if (in_range(number, 0xc1, general)) {
    value = counters.general(number - 0xc1, now);
  } else if (in_range(number, 0x4c1, general)) {
    value = counters.general(number - 0x4c1, now);
  } else if (in_range(number, 0x186, general)) {
    value = counters.event_select(number - 0x186);
  } else if (in_range(number, 0x309, Counters::fixed_counters)) {
    value = counters.fixed(number - 0x309, now);
  } else if (number == 0x345) {  // IA32_PERF_CAPABILITIES (20.8)
    value = full_width_writes;
  } else if (number == 0x38d) {
    value = counters.fixed_control();
  } else if (number == 0x38e || number == 0x390) {  // IA32_PERF_GLOBAL_STATUS and its reset: no overflow is reported
    value = 0;
  } else if (number == 0x38f) {
    value = counters.global_control();
  } else {
    return false;
  }
  return true;
}

bool write_counters(Package& package, unsigned core, std::uint32_t number, std::uint64_t value) {
  Counters& counters = package.counters(core);
  const unsigned general = counters.general_counters();
  const ExecutedByLevel now = package.executed_by_level(core);
  if (in_range(number, 0xc1, general)) {  // bits 31:0, sign-extended (20.2.8)
    counters.set_general(number - 0xc1, static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value))), now);
  } else if (in_range(number, 0x4c1, general)) {
    counters.set_general(number - 0x4c1, value, now);
  } else if (in_range(number, 0x186, general)) {
    counters.set_event_select(number - 0x186, value, now);
  } else if (in_range(number, 0x309, Counters::fixed_counters)) {
    counters.set_fixed(number - 0x309, value, now);
  } else if (number == 0x38d) {
    counters.set_fixed_control(value, now);
  } else if (number == 0x38f) {
    counters.set_global_control(value, now);
  } else {
    return number == 0x38e || number == 0x390;
  }
  return true;
}

}  // namespace

bool read_msr(Package& package, unsigned core, std::uint32_t number, std::uint64_t& value) noexcept {
  return read_frequency(package, core, number, value) || read_hwp(package, core, number, value) ||
         read_energy(package, core, number, value) || read_sleep(package, core, number, value) ||
         read_counters(package, core, number, value);
}

bool write_msr(Package& package, unsigned core, std::uint32_t number, std::uint64_t value) noexcept {
  PackageRegisters& shared = package.registers_of_package;
  CoreRegisters& own = package.registers(core);
  const Executed executed = package.executed(core);
  switch (number) {
    case 0xe2:
      shared.cstate_control = value;
      return true;
    case 0xe7:
      own.mperf_offset = value - executed.reference_cycles;
      return true;
    case 0xe8:
      own.aperf_offset = value - executed.core_cycles;
      return true;
    case 0x199:
      package.set_perf_ctl(core, value);
      return true;
    case 0x19a:
      own.clock_modulation = value;  // kept, without effect
      return true;
    case 0x1a0:
      shared.misc_enable = value;
      package.set_turbo_off(core, (value & turbo_off_bit) != 0);
      return true;
    case 0x1b0:
      own.energy_bias = value & 0xf;
      return true;
    case 0x1fc:
      shared.power_ctl = value;
      return true;
    case 0x610:
      shared.power_limit = value & writable_limit_bits;
      package.set_power_limit(core, (value & limit_enabled) != 0,
                              static_cast<double>(value & limit_watts_mask) / (1 << power_unit_exponent), window_seconds(value));
      return true;
    case 0x618:
      shared.dram_limit = value;
      return true;
    case 0x638:
      shared.cores_limit = value;
      return true;
    case 0x63a:
      shared.cores_policy = value;
      return true;
    case 0x774:
      if (!package.cpu().hwp) return false;
      package.set_hwp_request(core, value);
      return true;
    case 0x770:
    case 0x777:
      return package.cpu().hwp;
    default:
      return write_counters(package, core, number, value);
  }
}

bool read_counter(Package& package, unsigned core, std::uint32_t selector, std::uint64_t& value) noexcept {
  constexpr std::uint32_t fixed_counter = 1U << 30;
  const unsigned counter = selector & ~fixed_counter;
  const Counters& counters = package.counters(core);
  if ((selector & fixed_counter) != 0) {
    if (counter >= Counters::fixed_counters) return false;
    value = counters.fixed(counter, package.executed_by_level(core));
  } else {
    if (counter >= counters.general_counters()) return false;
    value = counters.general(counter, package.executed_by_level(core));
  }
  return true;
}

}  // namespace neap::model
