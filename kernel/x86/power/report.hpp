// SPDX-License-Identifier: BSL-1.0
// What else this CPU has, in words.
//
// One line at boot says what can be set (CpuPower::describe). Who compares two machines wants to know more: how far turbo goes with how
// many cores, what firmware has limited and locked, how long waking takes. Nothing is changed here, and what a CPU lacks, or a hypervisor
// keeps to itself, is left out.
#pragma once

#include <array>
#include <span>

#include "kernel/console.hpp"
#include "kernel/power.hpp"
#include "kernel/x86/power/cpu_access.hpp"
#include "kernel/x86/power/encodings.hpp"
#include "kernel/x86/power/models.hpp"

namespace neap::x86::power {

class Report {
 public:
  Report(CpuAccess& cpu, const PowerAbilities& abilities) noexcept;
  /// Each begins with `power: `.
  [[nodiscard]] std::span<Line> lines() noexcept { return std::span(lines_).first(count_); }

 private:
  void wake_times(const Model& model, const PowerAbilities& abilities) noexcept;
  void hwp(CpuAccess& cpu) noexcept;
  void turbo(CpuAccess& cpu, const Model& model) noexcept;
  void limits(CpuAccess& cpu, const Model* model) noexcept;
  void demotion(CpuAccess& cpu, const Model* model) noexcept;
  void left_out(const PowerAbilities& abilities) noexcept;
  void counters(CpuAccess& cpu, std::uint32_t largest_leaf) noexcept;
  Line& next() noexcept { return lines_[count_++] << "power: "; }

  static constexpr unsigned lines_max = 9;
  std::array<Line, lines_max> lines_;
  unsigned count_ = 0;
};

/// Logical processors of a core, 1 without simultaneous multithreading, as CPUID leaf 1Fh or 0Bh counts them; 1 where neither is there.
[[nodiscard]] unsigned threads_of_core(CpuAccess& cpu) noexcept;

}  // namespace neap::x86::power
