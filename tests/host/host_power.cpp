// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "kernel/machine.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

constexpr PowerAbilities plain = [] {
  PowerAbilities abilities;
  abilities.idle_states |= 1 << static_cast<unsigned>(IdleState::poll);
  return abilities;
}();

std::mutex mutex;
PowerAbilities abilities = plain;
MachineFacts machine_facts;
unsigned cores_per_package = 0, failing_core = host::no_core;
std::vector<host::PowerCall> calls;
std::array<CounterSample, machine::cores_max> counters{};
std::array<std::atomic<unsigned>, machine::cores_max> error_looks{};
std::array<std::atomic<std::uint8_t>, machine::cores_max> granted_ratios{};

Result<void> note(host::PowerCall::Kind kind, std::uint64_t value) {
  const std::lock_guard lock(mutex);
  if (machine::this_core() == failing_core) return failure(ErrorCode::unsupported, "this MSR faults", value);
  calls.push_back({kind, machine::this_core(), value});
  return {};
}

}  // namespace

namespace machine {

const PowerAbilities& power_abilities() noexcept { return abilities; }
const MachineFacts& facts() noexcept { return machine_facts; }
unsigned package_of(unsigned core) noexcept { return cores_per_package == 0 ? 0 : core / cores_per_package; }
Result<std::uint8_t> cache_tag(unsigned) noexcept { return failure(ErrorCode::unsupported, "the host lends no cache"); }
unsigned package_count() noexcept { return package_of(core_count() - 1) + 1; }
Result<void> set_pstate(std::uint64_t raw) noexcept { return note(host::PowerCall::Kind::pstate, raw); }
Result<void> set_energy_preference(unsigned preference) noexcept { return note(host::PowerCall::Kind::energy_preference, preference); }
Result<std::uint8_t> granted_ratio() noexcept {
  const std::uint8_t ratio = granted_ratios[this_core()].load();
  if (ratio == 0) return failure(ErrorCode::unsupported, "the host does not tell its ratio");
  return ratio;
}
// Rounds to eighths of a watt, like most CPUs.
Result<std::uint32_t> set_power_limit(std::uint32_t milliwatts) noexcept {
  const std::uint32_t rounded = (milliwatts + 62) / 125 * 125;
  if (const auto noted = note(host::PowerCall::Kind::power_limit, rounded); !noted) return std::unexpected(noted.error());
  return rounded;
}
Result<void> set_turbo(bool on) noexcept { return note(host::PowerCall::Kind::turbo, on ? 1 : 0); }

// The host's CPU has a few events.
std::expected<std::uint32_t, std::string> find_event(std::string_view text) {
  if (text == "branch_misses") return 0x4300c5;
  if (text == "instructions") return 0x4300c0;
  if (text == "event=0xd1,umask=0x20") return 0x4320d1;
  return std::unexpected("'" + std::string(text) + "' is no event that this CPU is known to have: branch_misses");
}
void choose_events(std::span<const std::uint32_t>) noexcept {}
Result<void> count_chosen_events() noexcept { return {}; }

CounterSample sample_counters() noexcept {
  const std::lock_guard lock(mutex);
  return counters[this_core()];
}

std::optional<std::uint32_t> system_management_interrupts() noexcept { return std::nullopt; }
HardwareErrors hardware_errors() noexcept { return {}; }
void check_hardware_errors() noexcept { error_looks[this_core()].fetch_add(1); }

}  // namespace machine

namespace host {

void set_power_abilities(const PowerAbilities& wanted) { abilities = wanted; }
void set_machine_facts(const MachineFacts& wanted) { machine_facts = wanted; }
void set_cores_per_package(unsigned cores) { cores_per_package = cores; }

void set_counters(unsigned core, const CounterSample& sample) {
  const std::lock_guard lock(mutex);
  counters[core] = sample;
}
std::vector<PowerCall> take_power_calls() {
  const std::lock_guard lock(mutex);
  return std::exchange(calls, {});
}
void set_granted_ratio(unsigned core, std::uint8_t ratio) { granted_ratios[core] = ratio; }
unsigned take_error_looks(unsigned core) { return error_looks[core].exchange(0); }
void fail_power_calls(unsigned core) {
  const std::lock_guard lock(mutex);
  failing_core = core;
}

}  // namespace host
}  // namespace neap
