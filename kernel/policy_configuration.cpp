// SPDX-License-Identifier: BSL-1.0
// The settings of a core as the log of a run records them at its start.
//
// A log without them does not say what it is a log of: most settings have no field in a Settings entry, and a setting that was never
// changed leaves no record. This code runs on each core while a run begins, so it neither waits nor allocates.
#include <algorithm>

#include "kernel/core.hpp"
#include "kernel/machine.hpp"
#include "kernel/policy_settings.hpp"

namespace neap::policy {
namespace {

/// True if this core has the kernel's setting: no value of a setting without support is accepted (policy_settings.cpp).
bool is_supported(Setting setting, const Device* card) noexcept {
  const PowerAbilities& abilities = machine::power_abilities();
  switch (setting) {
    case Setting::itr:
      return has_queue(card, this_core());
    case Setting::pstate:
      return abilities.pstates;
    case Setting::power_limit:
      return abilities.power_limit && !abilities.power_limit_locked;
    case Setting::turbo:
      return abilities.turbo;
    case Setting::epp:
      return abilities.energy_preference;
    case Setting::segmentation:
      return core_state(this_core()).policy.no_segmentation.load(std::memory_order_relaxed) == nullptr;
    case Setting::monitor_state:
      return (abilities.idle_states >> static_cast<unsigned>(IdleState::monitor) & 1) != 0;
    case Setting::idle:
    case Setting::poll_budget:
    case Setting::adaptive_poll:
      break;
    default:  // the network's
      return has_network();
  }
  return true;
}

}  // namespace

bool has_queue(const Device* card, unsigned core) noexcept {
  if (card == nullptr) return false;
  const auto rounded = card->round_itr(core, 0);
  return rounded || rounded.error().code != ErrorCode::unsupported;
}

std::size_t report_configuration(std::span<log::ConfiguredSetting, log::configured_settings_max> out) noexcept {
  std::size_t count = 0;
  const auto add = [&](Setting setting, Value value) {
    if (count < out.size()) out[count++] = {.setting = static_cast<std::uint8_t>(setting), .value = static_cast<std::uint32_t>(value)};
  };
  const Device* const card = device();
  for (const Row& row : kernel_rows()) {
    if (is_supported(row.setting, card)) add(row.setting, value_of(row.setting, this_core()));
  }
  if (card == nullptr) return count;
  for (const Row& row : card->settings()) {
    if (!row.preset && row.scope != Scope::named_core) add(row.setting, card->value_of(row.setting));
  }
  return count;
}

}  // namespace neap::policy
