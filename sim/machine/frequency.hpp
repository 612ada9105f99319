// SPDX-License-Identifier: BSL-1.0
// The frequency of each core.
//
// Software requests a ratio, by IA32_PERF_CTL or by IA32_HWP_REQUEST. The CPU grants at most what turbo allows for the number of active
// cores, and what the power limit leaves. On models with one clock for the package, all cores run at the highest request of those that are
// awake. The two threads of a core run at the higher of their requests, even while one of them sleeps. A change takes effect at once: the
// tens of microseconds that hardware takes are not modelled.
#pragma once

#include <array>

#include "sim/machine/cpu_model.hpp"

namespace neap::model {

class FrequencyControl {
 public:
  FrequencyControl(const CpuModel& cpu, unsigned cores) noexcept;

  std::uint64_t perf_ctl(unsigned core) const noexcept { return requests_[core].perf_ctl; }
  void set_perf_ctl(unsigned core, std::uint64_t value) noexcept { requests_[core].perf_ctl = value; }
  std::uint64_t hwp_request(unsigned core) const noexcept { return requests_[core].hwp_request; }
  void set_hwp_request(unsigned core, std::uint64_t value) noexcept { requests_[core].hwp_request = value; }
  /// The share of the last period in which the core was in C0. HWP chooses by it.
  void set_utilization(unsigned core, double share) noexcept { requests_[core].utilization = share; }
  void set_turbo_off(bool off) noexcept { turbo_off_ = off; }
  void set_cap(unsigned ratio) noexcept { cap_ = ratio; }

  /// True if the hardware chooses by utilization on a core (HWP without a desired performance), so that periods matter.
  [[nodiscard]] bool is_autonomous() const noexcept;
  /// The ratio of each CPU, if their cores are in these states. A core that sleeps has the ratio at which it would run if it woke.
  [[nodiscard]] std::array<std::uint8_t, cores_max> ratios(const std::array<State, cores_max>& cores) const noexcept;

 private:
  struct Request {
    std::uint64_t perf_ctl = 0, hwp_request = 0;
    double utilization = 1;
  };
  [[nodiscard]] unsigned requested(const Request& request) const noexcept;
  /// Of all threads of this CPU's core.
  [[nodiscard]] unsigned requested_of_core(unsigned cpu) const noexcept;

  const CpuModel* cpu_;
  unsigned cores_;
  bool turbo_off_ = false;
  unsigned cap_;
  std::array<Request, cores_max> requests_;
};

}  // namespace neap::model
