// SPDX-License-Identifier: BSL-1.0
// Virtual time.
//
// A core's clock adds the time of single instructions, a fraction of a nanosecond each. Sums MUST be exact, or two runs that group the same
// instructions differently would disagree. So time is an integer of 64 fs. A nanosecond and a cycle of the 100 MHz bus clock are whole
// numbers of it, and 64 bits hold 13 days.
#pragma once

#include <cstdint>

namespace neap::model {

using Ticks = std::uint64_t;  // 64 fs
__extension__ using Wide = unsigned __int128;
__extension__ using Signed = __int128;

constexpr unsigned cores_max = 16;
constexpr Ticks ticks_per_ns = 15'625;
constexpr Ticks ticks_per_us = ticks_per_ns * 1000;
constexpr Ticks ticks_per_ms = ticks_per_us * 1000;
constexpr Ticks ticks_per_second = ticks_per_ms * 1000;
/// Ratios multiply the bus clock of 100 MHz (SDM volume 4, MSR_PLATFORM_INFO, from Sandy Bridge on).
constexpr Ticks ticks_per_bus_clock = 10 * ticks_per_ns;

constexpr Ticks from_ns(std::uint64_t ns) { return ns * ticks_per_ns; }
constexpr std::uint64_t to_ns(Ticks time) { return time / ticks_per_ns; }
constexpr double to_seconds(Ticks time) { return static_cast<double>(time) / static_cast<double>(ticks_per_second); }
/// Cycles of a clock with this ratio, rounded down.
constexpr std::uint64_t cycles_of(Ticks time, unsigned ratio) {
  return static_cast<std::uint64_t>(Wide{time} * ratio / ticks_per_bus_clock);
}
constexpr double gigahertz_of(unsigned ratio) { return ratio / 10.0; }

}  // namespace neap::model
