// SPDX-License-Identifier: BSL-1.0
// A small CPU model for tests, with round numbers.
#pragma once

#include <string>

#include "sim/machine/cpu_model.hpp"

namespace neap::model {

inline const std::string test_model_text = R"(
identity.name = test
identity.family = 6
identity.model = 45
identity.stepping = 7
identity.package_cores = 4
smt.threads = 1
smt.thread_speed = 0.5
smt.general_counters = 2
pace.cycles_per_instruction = 1
pace.unscaled_ps_per_instruction = 0
pace.pause_cycles = 10
frequency.min_ratio = 10
frequency.efficient_ratio = 10
frequency.base_ratio = 20
frequency.turbo_ratios = 40 30 25
frequency.per_core = false
frequency.hwp = false
frequency.min_volts = 1
frequency.max_volts = 1
sleep.package_exit_latency_us = 0
sleep.C1.hint = 0
sleep.C1.exit_latency_us = 1
sleep.C1.target_residency_us = 1
sleep.C1.dynamic_w_per_v2_ghz = 1
sleep.C1.leakage_w_per_v = 0
sleep.C6.hint = 32
sleep.C6.exit_latency_us = 100
sleep.C6.target_residency_us = 300
sleep.C6.dynamic_w_per_v2_ghz = 0
sleep.C6.leakage_w_per_v = 0
energy.core_dynamic_w_per_v2_ghz = 2
energy.core_leakage_w_per_v = 1
energy.uncore_PC0_w = 10
energy.uncore_PC2_w = 10
energy.uncore_PC3_w = 10
energy.uncore_PC6_w = 5
energy.uncore_PC7_w = 5
energy.uncore_dynamic_w_per_v2_ghz = 0
energy.dram_idle_w = 4
energy.dram_w_per_active_core = 1
energy.tdp_w = 100
energy.power_min_w = 20
energy.power_max_w = 200
energy.unit_exponent = 16
energy.dram_unit_exponent = 16
counters.general = 4
)";

inline CpuModel test_model(const std::string& from = "", const std::string& to = "") {
  std::string text = test_model_text;
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return parse_cpu_model(text).value();
}

}  // namespace neap::model
