// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/cpu_model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

namespace neap::model {

namespace {

using Values = std::map<std::string, std::string, std::less<>>;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < 0 || value > 1e9) return std::nullopt;
  return value;
}

// Takes keys out of the file's lines; what is left at the end is unknown. The first error is kept.
class Reader {
 public:
  explicit Reader(Values values) : values_(std::move(values)) {}

  std::string text(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      fail(key + " is missing");
      return {};
    }
    std::string value = std::move(found->second);
    values_.erase(found);
    return value;
  }
  double number(const std::string& key) {
    const std::string word = text(key);
    const auto value = number_in(word);
    if (!value) fail(key + " is no number from 0 to 1e9: '" + word + "'");
    return value.value_or(0);
  }
  unsigned whole(const std::string& key, unsigned most) {
    const double value = number(key);
    if (value != std::floor(value) || value > most) fail(key + " is no whole number up to " + std::to_string(most));
    return error_.empty() ? static_cast<unsigned>(value) : 0;
  }
  std::vector<double> list(const std::string& key) {
    std::vector<double> numbers;
    std::string words = text(key);
    for (std::string_view rest = trimmed(words); !rest.empty();) {
      const auto length = std::min(rest.find(' '), rest.size());
      const auto value = number_in(rest.substr(0, length));
      if (!value) fail(key + " holds something that is no number");
      numbers.push_back(value.value_or(0));
      rest = trimmed(rest.substr(length));
    }
    return numbers;
  }
  bool flag(const std::string& key) {
    const std::string word = text(key);
    if (word != "true" && word != "false") fail(key + " is neither true nor false");
    return word == "true";
  }
  [[nodiscard]] bool has(const std::string& key) const { return values_.contains(key); }
  void fail(std::string why) {
    if (error_.empty()) error_ = std::move(why);
  }
  /// Empty: all went well, and no key is left.
  std::string error() {
    if (!values_.empty()) fail("unknown key " + values_.begin()->first);
    return error_;
  }

 private:
  Values values_;
  std::string error_;
};

CorePower core_power(Reader& in, const std::string& prefix) {
  return {.dynamic_w_per_v2_ghz = in.number(prefix + "dynamic_w_per_v2_ghz"), .leakage_w_per_v = in.number(prefix + "leakage_w_per_v")};
}

void read_threads(Reader& in, CpuModel& cpu) {
  cpu.threads = in.whole("smt.threads", 2);
  cpu.thread_speed = in.number("smt.thread_speed");
  cpu.general_counters = in.whole("counters.general", 8);
  const unsigned of_a_thread = in.whole("smt.general_counters", 8);
  if (cpu.threads == 0) in.fail("smt.threads must be 1 or 2");
  if (cpu.thread_speed <= 0 || cpu.thread_speed > 1) in.fail("smt.thread_speed must be above 0 and at most 1");
  if (cpu.threads == 2) cpu.general_counters = of_a_thread;
}

void read_frequencies(Reader& in, CpuModel& cpu) {
  cpu.min_ratio = in.whole("frequency.min_ratio", 255);
  cpu.efficient_ratio = in.whole("frequency.efficient_ratio", 255);
  cpu.base_ratio = in.whole("frequency.base_ratio", 255);
  const auto turbo = in.list("frequency.turbo_ratios");
  if (turbo.empty() || turbo.size() > cpu.turbo_ratios.size()) in.fail("frequency.turbo_ratios needs 1 to 64 ratios");
  cpu.turbo_steps = static_cast<unsigned>(std::min(turbo.size(), cpu.turbo_ratios.size()));
  for (unsigned i = 0; i < cpu.turbo_steps; ++i) {
    if (turbo[i] < cpu.base_ratio || turbo[i] > 255 || (i != 0 && turbo[i] > turbo[i - 1])) {
      in.fail("frequency.turbo_ratios must fall, from 255 at most to frequency.base_ratio at least");
    }
    cpu.turbo_ratios[i] = static_cast<std::uint8_t>(turbo[i]);
  }
  if (cpu.min_ratio == 0 || cpu.min_ratio > cpu.efficient_ratio || cpu.efficient_ratio > cpu.base_ratio) {
    in.fail("frequency.min_ratio, efficient_ratio and base_ratio must rise, from 1 on");
  }
  cpu.per_core_frequency = in.flag("frequency.per_core");
  cpu.hwp = in.flag("frequency.hwp");
  cpu.min_volts = in.number("frequency.min_volts");
  cpu.max_volts = in.number("frequency.max_volts");
  if (cpu.min_volts <= 0 || cpu.min_volts > cpu.max_volts) in.fail("frequency.min_volts must be above 0 and at most frequency.max_volts");
}

void read_sleep(Reader& in, CpuModel& cpu) {
  cpu.sleep[0].power = core_power(in, "energy.core_");
  for (unsigned i = 1; i < state_count; ++i) {
    const std::string prefix = std::string("sleep.") + state_names[i] + ".";
    SleepState& state = cpu.sleep[i];
    state.present = in.has(prefix + "hint");
    if (!state.present) continue;
    state.hint = static_cast<std::uint8_t>(in.whole(prefix + "hint", 0xef));
    state.exit_latency = static_cast<Ticks>(in.number(prefix + "exit_latency_us") * static_cast<double>(ticks_per_us));
    state.target_residency = static_cast<Ticks>(in.number(prefix + "target_residency_us") * static_cast<double>(ticks_per_us));
    state.power = core_power(in, prefix);
  }
  if (!cpu.sleep[index_of(State::c1)].present) in.fail("sleep.C1 is missing: HLT needs it");
  cpu.package_exit_latency = static_cast<Ticks>(in.number("sleep.package_exit_latency_us") * static_cast<double>(ticks_per_us));
}

void read_energy(Reader& in, CpuModel& cpu) {
  for (unsigned i = 0; i < package_state_count; ++i) {
    std::string key = std::string("energy.uncore_") + package_state_names[i] + "_w";
    cpu.uncore_w[i] = in.number(key);
  }
  cpu.uncore_dynamic_w_per_v2_ghz = in.number("energy.uncore_dynamic_w_per_v2_ghz");
  cpu.dram_idle_w = in.number("energy.dram_idle_w");
  cpu.dram_w_per_active_core = in.number("energy.dram_w_per_active_core");
  cpu.tdp_w = in.number("energy.tdp_w");
  cpu.power_min_w = in.number("energy.power_min_w");
  cpu.power_max_w = in.number("energy.power_max_w");
  cpu.energy_unit_exponent = in.whole("energy.unit_exponent", 31);
  cpu.dram_unit_exponent = in.whole("energy.dram_unit_exponent", 31);
}

}  // namespace

std::expected<CpuModel, std::string> parse_cpu_model(std::string_view text) {
  Values values;
  for (unsigned number = 1; !text.empty(); ++number) {
    const auto length = std::min(text.find('\n'), text.size());
    const auto line = trimmed(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
    if (line.empty()) continue;
    const auto equals = line.find('=');
    const auto key = trimmed(line.substr(0, std::min(equals, line.size())));
    if (equals == std::string_view::npos || key.empty()) return std::unexpected("line " + std::to_string(number) + " is not 'key = value'");
    if (!values.emplace(key, trimmed(line.substr(equals + 1))).second) return std::unexpected(std::string(key) + " is there twice");
  }
  Reader in(std::move(values));
  CpuModel cpu;
  cpu.name = in.text("identity.name");
  cpu.family = in.whole("identity.family", 255);
  cpu.model = in.whole("identity.model", 255);
  cpu.stepping = in.whole("identity.stepping", 15);
  cpu.package_cores = in.whole("identity.package_cores", 64);
  cpu.cycles_per_instruction = in.number("pace.cycles_per_instruction");
  cpu.unscaled_ps_per_instruction = in.number("pace.unscaled_ps_per_instruction");
  cpu.pause_cycles = in.whole("pace.pause_cycles", 1000);
  if (cpu.cycles_per_instruction <= 0) in.fail("pace.cycles_per_instruction must be above 0");
  if (cpu.package_cores == 0) in.fail("identity.package_cores must be above 0");
  read_frequencies(in, cpu);
  read_sleep(in, cpu);
  read_energy(in, cpu);
  read_threads(in, cpu);
  if (std::string error = in.error(); !error.empty()) return std::unexpected(std::move(error));
  return cpu;
}

unsigned CpuModel::turbo_ratio(unsigned active) const noexcept { return turbo_ratios[std::clamp(active, 1U, turbo_steps) - 1]; }

double CpuModel::volts(unsigned ratio) const noexcept {
  const unsigned range = highest_ratio() - min_ratio;
  if (range == 0) return max_volts;
  return min_volts + (max_volts - min_volts) * (std::clamp(ratio, min_ratio, highest_ratio()) - min_ratio) / range;
}

Ticks CpuModel::time_per_instruction(unsigned ratio, bool shared) const noexcept {
  const double by_frequency = cycles_per_instruction * static_cast<double>(ticks_per_bus_clock) / ratio;
  const double by_memory = unscaled_ps_per_instruction * static_cast<double>(ticks_per_ns) / 1000;
  return std::max<Ticks>(1, static_cast<Ticks>(std::llround((by_frequency + by_memory) / (shared ? thread_speed : 1))));
}

double CpuModel::core_watts(State state, unsigned ratio) const noexcept {
  // C1E: the core itself lowers its frequency and voltage.
  const unsigned used = state == State::c1e ? min_ratio : ratio;
  const CorePower& power = sleep[index_of(state)].power;
  const double v = volts(used);
  return power.dynamic_w_per_v2_ghz * v * v * gigahertz_of(used) + power.leakage_w_per_v * v;
}

double CpuModel::uncore_watts(PackageState state, unsigned ratio) const noexcept {
  const double v = volts(ratio);
  const double clocked_w = state <= PackageState::pc2 ? uncore_dynamic_w_per_v2_ghz * v * v * gigahertz_of(ratio) : 0;
  return uncore_w[index_of(state)] + clocked_w;
}

State CpuModel::state_of_hint(std::uint8_t hint) const noexcept {
  State found = State::c1;
  for (unsigned i = 1; i < state_count; ++i) {
    if (!sleep[i].present) continue;
    if (sleep[i].hint == hint) return static_cast<State>(i);
    if (sleep[i].hint < hint) found = static_cast<State>(i);
  }
  return found;
}

State CpuModel::deepest() const noexcept {
  for (unsigned i = state_count; i-- > 1;) {
    if (sleep[i].present) return static_cast<State>(i);
  }
  return State::c1;
}

}  // namespace neap::model
