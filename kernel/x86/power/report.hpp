// SPDX-License-Identifier: BSL-1.0
// Further power features of this CPU, in words.
//
// One line at boot lists the settings (CpuPower::describe). A comparison of two machines needs more: turbo by number of cores, firmware's
// limits and locks, wake-up times. This code changes nothing, and leaves out features that the CPU lacks or a hypervisor hides.
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
  /// Each line begins with `power: `.
  [[nodiscard]] std::span<Line> lines() noexcept { return std::span(lines_).first(count_); }

 private:
  void wake_times(const PowerAbilities& abilities) noexcept;
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

/// Hardware threads of a core from CPUID leaf 1Fh or 0Bh; 1 without simultaneous multithreading or without these leaves.
[[nodiscard]] unsigned threads_of_core(CpuAccess& cpu) noexcept;

}  // namespace neap::x86::power
