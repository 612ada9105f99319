// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/package.hpp"

#include <algorithm>
#include <utility>

namespace neap::model {

namespace {

constexpr std::uint64_t power_ctl_c1e_promotion = 1 << 1;  // MSR_POWER_CTL (SDM volume 4, table 2-20)
// IA32_MISC_ENABLE (SDM volume 4, table 2-2): fast strings, thermal control, performance monitoring available, no BTS, no PEBS, SpeedStep,
// MONITOR.
constexpr std::uint64_t misc_enable_at_reset = 1 << 0 | 1 << 3 | 1 << 7 | 1 << 11 | 1 << 12 | 1 << 16 | 1 << 18;

// MSR_PKG_CST_CONFIG_CONTROL bits 2:0, the deepest state of the package (SDM volume 4, table 2-20 for Sandy Bridge).
PackageState deepest_allowed(std::uint64_t cstate_control) {
  switch (cstate_control & 7) {
    case 0:
      return PackageState::pc0;
    case 1:
      return PackageState::pc2;
    case 2:
    case 3:
      return PackageState::pc6;
    default:
      return PackageState::pc7;
  }
}

template <std::size_t... Index>
auto filled_with(auto value, std::index_sequence<Index...>) {
  return std::array{(static_cast<void>(Index), value)...};
}

}  // namespace

Package::Package(const CpuModel& cpu, unsigned cores)
    : cpu_(cpu),
      cores_(std::min(cores, cores_max)),
      core_(filled_with(Core(cpu.general_counters), std::make_index_sequence<cores_max>{})),
      frequency_(cpu_, cores_),
      limit_(cpu_) {
  registers_of_package.misc_enable = misc_enable_at_reset;
  registers_of_package.power_ctl = power_ctl_c1e_promotion;
  registers_of_package.cstate_control = 7;  // no limit, not locked
  const unsigned unused = cpu_.package_cores > whole_cores() ? cpu_.package_cores - whole_cores() : 0;
  other_cores_.set_watts(0, unused * cpu_.core_watts(cpu_.deepest(), cpu_.min_ratio));
  for (unsigned i = 0; i < cores_; ++i) {
    core_[i].clock.set_pace(cpu_, cpu_.base_ratio, is_shared(i));
    if (first_thread(i) == i) set_core_power(i, 0);
  }
  settle_changes(0);
}

// --- Sleep -------------------------------------------------------------------------------------------------------------------------------

State Package::lightest_sleep() const noexcept {
  const bool promoted = (registers_of_package.power_ctl & power_ctl_c1e_promotion) != 0 && cpu_.sleep[index_of(State::c1e)].present;
  return promoted ? State::c1e : State::c1;
}

State Package::sleep_of_hint(std::uint8_t hint) const noexcept {
  const State state = cpu_.state_of_hint(hint);
  return state == State::c1 ? lightest_sleep() : state;
}

bool Package::is_shared(unsigned core) const noexcept {
  const unsigned other = core ^ 1U;
  return cpu_.threads == 2 && other < cores_ && core_[other].state == State::c0;
}

// A thread has changed its state. The way into a state and out of it costs energy: as much as makes a sleep of the target residency cost
// the same as in C1.
void Package::set_core_state(unsigned number, Ticks now) noexcept {
  const unsigned first = first_thread(number);
  Whole& whole = core_[first].whole;
  State state = core_[first].state;
  for (unsigned i = first + 1; i < std::min(first + cpu_.threads, cores_); ++i) state = std::min(state, core_[i].state);
  if (state == whole.state) return;
  // The clocks of two threads differ by up to a quantum, so this change may be before the last one.
  const Ticks at = std::max(now, whole.since);
  whole.residency[index_of(whole.state)] += at - whole.since;
  if (state != State::c0) {
    const SleepState& entered = cpu_.sleep[index_of(state)];
    const unsigned ratio = core_[first].clock.ratio();
    const double saved_w = cpu_.core_watts(State::c1, ratio) - cpu_.core_watts(state, ratio);
    const double exit_j = cpu_.core_watts(State::c0, ratio) * to_seconds(entered.exit_latency);
    whole.power.add(std::max(0.0, saved_w * to_seconds(entered.target_residency) - exit_j));
  }
  whole.state = state;
  whole.since = at;
  set_core_power(first, now);
}

void Package::fall_asleep(unsigned number, State state) noexcept {
  Core& core = core_[number];
  const Ticks time = now(number);
  core.state = state;
  core.since = time;
  set_core_state(number, time);
  settle_changes(time);
}

void Package::wake(unsigned number, WakeCause cause) noexcept {
  Core& core = core_[number];
  if (core.state == State::c0) return;
  const Ticks time = now(number);
  core.residency[index_of(core.state)] += time - core.since;
  Ticks latency = cpu_.sleep[index_of(std::max(State::c1, core_state(number)))].exit_latency;
  if (package_state_ >= PackageState::pc6) latency += cpu_.package_exit_latency;
  ++core.wakeups;
  ++core.wakeups_by[index_of(cause)];
  core.state = State::c0;
  core.since = time;
  set_core_state(number, time);
  settle_changes(time);
  core.clock.wait(latency);
}

Ticks Package::residency(unsigned number, State state, Ticks until) const noexcept {
  const Core& core = core_[number];
  const Ticks time = std::max(now(number), until);
  return core.residency[index_of(state)] + (core.state == state && state != State::c0 ? time - std::min(core.since, time) : 0);
}

Ticks Package::core_residency(unsigned number, State state, Ticks until) const noexcept {
  const Whole& whole = core_[first_thread(number)].whole;
  const Ticks time = std::max(now(number), until);
  return whole.residency[index_of(state)] + (whole.state == state && state != State::c0 ? time - std::min(whole.since, time) : 0);
}

Ticks Package::package_residency(PackageState state, Ticks now) const noexcept {
  return package_residency_[index_of(state)] + (package_state_ == state ? now - std::min(package_since_, now) : 0);
}

std::array<State, cores_max> Package::states_of_cores() const noexcept {
  std::array<State, cores_max> all{};
  for (unsigned i = 0; i < cores_; ++i) all[i] = core_state(i);
  return all;
}

// A state of the package follows the least deep core: C3 and deeper bring the package along (datasheet E5-2600 volume 1, 4.2.5).
void Package::set_package_state(Ticks now) noexcept {
  State least = State::c7;
  for (unsigned i = 0; i < cores_; ++i) least = std::min(least, core_[i].state);
  const PackageState wanted = least == State::c7   ? PackageState::pc7
                              : least == State::c6 ? PackageState::pc6
                              : least == State::c3 ? PackageState::pc3
                                                   : PackageState::pc0;
  const PackageState next = std::min(wanted, deepest_allowed(registers_of_package.cstate_control));
  if (next == package_state_) return;
  // Signed, because cores' clocks differ by up to a quantum; the sums stay right.
  package_residency_[index_of(package_state_)] += now - package_since_;
  package_since_ = now;
  package_state_ = next;
}

// --- Frequency and power -----------------------------------------------------------------------------------------------------------------

void Package::set_core_power(unsigned core, Ticks now) noexcept {
  Whole& whole = core_[core].whole;
  const bool scales = whole.state <= State::c1;
  const CorePower& shares = cpu_.sleep[index_of(whole.state)].power;
  whole.power.set_watts(now, cpu_.core_watts(whole.state, core_[core].clock.ratio()));
  whole.dynamic_share.set_watts(now, scales ? shares.dynamic_w_per_v2_ghz : 0);
  whole.leakage_share.set_watts(now, scales ? shares.leakage_w_per_v : 0);
}

/// After any change: the package's state, every core's frequency, and the power of all parts.
void Package::settle_changes(Ticks now) noexcept {
  set_package_state(now);
  const auto ratios = frequency_.ratios(states_of_cores());
  unsigned active = 0, package_ratio = 0;
  for (unsigned i = 0; i < cores_; ++i) {
    Core& core = core_[i];
    const bool is_first = first_thread(i) == i;
    active += is_first && core.whole.state == State::c0 ? 1 : 0;
    if (core_state(i) <= State::c1) package_ratio = std::max<unsigned>(package_ratio, ratios[i]);
    const bool new_ratio = ratios[i] != core.clock.ratio();
    if (!new_ratio && is_shared(i) == core.clock.is_shared()) continue;
    core.clock.set_pace(cpu_, ratios[i], is_shared(i));
    if (new_ratio && is_first) set_core_power(i, now);
  }
  // In C1E and deeper states cores request the lowest ratio (datasheet E5-2600 volume 1, 4.2.4).
  const bool is_clocked = package_ratio != 0 && package_state_ <= PackageState::pc2;
  uncore_.set_watts(now, cpu_.uncore_watts(package_state_, std::max(package_ratio, cpu_.min_ratio)));
  uncore_share_.set_watts(now, is_clocked ? cpu_.uncore_dynamic_w_per_v2_ghz : 0);
  dram_.set_watts(now, cpu_.dram_idle_w + active * cpu_.dram_w_per_active_core);
}

void Package::set_perf_ctl(unsigned core, std::uint64_t value) noexcept {
  frequency_.set_perf_ctl(core, value);
  settle_changes(now(core));
}
void Package::set_hwp_request(unsigned core, std::uint64_t value) noexcept {
  const bool was_autonomous = frequency_.is_autonomous();
  frequency_.set_hwp_request(core, value);
  if (!was_autonomous) control(now(core));
  settle_changes(now(core));
}
void Package::set_turbo_off(unsigned core, bool off) noexcept {
  frequency_.set_turbo_off(off);
  settle_changes(now(core));
}

double Package::highest_watts() const noexcept {
  return cpu_.uncore_watts(PackageState::pc0, cpu_.highest_ratio()) + whole_cores() * cpu_.core_watts(State::c0, cpu_.highest_ratio()) +
         other_cores_.watts();
}

void Package::set_power_limit(unsigned core, bool on, double watts, double window_seconds) noexcept {
  control(now(core));  // a period begins
  limit_.set(on, watts, window_seconds);
  limit_matters_ = on && watts < highest_watts();
  frequency_.set_cap(limit_.cap());
  settle_changes(now(core));
}

Ticks Package::next_control() const noexcept {
  return limit_matters_ || frequency_.is_autonomous() ? period_began_ + PowerLimit::period : ~Ticks{0};
}

void Package::control(Ticks now) noexcept {
  if (now <= period_began_) return;
  const double seconds = to_seconds(now - period_began_);
  double dynamic = 0, leakage = 0, scaled_j = 0;
  book(now);
  for (unsigned i = 0; i < cores_; ++i) {
    Core& core = core_[i];
    dynamic += core.whole.dynamic_share.joules();
    leakage += core.whole.leakage_share.joules();
    frequency_.set_utilization(i, std::min(1.0, to_seconds(core.clock.busy() - core.busy_at_period) / seconds));
    core.busy_at_period = core.clock.busy();
  }
  dynamic += uncore_share_.joules();
  const double joules = package_joules(now);
  PowerShares shares{.dynamic_w_per_v2_ghz = (dynamic - dynamic_at_period_) / seconds,
                     .leakage_w_per_v = (leakage - leakage_at_period_) / seconds};
  const double watts = (joules - joules_at_period_) / seconds;
  // The rest does not scale. It is inexact if cores ran at several ratios within the period; the next period corrects that.
  const double v = cpu_.volts(core_[0].clock.ratio());
  scaled_j = shares.dynamic_w_per_v2_ghz * v * v * gigahertz_of(core_[0].clock.ratio()) + shares.leakage_w_per_v * v;
  shares.other_w = std::max(0.0, watts - scaled_j);
  period_began_ = now;
  joules_at_period_ = joules;
  dynamic_at_period_ = dynamic;
  leakage_at_period_ = leakage;
  if (limit_.end_period(watts, seconds, shares)) frequency_.set_cap(limit_.cap());
  settle_changes(now);
}

// --- Counters ----------------------------------------------------------------------------------------------------------------------------

Executed Package::counts_of(const Work& work) const noexcept {
  return {.instructions = work.instructions,
          .core_cycles = work.core_cycles(),
          .reference_cycles = cycles_of(work.busy, cpu_.base_ratio),
          .bus_cycles = cycles_of(work.busy, 1)};
}

void Package::book(Ticks now) noexcept {
  for (unsigned i = 0; i < cores_; ++i) {
    core_[i].whole.power.book(now);
    core_[i].whole.dynamic_share.book(now);
    core_[i].whole.leakage_share.book(now);
  }
  other_cores_.book(now);
  uncore_.book(now);
  uncore_share_.book(now);
  dram_.book(now);
}

double Package::cores_joules(Ticks now) noexcept {
  book(now);
  double sum = other_cores_.joules();
  for (unsigned i = 0; i < cores_; ++i) sum += core_[i].whole.power.joules();
  return sum;
}
double Package::package_joules(Ticks now) noexcept { return cores_joules(now) + uncore_.joules(); }
double Package::dram_joules(Ticks now) noexcept {
  book(now);
  return dram_.joules();
}

}  // namespace neap::model
