// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/report.hpp"

#include <utility>

#include "kernel/x86/firmware/cpu_facts.hpp"

namespace neap::x86::power {

namespace {

// Separates the parts of a line.
class Separator {
 public:
  explicit Separator(const char* first, const char* others = ", ") : next_(first), others_(others) {}
  const char* operator()() { return std::exchange(next_, others_); }

 private:
  const char* next_;
  const char* others_;
};

const char* package_state(PackageLimits meaning, unsigned code) {
  constexpr std::array sandy_bridge{"none",     "C2",         "C6 without retention", "C6 with retention", "C7", "C7 with the cache shrunk",
                                    "(code 6)", "the deepest"};
  constexpr std::array skylake_server{"none", "C2", "C6 without retention", "C6", "(code 4)", "(code 5)", "(code 6)", "the deepest"};
  return meaning == PackageLimits::sandy_bridge ? sandy_bridge[code] : skylake_server[code];
}

void add_watts(Line& line, std::uint32_t power_units, RaplUnits units) { line << milliwatts_of(power_units, units) / 1000 << " W"; }

}  // namespace

Report::Report(CpuAccess& cpu, const PowerAbilities& abilities) noexcept {
  const cpu_facts::Identity identity = cpu_facts::identify(cpu);
  const std::uint32_t largest_leaf = cpu.cpuid(0, 0).eax;
  const Model* const model = identity.intel ? find_model(identity.family, identity.model) : nullptr;
  wake_times(abilities);
  left_out(abilities);
  if (identity.intel && identity.family == 6 && !identity.hypervisor) {
    if (largest_leaf >= 6) hwp(cpu);
    if (model != nullptr) turbo(cpu, *model);
    limits(cpu, model);
    demotion(cpu, model);
  }
  counters(cpu, largest_leaf);
}

// A time that was measured here and one of the table are different things, so the line names the source of each group.
void Report::wake_times(const PowerAbilities& abilities) noexcept {
  std::uint32_t known = 0;
  for (unsigned state = 0; state < c_states; ++state) known |= abilities.wake_us[state] != 0 ? 1U << state : 0;
  if (known == 0) return;
  Line& line = next() << "wake-up times";
  Separator between_groups(", ", "; ");
  const auto group = [&](const char* source, std::uint32_t states) {
    if (states == 0) return;
    line << between_groups() << source;
    Separator between(" ");
    for (unsigned state = 0; state < c_states; ++state) {
      if ((states >> state & 1) != 0) line << between() << abilities.wake_us[state] << " us from " << idle_state_names[state];
    }
  };
  group("measured:", known & abilities.wake_us_measured);
  group("from the table:", known & ~std::uint32_t{abilities.wake_us_measured});
}

// SDM 3B, 15.4.3: the capabilities can be read only while HWP is on.
void Report::hwp(CpuAccess& cpu) noexcept {
  constexpr std::uint64_t hwp_bit = bit(7), preference_bit = bit(10);
  const CpuidWords leaf = cpu.cpuid(6, 0);
  if ((leaf.eax & hwp_bit) == 0) return;
  const auto enabled = cpu.read_msr(msr::hwp_enable);
  if (!enabled || (*enabled & 1) == 0) {
    next() << "HWP is available but off";
    return;
  }
  const auto has = cpu.read_msr(msr::hwp_capabilities);
  const auto asked = cpu.read_msr(msr::hwp_request);
  if (!has || !asked) return;
  Line& line = next() << "HWP is on, its performance " << bits(*has, 24, 8) << " lowest, " << bits(*has, 16, 8) << " efficient, "
                      << bits(*has, 8, 8) << " guaranteed, " << bits(*has, 0, 8) << " highest";
  if ((leaf.eax & preference_bit) != 0) line << "; energy preference " << bits(*asked, 24, 8) << " of 255";
}

void Report::turbo(CpuAccess& cpu, const Model& model) noexcept {
  constexpr unsigned steps = 8;
  const auto ratios = cpu.read_msr(msr::turbo_ratio_limit);
  // Each ratio applies up to a number of active cores: the ratio's position or, on models with groups of cores, a byte of MSR 1AEh.
  const auto sizes = model.turbo_by_group ? cpu.read_msr(msr::turbo_group_sizes) : Result<std::uint64_t>(0x08'07'06'05'04'03'02'01);
  if (!ratios || !sizes || *ratios == 0) return;
  Line& line = next() << "turbo ratio";
  Separator between(" ");
  for (unsigned i = 0; i < steps; ++i) {
    const auto ratio = bits(*ratios, 8 * i, 8), up_to = bits(*sizes, 8 * i, 8);
    const bool same_goes_on = i + 1 < steps && bits(*ratios, 8 * (i + 1), 8) == ratio && bits(*sizes, 8 * (i + 1), 8) >= up_to;
    if (ratio == 0 || up_to == 0 || same_goes_on) continue;
    line << between() << ratio << " to " << up_to << (up_to == 1 ? " core" : " cores");
  }
}

void Report::limits(CpuAccess& cpu, const Model* model) noexcept {
  Line line;
  Separator between("", "; ");
  if (const auto raw_units = cpu.read_msr(msr::rapl_power_unit); raw_units && *raw_units != 0) {
    const RaplUnits units = rapl_units(*raw_units);
    if (const auto package = cpu.read_msr(msr::package_power_limit)) {
      const bool locked = (*package & power_limit_lock) != 0;
      if ((*package & limit1_enable) != 0) {
        line << between() << "package ";
        add_watts(line, static_cast<std::uint32_t>(*package & limit1_mask), units);
        if (const auto short_units = limit2_power_units(*package)) add_watts(line << ", short-term ", short_units, units);
        if (locked) line << ", locked";
      } else if (locked) {
        line << between() << "package none, locked";
      }
    }
    const auto domain = [&](const char* name, std::uint32_t number) {
      const auto raw = cpu.read_msr(number);
      if (!raw || *raw == 0) return;
      line << between() << name << ' ';
      if (const auto limit = domain_limit_power_units(*raw)) {
        add_watts(line, limit, units);
      } else {
        line << "none";
      }
      if ((*raw & domain_limit_lock) != 0) line << ", locked";
    };
    domain("DRAM", msr::dram_power_limit);
    domain("cores", msr::cores_power_limit);
  }
  if (const auto control = cpu.read_msr(msr::package_cstate_control); model != nullptr && control) {
    const unsigned code = package_cstate_code(*control);
    line << between() << "package C-state limit ";
    if (model->package_limits == PackageLimits::unknown) {
      line << "code " << code;
    } else {
      line << package_state(model->package_limits, code);
    }
    if ((*control & package_cstate_lock) != 0) line << ", locked";
  }
  if (!line.text().empty()) next() << "firmware's limits: " << line.text();
}

// Reports firmware's setting for the demotion of C-states. Each core turns demotion off as it starts, unless demotion=kept is set.
void Report::demotion(CpuAccess& cpu, const Model* model) noexcept {
  const std::uint64_t left = cpu.read_msr(msr::package_cstate_control).value_or(0) & demotion_bits(model);
  if (left == 0) return;
  Line& line = next() << "firmware lets the CPU demote C-states:";
  Separator between(" ");
  if ((left & demote_to_c3) != 0) line << between() << "to C3";
  if ((left & demote_to_c1) != 0) line << between() << "to C1";
  if ((left & (undemote_c3 | undemote_c1)) != 0) line << between() << "with undemotion";
}

void Report::left_out(const PowerAbilities& abilities) noexcept {
  if (abilities.timer_stops) {
    next() << "this CPU's APIC timer stops in C3 and deeper (no ARAT in CPUID leaf 6), so only parked cores use them";
  }
  if (abilities.writes_missed) {
    next() << "this CPU's MONITOR may miss a write (erratum): cores are woken by interrupts, and idle=monitor is not available";
  }
}

// Reports the counters that CPUID leaf 0Ah lists (SDM 3B, 20.2).
void Report::counters(CpuAccess& cpu, std::uint32_t largest_leaf) noexcept {
  const CpuidWords leaf = largest_leaf >= 10 ? cpu.cpuid(10, 0) : CpuidWords{};
  const unsigned threads = threads_of_core(cpu);
  const auto version = bits(leaf.eax, 0, 8);
  if (version == 0 && threads == 1) return;
  Line& line = next();
  Separator between("");
  if (version != 0) {
    line << between() << "performance counters version " << version << ", " << bits(leaf.eax, 8, 8) << " of " << bits(leaf.eax, 16, 8)
         << " bits";
    if (version >= 2) line << " and " << bits(leaf.edx, 0, 5) << " fixed of " << bits(leaf.edx, 5, 8);
  }
  if (threads > 1) line << between() << threads << " threads of a core share its frequency and C-state";
}

unsigned threads_of_core(CpuAccess& cpu) noexcept {
  constexpr std::uint64_t level_thread = 1;
  const std::uint32_t largest = cpu.cpuid(0, 0).eax;
  for (const std::uint32_t leaf : {0x1fU, 0x0bU}) {
    if (largest < leaf) continue;
    const CpuidWords words = cpu.cpuid(leaf, 0);
    if (words.ebx == 0 || bits(words.ecx, 8, 8) != level_thread) continue;
    return static_cast<unsigned>(bits(words.ebx, 0, 16));
  }
  return 1;
}

}  // namespace neap::x86::power
