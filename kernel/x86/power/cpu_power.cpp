// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/cpu_power.hpp"

#include <algorithm>
#include <array>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap::x86::power {

namespace {

bool is_tcg(CpuAccess& cpu) noexcept {
  const CpuidWords words = cpu.cpuid(0x40000000, 0);
  return words.ebx == 0x54474354 && words.ecx == 0x43544743 && words.edx == 0x47435447;  // "TCGTCGTCGTCG"
}

Result<void> change_msr(CpuAccess& cpu, std::uint32_t number, std::uint64_t clear, std::uint64_t set) noexcept {
  const auto before = cpu.read_msr(number);
  if (!before) return std::unexpected(before.error());
  const std::uint64_t after = (*before & ~clear) | set;
  return after == *before ? Result<void>{} : cpu.write_msr(number, after);
}

/// Returns false if the CPU continues to demote C-states. A locked register is written, too, because its lock does not cover these bits.
bool turn_off_demotion(CpuAccess& cpu, std::uint64_t demotion) noexcept {
  if (demotion == 0) return true;
  const auto before = cpu.read_msr(msr::package_cstate_control);
  if (!before || (*before & demotion) == 0) return true;
  (void)cpu.write_msr(msr::package_cstate_control, *before & ~demotion);
  return (cpu.read_msr(msr::package_cstate_control).value_or(0) & demotion) == 0;
}

}  // namespace

void CpuPower::find(CpuAccess& cpu, FindOptions options) noexcept {
  const Identity identity{cpu_facts::identify(cpu), cpu.cpuid(0, 0).eax, cpu.cpuid(1, 0)};
  model_ = identity.intel ? find_model(identity.family, identity.model) : nullptr;
  static_assert(sizeof abilities_.cpu == sizeof identity.name);
  std::ranges::copy(identity.name, abilities_.cpu);
  find_idle_states(cpu, identity, options);
  find_demotion(identity, options.keep_demotion);
  find_performance(cpu, identity);
  find_turbo(cpu, identity);
  find_rapl(cpu, identity);
  find_counters(cpu, identity);
  find_residencies(cpu, identity);
}

// A hypervisor may pass MWAIT through but show an empty leaf 5, as KVM does for a guest. The boot option `mwait=assumed` covers that case.
// All states of a known model then count as listed. For an unknown model, only C1 counts as listed.
void CpuPower::find_idle_states(CpuAccess& cpu, const Identity& identity, const FindOptions& options) noexcept {
  const auto add = [this](IdleState state) { abilities_.idle_states |= static_cast<std::uint16_t>(1 << static_cast<unsigned>(state)); };
  ways_.hints.fill(no_hint);
  add(IdleState::poll);
  constexpr std::uint64_t monitor_bit = bit(3);
  if ((identity.leaf1.ecx & monitor_bit) == 0 || identity.largest_leaf < 5) return;
  const CpuidWords leaf5 = cpu.cpuid(5, 0);
  const Hints known = model_ != nullptr ? model_->hints : usual_hints(identity.intel);
  const auto is_there = [&](IdleState state, std::uint8_t hint) {
    return hint_is_listed(hint, leaf5.edx) || (options.assume_mwait && (model_ != nullptr || state == IdleState::c1));
  };
  for (const IdleState state : {IdleState::c1, IdleState::c1e, IdleState::c3, IdleState::c6, IdleState::c7}) {
    const std::uint8_t hint = known[static_cast<unsigned>(state)];
    if (hint != no_hint && is_there(state, hint)) ways_.hints[static_cast<unsigned>(state)] = hint;
  }
  // An MWAIT for which CPUID lists no state cannot sleep: a hypervisor or QEMU's emulator handles it.
  const std::uint8_t c1_hint = known[static_cast<unsigned>(IdleState::c1)];
  mwait_lack_ = identity.hypervisor && is_tcg(cpu)    ? MwaitLack::emulated
                : !hint_is_listed(c1_hint, leaf5.edx) ? MwaitLack::no_states
                                                      : MwaitLack::none;
  ways_.mwait_returns_at_once = mwait_lack_ == MwaitLack::emulated;
  if (mwait_lack_ != MwaitLack::none) {
    if (!options.assume_mwait) {
      ways_.hints.fill(no_hint);
      return;
    }
    mwait_lack_ = MwaitLack::assumed_none;
  }
  ways_.mwait_sleeps = abilities_.mwait_sleeps = true;
  if (identity.intel) ways_.errata = monitor_errata(static_cast<std::uint8_t>(identity.family), static_cast<std::uint8_t>(identity.model));
  abilities_.writes_missed = ways_.errata.writes_missed;
  if (!abilities_.writes_missed) add(IdleState::monitor);
  leave_out_states_without_timer(cpu, identity);
  for (const IdleState state : {IdleState::c1, IdleState::c1e, IdleState::c3, IdleState::c6, IdleState::c7}) {
    if (ways_.hints[static_cast<unsigned>(state)] == no_hint) continue;
    add(state);
    abilities_.deepest = state;
    const auto index = static_cast<unsigned>(state);
    if (model_ != nullptr) abilities_.wake_us[index] = model_->wake_us[index];
    if (options.wake_up_us[index] == 0) continue;
    abilities_.wake_us[index] = options.wake_up_us[index];
    abilities_.wake_us_measured |= static_cast<std::uint16_t>(1U << index);
  }
  const auto timed = abilities_.wake_us.size() - static_cast<std::size_t>(std::ranges::count(abilities_.wake_us, 0));
  if (abilities_.wake_us[static_cast<unsigned>(IdleState::c1)] != 0 && timed >= 2) add(IdleState::menu);  // a choice needs two
  c1e_promotion_ = model_ != nullptr && !identity.hypervisor && ways_.hints[static_cast<unsigned>(IdleState::c1e)] != no_hint;
}

// If CPUID does not report that the APIC's timer keeps running (ARAT: leaf 6, EAX bit 2), the timer stops in C3 and deeper. That holds in
// TSC-deadline mode, too (SDM 3A, 11.5.4). The alarm uses that timer. So only a parked core, which runs no events and has no alarm, sleeps
// deeper than C1E.
void CpuPower::leave_out_states_without_timer(CpuAccess& cpu, const Identity& identity) noexcept {
  for (const std::uint8_t hint : ways_.hints) {
    if (hint != no_hint && (ways_.parked_hint == no_hint || hint > ways_.parked_hint)) ways_.parked_hint = hint;
  }
  constexpr std::uint64_t timer_always_runs_bit = bit(2);
  if (identity.largest_leaf >= 6 && (cpu.cpuid(6, 0).eax & timer_always_runs_bit) != 0) return;
  for (const IdleState state : {IdleState::c3, IdleState::c6, IdleState::c7}) {
    std::uint8_t& hint = ways_.hints[static_cast<unsigned>(state)];
    abilities_.timer_stops = abilities_.timer_stops || hint != no_hint;
    hint = no_hint;
  }
}

void CpuPower::find_demotion(const Identity& identity, bool keep) noexcept {
  if (identity.hypervisor) return;
  // AMD's erratum 400: firmware may turn HLT into C1E, in which the timer stops on families 0Fh and 10h. FreeBSD turns that off, too.
  amd_c1e_ = identity.amd && (identity.family == 0x0f || identity.family == 0x10);
  if (!keep) demotion_ = demotion_bits(model_);
}

void CpuPower::find_performance(CpuAccess& cpu, const Identity& identity) noexcept {
  if (!identity.intel || identity.family != 6) return;
  const auto info = cpu.read_msr(msr::platform_info);
  if (!info) return;
  // MSR_PLATFORM_INFO: 15:8 the highest ratio without turbo, 47:40 the most efficient one (volume 4).
  const auto highest = static_cast<std::uint8_t>(bits(*info, 8, 8));
  const auto lowest = static_cast<std::uint8_t>(bits(*info, 40, 8));
  if (highest == 0 || lowest == 0 || lowest > highest) return;
  std::uint8_t turbo = highest;
  if (const auto limits = cpu.read_msr(msr::turbo_ratio_limit)) turbo = std::max(highest, static_cast<std::uint8_t>(bits(*limits, 0, 8)));

  constexpr std::uint64_t speed_step_bit = bit(7), hwp_bit = bit(7), preference_bit = bit(10);
  const auto hwp = identity.largest_leaf >= 6 && (cpu.cpuid(6, 0).eax & hwp_bit) != 0 ? cpu.read_msr(msr::hwp_enable).value_or(0) & 1 : 0;
  if (hwp != 0) {
    // 15.4.3: highest performance in bits 7:0; on servers it is a ratio. Once on, HWP stays on until reset, and PERF_CTL is ignored.
    if (const auto range = cpu.read_msr(msr::hwp_capabilities)) turbo = std::max(turbo, static_cast<std::uint8_t>(bits(*range, 0, 8)));
    abilities_.hwp = true;
    abilities_.energy_preference = (cpu.cpuid(6, 0).eax & preference_bit) != 0;
  } else if ((identity.leaf1.ecx & speed_step_bit) == 0 || !cpu.read_msr(msr::perf_ctl)) {
    return;
  }
  abilities_.pstates = true;
  abilities_.ratio_min = lowest;
  abilities_.ratio_max = highest;
  abilities_.ratio_turbo_max = turbo;
  abilities_.ratio_khz = ratio_step_khz(identity.model);
}

void CpuPower::find_turbo(CpuAccess& cpu, const Identity& identity) noexcept {
  if (!identity.intel || identity.largest_leaf < 6) return;
  const auto control = cpu.read_msr(msr::misc_enable);
  // While turbo is off, CPUID reports it as absent (SDM 2A, CPUID leaf 6, EAX bit 1).
  constexpr std::uint64_t turbo_bit = bit(1);
  abilities_.turbo =
      control && ((cpu.cpuid(6, 0).eax & turbo_bit) != 0 || (!identity.hypervisor && (*control & misc_enable_turbo_off) != 0));
}

void CpuPower::find_rapl(CpuAccess& cpu, const Identity& identity) noexcept {
  if (!identity.intel || identity.family != 6) return;
  const auto raw_units = cpu.read_msr(msr::rapl_power_unit);
  if (!raw_units || *raw_units == 0) return;
  const RaplUnits units = rapl_units(*raw_units);
  if (units.power == 0 || units.energy == 0 || units.time == 0) return;
  units_ = units;
  // An energy counter that reads zero after the boot is not running.
  if (cpu.read_msr(msr::package_energy).value_or(0) != 0) {
    abilities_.counters |= counter::package_energy;
    abilities_.energy_unit_exponent = units.energy;
  }
  if (model_ != nullptr && model_->dram_energy && cpu.read_msr(msr::dram_energy).value_or(0) != 0) {
    abilities_.counters |= counter::dram_energy;
    abilities_.dram_energy_unit_exponent = model_->dram_unit_exponent != 0 ? model_->dram_unit_exponent : units.energy;
  }
  // All bits are zero if firmware set no limit and none can be set.
  const auto limit = cpu.read_msr(msr::package_power_limit);
  const auto info = cpu.read_msr(msr::package_power_info);
  if (!limit || !info || (*limit == 0 && *info == 0)) return;
  abilities_.power_limit = true;
  abilities_.power_limit_locked = (*limit & power_limit_lock) != 0;
  abilities_.power_limit_min_mw = milliwatts_of(power_info_min(*info), units);
  abilities_.power_limit_max_mw = milliwatts_of(power_info_max(*info), units);
}

void CpuPower::find_counters(CpuAccess& cpu, const Identity& identity) noexcept {
  if (identity.largest_leaf < 10) return;
  const CpuidWords leaf = cpu.cpuid(10, 0);
  const auto version = bits(leaf.eax, 0, 8);
  if (version < 2 || !cpu.read_msr(msr::perf_global_control)) return;  // from version 2 on, one register enables all counters (20.2.2)
  fixed_counters_ = static_cast<std::uint8_t>(std::min<std::uint64_t>(bits(leaf.edx, 0, 5), 3));
  constexpr std::array in_order{counter::instructions, counter::cycles, counter::reference_cycles};
  for (unsigned i = 0; i < fixed_counters_; ++i) abilities_.counters |= in_order[i];
  // EBX has a bit for each architectural event that is NOT available; EAX 31:24 is the number of valid bits.
  const bool known_model = identity.intel && identity.family == 6;
  event_facts_ = power::event_facts(leaf.eax, leaf.ebx, known_model ? static_cast<std::uint8_t>(identity.model) : std::uint8_t{0});
  constexpr unsigned llc_misses_event = 4;
  const bool misses = event_facts_.counters != 0 && (event_facts_.architectural & bit(llc_misses_event)) != 0;
  if (misses) abilities_.counters |= counter::llc_misses;
  // Counter 0 counts LLC misses. The next ones can count chosen events.
  const unsigned free = event_facts_.counters - (event_facts_.counters != 0 ? 1 : 0);
  abilities_.free_event_counters = static_cast<std::uint8_t>(std::min(free, chosen_events_max));
}

void CpuPower::find_residencies(CpuAccess& cpu, const Identity& identity) noexcept {
  if (model_ == nullptr || identity.hypervisor) return;
  for (unsigned number = 0; number < counter_places.size(); ++number) {
    const auto bit = static_cast<std::uint16_t>(1U << number);
    if ((model_->residencies & bit) != 0 && cpu.read_msr(counter_places[number].msr)) abilities_.counters |= bit;
  }
}

CoreAtBoot CpuPower::start_core(CpuAccess& cpu) const noexcept {
  CoreAtBoot at_boot;
  if (abilities_.pstates) at_boot.performance = cpu.read_msr(abilities_.hwp ? msr::hwp_request : msr::perf_ctl).value_or(0);
  if (abilities_.power_limit) at_boot.power_limit = cpu.read_msr(msr::package_power_limit).value_or(0);
  if (c1e_promotion_) (void)change_msr(cpu, msr::power_ctl, power_ctl_c1e_promotion, 0);  // otherwise the CPU turns C1 into C1E
  if (amd_c1e_) (void)change_msr(cpu, msr::amd_interrupt_pending, amd_c1e_on_halt, 0);
  at_boot.demotes = !turn_off_demotion(cpu, demotion_);

  const bool misses = (abilities_.counters & counter::llc_misses) != 0;
  if (fixed_counters_ == 0 && !misses) return at_boot;
  (void)cpu.write_msr(msr::perf_global_control, 0);
  if (misses) {
    (void)cpu.write_msr(msr::pmc0, 0);
    (void)cpu.write_msr(msr::perf_event_select0, event_select_llc_misses);
  }
  for (unsigned i = 0; i < fixed_counters_; ++i) (void)cpu.write_msr(msr::fixed_counter0 + i, 0);
  (void)cpu.write_msr(msr::fixed_counter_control, fixed_control_value(fixed_counters_));
  (void)cpu.write_msr(msr::perf_global_control, global_control_value(fixed_counters_, misses ? 1 : 0));
  return at_boot;
}

void CpuPower::choose_events(std::span<const std::uint32_t> events) noexcept {
  require(events.size() <= abilities_.free_event_counters, "more events are chosen than there are counters", events.size());
  abilities_.counters &= static_cast<std::uint16_t>(~counter::events);
  chosen_events_ = {};
  for (std::size_t i = 0; i < events.size(); ++i) {
    chosen_events_[i] = events[i];
    abilities_.counters |= static_cast<std::uint16_t>(counter::event1 << i);
  }
}

Result<void> CpuPower::count_chosen_events(CpuAccess& cpu) const noexcept {
  const bool misses = (abilities_.counters & counter::llc_misses) != 0;
  std::uint64_t general = misses ? 1 : 0;
  for (unsigned i = 0; i < chosen_events_max; ++i) {
    if ((abilities_.counters & counter::event1 << i) == 0) continue;
    const unsigned number = first_event_counter + i;
    if (const auto reset = cpu.write_msr(msr::pmc0 + number, 0); !reset) return reset;
    if (const auto selected = cpu.write_msr(msr::perf_event_select0 + number, chosen_events_[i]); !selected) return selected;
    general |= bit(number);
  }
  return cpu.write_msr(msr::perf_global_control, global_control_value(fixed_counters_, general));
}

Result<void> CpuPower::park_core(CpuAccess& cpu) const noexcept {
  (void)turn_off_demotion(cpu, demotion_);
  if (!abilities_.pstates) return {};
  if (!abilities_.hwp) {
    (void)change_msr(cpu, msr::misc_enable, 0, misc_enable_speed_step);
    return cpu.write_msr(msr::perf_ctl, perf_ctl_of(abilities_.ratio_min));
  }
  const auto before = cpu.read_msr(msr::hwp_request);
  if (!before) return std::unexpected(before.error());
  const auto range = cpu.read_msr(msr::hwp_capabilities);
  if (!range) return std::unexpected(range.error());
  return cpu.write_msr(msr::hwp_request, hwp_request_lowest(*before, *range, abilities_.energy_preference));
}

Result<void> CpuPower::set_pstate(CpuAccess& cpu, const CoreAtBoot& at_boot, std::uint64_t raw) const noexcept {
  if (!abilities_.pstates) return failure(ErrorCode::unsupported, "this CPU has no P-states to set");
  if (abilities_.hwp) {
    const auto before = cpu.read_msr(msr::hwp_request);
    if (!before) return std::unexpected(before.error());
    const std::uint64_t value =
        raw == 0 ? hwp_request_with_preference(at_boot.performance, *before) : hwp_request_value(*before, ratio_of(raw));
    return cpu.write_msr(msr::hwp_request, value);
  }
  // Firmware may have left p-states off. If the bit is locked, the write has no effect.
  (void)change_msr(cpu, msr::misc_enable, 0, misc_enable_speed_step);
  return cpu.write_msr(msr::perf_ctl, raw == 0 ? at_boot.performance : raw);
}

Result<std::uint8_t> CpuPower::granted_ratio(CpuAccess& cpu) const noexcept {
  if (!abilities_.pstates) return failure(ErrorCode::unsupported, "this CPU has no P-states");
  const auto status = cpu.read_msr(msr::perf_status);
  if (!status) return std::unexpected(status.error());
  const std::uint8_t ratio = ratio_of(*status);
  if (ratio == 0) return failure(ErrorCode::unsupported, "the CPU does not report its ratio");
  return ratio;
}

Result<void> CpuPower::set_energy_preference(CpuAccess& cpu, const CoreAtBoot& at_boot, unsigned preference) const noexcept {
  if (!abilities_.energy_preference) return failure(ErrorCode::unsupported, "this CPU has no energy preference to set");
  const auto before = cpu.read_msr(msr::hwp_request);
  if (!before) return std::unexpected(before.error());
  require(preference <= 255 || preference == machine::firmwares_preference, "set_energy_preference: more than 255", preference);
  const std::uint64_t bits =
      preference == machine::firmwares_preference ? at_boot.performance : std::uint64_t{preference} << hwp_preference_shift;
  return cpu.write_msr(msr::hwp_request, hwp_request_with_preference(*before, bits));
}

Result<std::uint32_t> CpuPower::set_power_limit(CpuAccess& cpu, const CoreAtBoot& at_boot, std::uint32_t milliwatts) const noexcept {
  if (!abilities_.power_limit) return failure(ErrorCode::unsupported, "this CPU has no power limit to set");
  const auto before = cpu.read_msr(msr::package_power_limit);
  if (!before) return std::unexpected(before.error());
  if ((*before & power_limit_lock) != 0) return failure(ErrorCode::unsupported, "firmware has locked the power limit", *before);
  if (milliwatts == 0) {
    if (const auto written = cpu.write_msr(msr::package_power_limit, at_boot.power_limit); !written)
      return std::unexpected(written.error());
    return 0;
  }
  const auto lowest = std::max(abilities_.power_limit_min_mw, milliwatts_of(1, units_));
  const auto highest = abilities_.power_limit_max_mw != 0 ? abilities_.power_limit_max_mw : milliwatts_of(power_units_max, units_);
  if (milliwatts < lowest || milliwatts > highest) return failure(ErrorCode::invalid, "power limit out of the CPU's range", milliwatts);
  const std::uint32_t power_units = power_units_of(milliwatts, units_);
  require(power_units != 0 && power_units <= power_units_max, "set_power_limit: outside of the field", power_units);
  const std::uint64_t value = power_limit_value(*before, power_units, units_);
  if (const auto written = cpu.write_msr(msr::package_power_limit, value); !written) return std::unexpected(written.error());
  // A hypervisor may ignore the write.
  const auto after = cpu.read_msr(msr::package_power_limit);
  if (!after || (*after & limit1_mask) != power_units)
    return failure(ErrorCode::unsupported, "the CPU did not accept the power limit", value);
  return milliwatts_of(power_units, units_);
}

Result<void> CpuPower::set_turbo(CpuAccess& cpu, bool on) const noexcept {
  if (!abilities_.turbo) return failure(ErrorCode::unsupported, "this CPU has no turbo to set");
  return on ? change_msr(cpu, msr::misc_enable, misc_enable_turbo_off, 0) : change_msr(cpu, msr::misc_enable, 0, misc_enable_turbo_off);
}

// --- The line printed at boot ------------------------------------------------------------------------------------------------------------
void CpuPower::describe(Line& line) const noexcept {
  line << "power: ";
  if (model_ != nullptr) line << model_->name << "; ";
  line << "idle states halt";
  for (unsigned state = static_cast<unsigned>(IdleState::c1); state <= static_cast<unsigned>(IdleState::c7); ++state) {
    if ((abilities_.idle_states & 1U << state) != 0) line << ' ' << idle_state_names[state];
  }
  for (const IdleState choosing : {IdleState::monitor, IdleState::menu}) {
    if ((abilities_.idle_states >> static_cast<unsigned>(choosing) & 1) != 0)
      line << ' ' << idle_state_names[static_cast<unsigned>(choosing)];
  }
  switch (mwait_lack_) {
    case MwaitLack::none:
      break;
    case MwaitLack::assumed_none:
      line << "; MWAIT is assumed to sleep";
      break;
    case MwaitLack::missing:
      line << "; MWAIT is missing, so halt is used";
      break;
    case MwaitLack::no_states:
      line << "; MWAIT has no state to sleep in here, so halt is used";
      break;
    case MwaitLack::emulated:
      line << "; MWAIT returns at once here, so halt is used";
      break;
  }
  line << "; ";
  const char* lacks[3];
  unsigned lacking = 0;
  if (abilities_.pstates) {
    line << "P-states " << abilities_.ratio_min << " to " << abilities_.ratio_max << " (turbo " << abilities_.ratio_turbo_max << ") x "
         << abilities_.ratio_khz / 1000 << " MHz by " << (abilities_.hwp ? "HWP; " : "PERF_CTL; ");
  } else {
    lacks[lacking++] = "no P-states";
  }
  if (abilities_.power_limit) {
    line << "package limit ";
    if (abilities_.power_limit_locked) {
      line << "locked by firmware; ";
    } else if (abilities_.power_limit_max_mw != 0) {
      line << abilities_.power_limit_min_mw / 1000 << " to " << abilities_.power_limit_max_mw / 1000 << " W; ";
    } else {
      line << "without stated bounds; ";
    }
  } else {
    lacks[lacking++] = "no power limit";
  }
  if (abilities_.counters != 0) {
    constexpr std::array names{"instructions", "cycles", "reference cycles", "LLC misses", "package energy", "DRAM energy", "C3",
                               "C6",           "C7",     "package C2",       "package C3", "package C6",     "package C7"};
    line << "counters ";
    const char* between = "";
    for (unsigned i = 0; i < names.size(); ++i) {
      if ((abilities_.counters & 1U << i) == 0) continue;
      line << between << names[i];
      between = ", ";
    }
    if (lacking != 0) line << "; ";
  } else {
    lacks[lacking++] = "no counters";
  }
  for (unsigned i = 0; i < lacking; ++i) line << (i == 0 ? "" : ", ") << lacks[i];
  if (lacking != 0) line << " on this CPU";
}

unsigned package_shift(CpuAccess& cpu) noexcept {
  const std::uint32_t largest = cpu.cpuid(0, 0).eax;
  constexpr unsigned levels_max = 8;
  for (const std::uint32_t leaf : {0x1fU, 0x0bU}) {
    if (largest < leaf || cpu.cpuid(leaf, 0).ebx == 0) continue;
    // EAX 4:0 of the last valid level is the shift to the next level, the package. The list of levels ends where ECX 15:8 is 0.
    unsigned shift = 0;
    for (unsigned level = 0; level < levels_max; ++level) {
      const CpuidWords words = cpu.cpuid(leaf, level);
      if (bits(words.ecx, 8, 8) == 0) break;
      shift = words.eax & 31;
    }
    return shift;
  }
  // Leaf 1: EBX 23:16 is the number of ids reserved for a package, if EDX 28 says that there may be more than one.
  const CpuidWords leaf1 = cpu.cpuid(1, 0);
  if ((leaf1.edx & bit(28)) == 0) return 0;
  const auto ids = static_cast<std::uint32_t>(bits(leaf1.ebx, 16, 8));
  return ids <= 1 ? 0 : static_cast<unsigned>(std::bit_width(ids - 1));
}

}  // namespace neap::x86::power
