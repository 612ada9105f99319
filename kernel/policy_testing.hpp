// SPDX-License-Identifier: BSL-1.0
// For tests of settings: a CPU with all abilities, and one with none.
#pragma once

#include "kernel/power.hpp"

namespace neap::policy {

inline PowerAbilities full_abilities() {
  PowerAbilities has;
  has.idle_states = 0x1ff;
  has.wake_us = {0, 2, 10, 80, 104, 109};
  has.deepest = IdleState::c6;
  has.mwait_sleeps = true;
  has.pstates = true;
  has.energy_preference = true;
  has.ratio_min = 12;
  has.ratio_max = 29;
  has.ratio_turbo_max = 38;
  has.ratio_khz = 100'000;
  has.power_limit = true;
  has.power_limit_min_mw = 51'000;
  has.power_limit_max_mw = 200'000;
  has.turbo = true;
  return has;
}

inline PowerAbilities bare_abilities() {
  PowerAbilities has;
  has.idle_states = 1 << static_cast<unsigned>(IdleState::halt) | 1 << static_cast<unsigned>(IdleState::poll);
  return has;
}

}  // namespace neap::policy
