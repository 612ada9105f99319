// SPDX-License-Identifier: BSL-1.0
// The numbers of a modelled CPU.
//
// They come from models/NAME.toml, where each one names its source. tools/model/cpu_model.py checks that file and writes the flat file that
// is read here: lines of `key = value`, lists separated by spaces. Both sides know the same keys; a missing, unknown or repeated key is an
// error.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "sim/machine/units.hpp"

namespace neap::model {

/// C-states in the order of their depth. C0: the core runs, or waits for its wake-up to complete.
enum class State : std::uint8_t { c0, c1, c1e, c3, c6, c7 };
constexpr unsigned state_count = 6;
constexpr std::array<const char*, state_count> state_names{"C0", "C1", "C1E", "C3", "C6", "C7"};
constexpr unsigned index_of(State state) { return static_cast<unsigned>(state); }

/// C-states of the package. It is never deeper than its least deep core allows.
enum class PackageState : std::uint8_t { pc0, pc2, pc3, pc6, pc7 };
constexpr unsigned package_state_count = 5;
constexpr std::array<const char*, package_state_count> package_state_names{"PC0", "PC2", "PC3", "PC6", "PC7"};
constexpr unsigned index_of(PackageState state) { return static_cast<unsigned>(state); }

/// Power of a core: dynamic * V^2 * GHz + leakage * V.
struct CorePower {
  double dynamic_w_per_v2_ghz = 0, leakage_w_per_v = 0;
};

struct SleepState {
  bool present = false;
  std::uint8_t hint = 0;  ///< of MWAIT
  Ticks exit_latency = 0;
  Ticks target_residency = 0;
  CorePower power;
};

struct CpuModel {
  std::string name;
  unsigned family = 0, model = 0, stepping = 0;
  unsigned package_cores = 0;

  // SMT: two CPUs of the guest, 2n and 2n + 1, are threads of one core.
  unsigned threads = 1;     ///< of each core: 1 or 2
  double thread_speed = 1;  ///< of a thread while the other one runs, as a part of its speed alone

  double cycles_per_instruction = 0;
  double unscaled_ps_per_instruction = 0;  ///< the part that a higher frequency does not shorten: memory
  unsigned pause_cycles = 0;

  unsigned min_ratio = 0, efficient_ratio = 0, base_ratio = 0;
  std::array<std::uint8_t, 64> turbo_ratios{};  ///< by number of active cores, less one
  unsigned turbo_steps = 0;                     ///< used entries above
  bool per_core_frequency = false;              ///< otherwise all cores of the package run at the highest request of those awake
  bool hwp = false;                             ///< the CPU has HWP, and firmware has turned it on
  double min_volts = 0, max_volts = 0;          ///< at the lowest and the highest ratio; linear between

  std::array<SleepState, state_count> sleep{};  ///< C0's power is that of a running core
  Ticks package_exit_latency = 0;               ///< added if the package slept in PC6 or PC7
  std::array<double, package_state_count> uncore_w{};
  double uncore_dynamic_w_per_v2_ghz = 0;  ///< of the part that runs at the cores' clock, in PC0 and PC2: added to the above
  double dram_idle_w = 0, dram_w_per_active_core = 0;
  double tdp_w = 0, power_min_w = 0, power_max_w = 0;
  unsigned energy_unit_exponent = 0, dram_unit_exponent = 0;  ///< a unit is 2^-exponent J

  unsigned general_counters = 0;  ///< of each thread

  [[nodiscard]] unsigned highest_ratio() const noexcept { return turbo_ratios[0]; }
  /// The highest ratio with `active` cores in C0 or C1.
  [[nodiscard]] unsigned turbo_ratio(unsigned active) const noexcept;
  [[nodiscard]] double volts(unsigned ratio) const noexcept;
  /// `shared`: the core's other thread runs, too.
  [[nodiscard]] Ticks time_per_instruction(unsigned ratio, bool shared = false) const noexcept;
  [[nodiscard]] double core_watts(State state, unsigned ratio) const noexcept;
  /// `ratio`: of the cores' clock.
  [[nodiscard]] double uncore_watts(PackageState state, unsigned ratio) const noexcept;
  /// The state that a hint of MWAIT requests: the one with this hint; otherwise the deepest whose hint is lower. Bits 3:0 are a sub-state
  /// (SDM 2B, MWAIT).
  [[nodiscard]] State state_of_hint(std::uint8_t hint) const noexcept;
  [[nodiscard]] State deepest() const noexcept;
};

/// Reads the flat file's text. Errors: a sentence that names the line or the key.
[[nodiscard]] std::expected<CpuModel, std::string> parse_cpu_model(std::string_view text);

}  // namespace neap::model
