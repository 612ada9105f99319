// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/frequency.hpp"

#include <algorithm>
#include <cmath>

namespace neap::model {

namespace {

constexpr unsigned byte_of(std::uint64_t value, unsigned number) { return static_cast<unsigned>(value >> (8 * number) & 0xff); }
constexpr std::uint64_t perf_ctl_turbo_off = std::uint64_t{1} << 32;  // SDM 3B 15.3.2.2, "IDA engage"
constexpr std::uint64_t balance_performance = 128;

// IA32_HWP_REQUEST (SDM 3B 15.4.4).
constexpr unsigned hwp_minimum(std::uint64_t request) { return byte_of(request, 0); }
constexpr unsigned hwp_maximum(std::uint64_t request) { return byte_of(request, 1); }
constexpr unsigned hwp_desired(std::uint64_t request) { return byte_of(request, 2); }
constexpr unsigned hwp_preference(std::uint64_t request) { return byte_of(request, 3); }

}  // namespace

FrequencyControl::FrequencyControl(const CpuModel& cpu, unsigned cores) noexcept : cpu_(&cpu), cores_(cores), cap_(cpu.highest_ratio()) {
  for (Request& request : requests_) {
    request.perf_ctl = std::uint64_t{cpu.base_ratio} << 8;
    request.hwp_request = balance_performance << 24 | std::uint64_t{cpu.highest_ratio()} << 8 | cpu.min_ratio;
  }
}

bool FrequencyControl::is_autonomous() const noexcept {
  if (!cpu_->hwp) return false;
  return std::any_of(requests_.begin(), requests_.begin() + cores_, [](const Request& request) {
    return hwp_desired(request.hwp_request) == 0 && hwp_preference(request.hwp_request) != 0 &&
           hwp_minimum(request.hwp_request) < hwp_maximum(request.hwp_request);
  });
}

unsigned FrequencyControl::requested(const Request& request) const noexcept {
  const unsigned lowest = cpu_->min_ratio, highest = turbo_off_ ? cpu_->base_ratio : cpu_->highest_ratio();
  if (!cpu_->hwp) {
    const unsigned ratio = byte_of(request.perf_ctl, 1);
    return std::clamp(ratio, lowest, (request.perf_ctl & perf_ctl_turbo_off) != 0 ? cpu_->base_ratio : highest);
  }
  const unsigned least = std::clamp(hwp_minimum(request.hwp_request), lowest, highest);
  const unsigned most = std::max(least, std::clamp(hwp_maximum(request.hwp_request), lowest, highest));
  if (const unsigned desired = hwp_desired(request.hwp_request); desired != 0) return std::clamp(desired, least, most);
  // Intel does not publish how hardware chooses. Assumed: in proportion to utilization; a preference for speed reaches the maximum earlier.
  const unsigned preference = hwp_preference(request.hwp_request);
  if (preference == 0) return most;
  const double share = std::min(1.0, request.utilization * (1 + (255 - preference) / 128.0));
  return least + static_cast<unsigned>(std::lround((most - least) * share));
}

unsigned FrequencyControl::requested_of_core(unsigned cpu) const noexcept {
  unsigned highest = 0;
  const unsigned first = cpu - cpu % cpu_->threads;
  for (unsigned thread = first; thread < std::min(first + cpu_->threads, cores_); ++thread) {
    highest = std::max(highest, requested(requests_[thread]));
  }
  return highest;
}

std::array<std::uint8_t, cores_max> FrequencyControl::ratios(const std::array<State, cores_max>& cores) const noexcept {
  const auto is_active = [&](unsigned core) { return cores[core] <= State::c1; };
  unsigned active = 0, highest_request = 0;
  for (unsigned i = 0; i < cores_; ++i) {
    if (!is_active(i)) continue;
    active += i % cpu_->threads == 0 ? 1 : 0;
    highest_request = std::max(highest_request, requested_of_core(i));
  }
  std::array<std::uint8_t, cores_max> granted{};
  for (unsigned i = 0; i < cores_; ++i) {
    unsigned ratio = requested_of_core(i);
    // Asleep, it would be one more of the active cores, and its request would count.
    if (!cpu_->per_core_frequency) ratio = is_active(i) ? highest_request : std::max(ratio, highest_request);
    ratio = std::min({ratio, cpu_->turbo_ratio(is_active(i) ? active : active + 1), cap_});
    granted[i] = static_cast<std::uint8_t>(std::max(ratio, cpu_->min_ratio));
  }
  return granted;
}

}  // namespace neap::model
