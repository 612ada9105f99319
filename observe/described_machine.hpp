// SPDX-License-Identifier: BSL-1.0
// For tests of texts that describe the machine: a test that sets the machine's abilities and facts, and the facts of a known machine.
#pragma once

#include <gtest/gtest.h>

#include "kernel/machine_facts.hpp"
#include "kernel/policy_testing.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::observe {

/// Resets the machine's abilities and facts at the end of each test.
struct DescribedMachine : ::testing::Test {
  ~DescribedMachine() override {
    host::set_power_abilities(policy::bare_abilities());
    host::set_machine_facts({});
  }
};

/// A Xeon E5-2690 with the C-states c1 and c6, on which firmware has set and locked a limit, and has left turbo on.
inline MachineFacts e5_2690_facts() {
  MachineFacts facts;
  facts.signature = {.family = 6, .model = 0x2d, .stepping = 7};
  facts.microcode = 0x71a;
  facts.c_state_limit = "c7";
  facts.c_state_limit_locked = true;
  facts.turbo_off = false;
  facts.power_limit_mw = 135'000;
  facts.mwait_hints[static_cast<unsigned>(IdleState::c1)] = 0;
  facts.mwait_hints[static_cast<unsigned>(IdleState::c6)] = 0x20;
  return facts;
}

}  // namespace neap::observe
