// SPDX-License-Identifier: BSL-1.0
// Names of idle states, power abilities and counters.
//
// The kernel's other parts use these names. The code in kernel/x86/power/ determines which states, abilities and counters a CPU has and
// which registers control them. A CPU need not have any of them: a counter that was not read is marked as absent, not as zero.
#pragma once

#include <array>
#include <cstdint>

namespace neap {

/// The behaviour of an idle core. `c1` to `c7` request the C-state of that name by MWAIT; `halt` is HLT; `poll` never sleeps. `monitor`
/// sleeps in MWAIT on the next receive descriptor, in a C-state that a setting of its own names. `menu` sleeps in the C-state that fits the
/// predicted sleep (idle_governor.hpp). In `poll` and `monitor` the queue's interrupt is off. Log records contain these numbers.
enum class IdleState : std::uint8_t { halt = 0, c1 = 1, c1e = 2, c3 = 3, c6 = 4, c7 = 5, poll = 6, monitor = 7, menu = 8 };
constexpr unsigned idle_states = 9;
constexpr unsigned c_states = 6;  ///< `halt` and `c1` to `c7`: the states that the CPU knows; the others choose among them
/// Wake-up times of `halt` and `c1` to `c7` in us; 0: not known.
using WakeTimes = std::array<std::uint16_t, c_states>;
constexpr std::array<const char*, idle_states> idle_state_names{"halt", "c1", "c1e", "c3", "c6", "c7", "poll", "monitor", "menu"};

/// The cause that ended a sleep. Log records contain these numbers.
enum class WakeCause : std::uint8_t {
  not_asleep = 0,  ///< work was found before the core slept
  interrupt = 1,   ///< a device's vector
  memory = 2,      ///< a write to the monitored line by another core or the card
  timer = 3,       ///< the core's own alarm
  wake_up = 4,     ///< another core's inter-processor interrupt
  unknown = 5,     ///< none of the causes above (MWAIT may end at any time)
};

struct Sleep {
  WakeCause cause = WakeCause::not_asleep;
  std::uint8_t vector = 0;  ///< the first vector taken, if the cause is `interrupt`, `timer` or `wake_up`
};

/// Counters that can be sampled: bits of `CounterSample::present` and of a log record's flags.
namespace counter {
constexpr std::uint16_t instructions = 1 << 0;
constexpr std::uint16_t cycles = 1 << 1;
constexpr std::uint16_t reference_cycles = 1 << 2;
constexpr std::uint16_t llc_misses = 1 << 3;
constexpr std::uint16_t package_energy = 1 << 4;
constexpr std::uint16_t dram_energy = 1 << 5;
constexpr std::uint16_t core_c3 = 1 << 6;
constexpr std::uint16_t core_c6 = 1 << 7;
constexpr std::uint16_t core_c7 = 1 << 8;
constexpr std::uint16_t package_c2 = 1 << 9;
constexpr std::uint16_t package_c3 = 1 << 10;
constexpr std::uint16_t package_c6 = 1 << 11;
constexpr std::uint16_t package_c7 = 1 << 12;
constexpr std::uint16_t event1 = 1 << 13;  // chosen events (log_events=)
constexpr std::uint16_t event2 = 1 << 14;
constexpr std::uint16_t event3 = 1 << 15;
constexpr std::uint16_t events = event1 | event2 | event3;
}  // namespace counter
constexpr unsigned chosen_events_max = 3;

/// One core's counters at one moment, raw and cumulative. A counter that is not in `present` was not read and is zero.
struct CounterSample {
  std::uint16_t present = 0;
  std::uint32_t package_energy = 0;  ///< in units of `PowerAbilities::energy_unit_exponent`; wraps at 32 bits
  std::uint32_t dram_energy = 0;
  std::uint64_t instructions = 0;      ///< instructions retired
  std::uint64_t cycles = 0;            ///< unhalted cycles at the core's present frequency
  std::uint64_t reference_cycles = 0;  ///< unhalted cycles at the TSC's rate
  std::uint64_t llc_misses = 0;
  std::uint64_t core_c3 = 0, core_c6 = 0, core_c7 = 0;  ///< residencies, in TSC ticks
  std::uint64_t package_c2 = 0, package_c3 = 0, package_c6 = 0, package_c7 = 0;
  std::array<std::uint64_t, chosen_events_max> events{};
};

/// The power features of this CPU. The same on all cores.
struct PowerAbilities {
  std::uint16_t idle_states = 1 << static_cast<unsigned>(IdleState::halt);  ///< bit i: `IdleState` i works here
  IdleState deepest = IdleState::halt;                                      ///< the default of `idle`
  WakeTimes wake_us{};
  std::uint16_t wake_us_measured = 0;  ///< bit i: `wake_us[i]` was measured (boot option wake_up_times), and is not from the table
  bool mwait_sleeps = false;           ///< false: MONITOR/MWAIT are missing or, as in an emulator, return at once
  bool timer_stops = false;            ///< the APIC timer stops in C3 and deeper, so `idle_states` lacks them
  bool writes_missed = false;          ///< an erratum: MWAIT may miss a write, so `monitor` is not in `idle_states`

  bool pstates = false;            ///< PERF_CTL or HWP_REQUEST can be set
  bool hwp = false;                ///< p-states are set by HWP_REQUEST, because firmware turned HWP on
  bool energy_preference = false;  ///< HWP's preference between speed and energy can be set
  std::uint8_t ratio_min = 0, ratio_max = 0, ratio_turbo_max = 0;
  std::uint32_t ratio_khz = 0;  ///< frequency of one ratio step, 100,000 or 133,333

  bool power_limit = false;  ///< the CPU has a limit for the package (it may be locked)
  bool power_limit_locked = false;
  std::uint32_t power_limit_min_mw = 0, power_limit_max_mw = 0;  ///< the limits that the CPU reports; 0: not reported
  bool turbo = false;                                            ///< can be turned on and off

  std::uint16_t counters = 0;                  ///< bits of namespace `counter`
  std::uint8_t free_event_counters = 0;        ///< general counters that can count chosen events, at most `chosen_events_max`
  std::uint8_t energy_unit_exponent = 0;       ///< package energy counts in 2^-n joules
  std::uint8_t dram_energy_unit_exponent = 0;  ///< differs from the package's on some server CPUs
  char cpu[49] = "";                           ///< brand string
};

}  // namespace neap
