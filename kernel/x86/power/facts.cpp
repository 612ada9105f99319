// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/facts.hpp"

#include <array>
#include <cstring>
#include <optional>

#include "kernel/panic.hpp"
#include "kernel/x86/firmware/cpu_facts.hpp"
#include "kernel/x86/power/encodings.hpp"

namespace neap::x86::power {
namespace {

// A hypervisor or an emulator answers these registers with values of its own, often zeros, so they are read only without one.
void find_limits(CpuAccess& cpu, const PowerAbilities& abilities, const Model* model, MachineFacts& facts) noexcept {
  // The table of models lists the CPUs on which bits 2:0 are known to be the limit.
  if (const auto control = cpu.read_msr(msr::package_cstate_control); model != nullptr && control) {
    facts.c_state_limit = package_limit_name(model->package_limits, package_cstate_code(*control));
    facts.c_state_limit_locked = (*control & package_cstate_lock) != 0;
  }
  if (const auto control = cpu.read_msr(msr::misc_enable); control && abilities.turbo)
    facts.turbo_off = (*control & misc_enable_turbo_off) != 0;
  const auto raw_units = cpu.read_msr(msr::rapl_power_unit);
  const auto limit = cpu.read_msr(msr::package_power_limit);
  if (!raw_units || *raw_units == 0 || !limit) return;
  // Limit 2 has the fields of limit 1 in the upper half.
  const auto read_limit = [&](std::uint64_t half) -> std::optional<std::uint32_t> {
    if ((half & limit1_enable) == 0) return std::nullopt;
    return milliwatts_of(static_cast<std::uint32_t>(half & limit1_mask), rapl_units(*raw_units));
  };
  facts.power_limit_mw = read_limit(*limit);
  facts.power_limit_2_mw = read_limit(*limit >> 32);
}

// The names are compared with Linux's on the same machine, so they are those of CPUID.
void find_surroundings(CpuAccess& cpu, const cpu_facts::Identity& identity, MachineFacts& facts) noexcept {
  constexpr std::uint32_t mwait_leaf = 5, hypervisor_leaf = 0x40000000, extended_leaf = 0x80000000, timing_leaf = 0x80000007;
  constexpr std::uint32_t monitor_bit = 1 << 3, invariant_bit = 1 << 8;
  if (cpu.cpuid(0, 0).eax >= mwait_leaf && (cpu.cpuid(1, 0).ecx & monitor_bit) != 0) facts.mwait_sub_states = cpu.cpuid(mwait_leaf, 0).edx;
  if (cpu.cpuid(extended_leaf, 0).eax >= timing_leaf) facts.tsc_invariant = (cpu.cpuid(timing_leaf, 0).edx & invariant_bit) != 0;
  facts.hypervisor = identity.hypervisor;
  if (!identity.hypervisor) return;
  const CpuidWords name = cpu.cpuid(hypervisor_leaf, 0);
  if (name.eax < hypervisor_leaf) return;
  const std::array words{name.ebx, name.ecx, name.edx};
  static_assert(sizeof words < sizeof facts.hypervisor_name);
  std::memcpy(facts.hypervisor_name.data(), words.data(), sizeof words);
}

}  // namespace

const char* package_limit_name(PackageLimits meaning, unsigned code) noexcept {
  constexpr std::array sandy_bridge{"none", "c2", "c6_no_retention", "c6", "c7", "c7_shrunk", "code_6", "unlimited"};
  constexpr std::array skylake_server{"none", "c2", "c6_no_retention", "c6", "code_4", "code_5", "code_6", "unlimited"};
  constexpr std::array unknown{"code_0", "code_1", "code_2", "code_3", "code_4", "code_5", "code_6", "code_7"};
  static_assert(sandy_bridge.size() == 8 && skylake_server.size() == 8 && unknown.size() == 8);
  require(code < unknown.size(), "power: a package's limit has three bits", code);
  switch (meaning) {
    case PackageLimits::sandy_bridge:
      return sandy_bridge[code];
    case PackageLimits::skylake_server:
      return skylake_server[code];
    case PackageLimits::unknown:
      break;
  }
  return unknown[code];
}

MachineFacts find_facts(CpuAccess& cpu, const PowerAbilities& abilities, const SleepWays& ways) noexcept {
  MachineFacts facts;
  const cpu_facts::Identity identity = cpu_facts::identify(cpu);
  facts.signature = {.family = identity.family, .model = identity.model, .stepping = identity.stepping};
  facts.microcode = cpu_facts::microcode(cpu);
  const Model* const model = identity.intel ? find_model(identity.family, identity.model) : nullptr;
  find_surroundings(cpu, identity, facts);
  if (identity.intel && identity.family == 6 && !identity.hypervisor) find_limits(cpu, abilities, model, facts);
  for (auto state = static_cast<unsigned>(IdleState::c1); state <= static_cast<unsigned>(IdleState::c7); ++state) {
    if ((abilities.idle_states & 1U << state) == 0 || ways.hints[state] == no_hint) continue;
    facts.mwait_hints[state] = ways.hints[state];
  }
  return facts;
}

}  // namespace neap::x86::power
