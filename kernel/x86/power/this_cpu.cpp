// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/this_cpu.hpp"

#include <array>
#include <atomic>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/memory.hpp"
#include "kernel/x86/msr.hpp"
#include "kernel/x86/power/cpu_power.hpp"
#include "kernel/x86/power/facts.hpp"
#include "kernel/x86/power/report.hpp"

namespace neap::x86::power {

constinit std::array<std::array<SleepPlan, 2>, idle_states> sleep_plans{};

namespace {

class ThisCpu final : public CpuAccess {
 public:
  [[nodiscard]] CpuidWords cpuid(std::uint32_t leaf, std::uint32_t subleaf) noexcept override {
    const CpuidResult words = x86::cpuid(leaf, subleaf);
    return {.eax = words.eax, .ebx = words.ebx, .ecx = words.ecx, .edx = words.edx};
  }
  [[nodiscard]] Result<std::uint64_t> read_msr(std::uint32_t msr) noexcept override { return x86::read_msr(msr); }
  [[nodiscard]] Result<void> write_msr(std::uint32_t msr, std::uint64_t value) noexcept override { return x86::write_msr(msr, value); }
};

constinit ThisCpu this_cpu;
constinit CpuPower cpu_power;
constinit MachineFacts machine_facts;
constinit thread_local CoreAtBoot at_boot;
constinit std::atomic<bool> demotion_reported{false};
constinit std::atomic<unsigned> parked_refused{0};

// Only core 0 writes these arrays, before the other cores enter their event loops.
constinit std::array<std::uint32_t, machine::cores_max> package_ids{};  // the CPU's package ids, indexed by our package numbers
constinit std::array<std::uint8_t, machine::cores_max> packages_of_cores{};
constinit std::atomic<unsigned> packages{0};

std::uint8_t package_number(std::uint32_t id) {
  const unsigned known = packages.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < known; ++i) {
    if (package_ids[i] == id) return static_cast<std::uint8_t>(i);
  }
  require(known < package_ids.size(), "power: more packages than cores", id);
  package_ids[known] = id;
  packages.store(known + 1, std::memory_order_relaxed);
  return static_cast<std::uint8_t>(known);
}

}  // namespace

void find_abilities(const FindOptions& options) {
  cpu_power.find(this_cpu, options);
  machine_facts = find_facts(this_cpu, cpu_power.abilities(), cpu_power.sleep_ways());
  machine_facts.modelled = features().modelled;
  std::uint64_t installed_bytes = 0;
  for (const machine::MemoryRange& range : memory::installed()) installed_bytes += range.bytes;
  machine_facts.installed_bytes = installed_bytes;
  for (unsigned state = 0; state < sleep_plans.size(); ++state)
    sleep_plans[state] = cpu_power.sleep_ways().plans(static_cast<IdleState>(state));
  Line line;
  cpu_power.describe(line);
  line.print();
  Report report(this_cpu, cpu_power.abilities());
  for (Line& more : report.lines()) more.print();
  for (unsigned state = 0; state < c_states; ++state) {
    if (options.wake_up_us[state] == 0 || (cpu_power.abilities().wake_us_measured >> state & 1) != 0) continue;
    print("neap: wake_up_times= has a time for ", idle_state_names[state], ", a state that this machine does not offer: ignored");
  }
}

void start_this_core(unsigned core) {
  require(core < machine::cores_max, "power::start_this_core: no such core", core);
  at_boot = cpu_power.start_core(this_cpu);
  if (at_boot.demotes && !demotion_reported.exchange(true)) {
    print("neap: core ", core, " keeps demoting C-states: firmware has locked the setting");
  }
}

void place_core(unsigned core, std::uint32_t apic_id) {
  require(core < machine::cores_max, "power::place_core: no such core", core);
  packages_of_cores[core] = package_number(apic_id >> package_shift(this_cpu));
}

void park_this_core() {
  if (!cpu_power.park_core(this_cpu)) parked_refused.fetch_add(1);
}

void report_parked(unsigned parked) {
  const PowerAbilities& has = cpu_power.abilities();
  if (parked == 0 || !has.pstates) return;
  const unsigned refused = parked_refused.load();
  if (refused == 0) {
    print("power: ", parked, " parked cores request the lowest P-state");
  } else {
    print("neap: ", refused, " of ", parked,
          " parked cores keep firmware's P-state request: writing it faults. It may affect the running cores");
  }
}

SleepPlan plan_parked() noexcept { return cpu_power.sleep_ways().plan_parked(); }
CpuAccess& cpu_access() noexcept { return this_cpu; }

}  // namespace neap::x86::power

namespace neap::machine {

using namespace x86;

const PowerAbilities& power_abilities() noexcept { return power::cpu_power.abilities(); }
const MachineFacts& facts() noexcept { return power::machine_facts; }

unsigned package_of(unsigned core) noexcept {
  require(core < cores_max, "package_of: no such core", core);
  return power::packages_of_cores[core];
}
unsigned package_count() noexcept { return power::packages.load(std::memory_order_relaxed); }
Result<void> set_pstate(std::uint64_t raw) noexcept { return power::cpu_power.set_pstate(power::this_cpu, power::at_boot, raw); }
Result<std::uint8_t> granted_ratio() noexcept { return power::cpu_power.granted_ratio(power::this_cpu); }
Result<void> set_energy_preference(unsigned preference) noexcept {
  return power::cpu_power.set_energy_preference(power::this_cpu, power::at_boot, preference);
}
Result<std::uint32_t> set_power_limit(std::uint32_t milliwatts) noexcept {
  return power::cpu_power.set_power_limit(power::this_cpu, power::at_boot, milliwatts);
}
Result<void> set_turbo(bool on) noexcept { return power::cpu_power.set_turbo(power::this_cpu, on); }
std::expected<std::uint32_t, std::string> find_event(std::string_view text) {
  return power::parse_event(text, power::cpu_power.event_facts());
}
void choose_events(std::span<const std::uint32_t> events) noexcept { power::cpu_power.choose_events(events); }
Result<void> count_chosen_events() noexcept { return power::cpu_power.count_chosen_events(power::this_cpu); }
CounterSample sample_counters() noexcept { return power::cpu_power.sample(power::this_cpu); }

}  // namespace neap::machine
