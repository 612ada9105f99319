// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/facts.hpp"

#include <array>

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
  if (!raw_units || *raw_units == 0 || !limit || (*limit & limit1_enable) == 0) return;
  facts.power_limit_mw = milliwatts_of(static_cast<std::uint32_t>(*limit & limit1_mask), rapl_units(*raw_units));
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
  if (identity.intel && identity.family == 6 && !identity.hypervisor) find_limits(cpu, abilities, model, facts);
  for (auto state = static_cast<unsigned>(IdleState::c1); state <= static_cast<unsigned>(IdleState::c7); ++state) {
    if ((abilities.idle_states & 1U << state) == 0 || ways.hints[state] == no_hint) continue;
    facts.mwait_hints[state] = ways.hints[state];
  }
  return facts;
}

}  // namespace neap::x86::power
