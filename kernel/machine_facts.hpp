// SPDX-License-Identifier: BSL-1.0
// Facts about CPU and firmware that a run's log names beside its settings.
//
// Two machines with equal settings may still differ: in microcode, in the states that firmware allows, in its power limit. Firmware's
// values are those before Neap's first change. A value that this machine does not report is absent, and never a guess.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernel/power.hpp"

namespace neap {

struct MachineFacts {
  /// CPUID leaf 1; the family and the model include their extended parts.
  struct Signature {
    std::uint16_t family = 0, model = 0, stepping = 0;
  };
  std::optional<Signature> signature;
  std::optional<std::uint32_t> microcode;  ///< revision

  /// The deepest C-state that firmware allows the package: a static name, or `code_N` if the register's code has no name here; null: not
  /// reported.
  const char* c_state_limit = nullptr;
  std::optional<bool> c_state_limit_locked, turbo_off;
  std::optional<std::uint32_t> power_limit_mw;    ///< the package's sustained limit, if one is on
  std::optional<std::uint32_t> power_limit_2_mw;  ///< the package's short-term limit, if one is on

  std::array<std::optional<std::uint8_t>, idle_states> mwait_hints{};  ///< of the states c1 to c7 that this machine offers
  std::optional<std::uint32_t> mwait_sub_states;                       ///< CPUID leaf 5, EDX; absent: no MONITOR/MWAIT

  bool hypervisor = false, modelled = false;     ///< not metal: a hypervisor or an emulator, or the model machine
  std::array<char, 13> hypervisor_name{};        ///< as CPUID leaf 40000000h has it; empty: it has none
  std::optional<bool> tsc_invariant;             ///< the TSC runs at one rate in all states
  std::optional<std::uint64_t> installed_bytes;  ///< RAM above 1 MiB that the boot loader's map lists
};

}  // namespace neap
