// SPDX-License-Identifier: BSL-1.0
#include "observe/machine_list.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "kernel/policy.hpp"
#include "observe/built_in.hpp"
#include "observe/json.hpp"
#include "observe/log_configuration.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

constexpr std::size_t command_line_bytes_max = 2048;
constexpr std::uint32_t khz_per_mhz = 1000;

/// Digits of `value` after 0x, at least `digits_min` of them.
std::string hex(std::uint64_t value, std::size_t digits_min) {
  std::string digits = hexadecimal(value).substr(2);
  if (digits.size() < digits_min) digits.insert(0, digits_min - digits.size(), '0');
  return "0x" + digits;
}

/// Adds the value of `of(core)` for the first `cores` cores: one value if all are equal, otherwise a list. Leaves the member out if a core
/// has no value.
template <typename Of>
void add_of_cores(Json& json, std::string_view name, unsigned cores, Of of) {
  using Known = typename decltype(of(0U))::value_type;
  std::vector<Known> values;
  for (unsigned core = 0; core < cores; ++core) {
    const auto value = of(core);
    if (!value) return;
    values.push_back(*value);
  }
  if (values.empty()) return;
  const bool equal = std::ranges::all_of(values, [&](const Known& value) { return value == values.front(); });
  if (!equal) json.open_list(name);
  for (const Known& value : values) {
    if constexpr (std::is_same_v<Known, bool>) {
      equal ? json.boolean(name, value) : json.boolean_element(value);
    } else if constexpr (std::is_integral_v<Known>) {
      equal ? json.number(name, value) : json.number_element(value);
    } else {
      equal ? json.text(name, value) : json.text_element(value);
    }
    if (equal) return;
  }
  json.close_list();
}

void add_system(Json& json, const BootFacts& boot) {
  json.text("system", "neap");
  json.text("system_version", bounded(boot.version));
  const std::string commit = commit_text(boot.commit);
  const std::string build = commit + (commit.empty() || boot.build.empty() ? "" : ", ") + std::string(boot.build);
  if (!build.empty()) json.text("system_build", bounded(build));
  json.text_up_to(json.bytes() + command_line_bytes_max, "command_line", boot.command_line);
  const MachineFacts& facts = machine::facts();
  const std::string_view hypervisor(facts.hypervisor_name.data());
  if (facts.modelled) {
    json.text("clock", "modelled");
  } else if (facts.hypervisor) {
    json.text("clock", hypervisor.empty() ? "hypervisor" : hypervisor);
  } else {
    json.text("clock", "metal");
  }
}

void add_cpu(Json& json) {
  const MachineFacts& facts = machine::facts();
  if (const std::string_view cpu = machine::power_abilities().cpu; !cpu.empty()) json.text("cpu_model", cpu);
  if (facts.signature) json.text("cpu_signature", signature_text(*facts.signature));
  if (facts.microcode) json.text("cpu_microcode", hexadecimal(*facts.microcode));
  std::vector<std::pair<unsigned, unsigned>> cores;  // package and core of the running threads
  for (unsigned present = 0; present < machine::cores_present(); ++present) {
    const machine::CorePlace place = machine::present_place(present);
    if (place.running < machine::cores_max) cores.emplace_back(place.package, place.core);
  }
  std::ranges::sort(cores);
  cores.erase(std::ranges::unique(cores).begin(), cores.end());
  json.number("cpu_packages", machine::package_count());
  json.number("cpu_cores", cores.size());
  json.number("cpu_threads", machine::core_count());
  json.number("cpu_threads_present", machine::cores_present());
  json.boolean("smt", machine::core_count() > cores.size());
  unsigned nodes = 1;
  for (unsigned core = 0; core < machine::core_count(); ++core) nodes = std::max(nodes, machine::node_of(core) + 1);
  for (const machine::MemoryRange& range : machine::usable_memory()) nodes = std::max(nodes, range.node + 1);
  json.number("numa_nodes", nodes);
  if (facts.installed_bytes) json.number("ram_bytes", *facts.installed_bytes);
}

/// The deepest state in which this core may sleep now.
std::string_view deepest_state(unsigned core) {
  const policy::CorePolicy settings = policy::of(core);
  IdleState state = settings.idle;
  if (state == IdleState::monitor) state = settings.monitor_state;
  if (state == IdleState::menu) state = machine::power_abilities().deepest;
  return idle_state_names[static_cast<unsigned>(state)];
}

void add_idle(Json& json) {
  const MachineFacts& facts = machine::facts();
  const unsigned cores = machine::core_count();
  if (facts.mwait_sub_states) json.text("mwait_sub_states", hex(*facts.mwait_sub_states, 8));
  if (facts.c_state_limit != nullptr) json.text("c_state_limit", facts.c_state_limit);
  if (facts.c_state_limit_locked) json.boolean("c_state_limit_locked", *facts.c_state_limit_locked);
  std::vector<std::string_view> states;
  for (unsigned state = 0; state < c_states; ++state) {
    if (facts.mwait_hints[state]) states.emplace_back(idle_state_names[state]);
  }
  if (!states.empty()) json.list("c_states", states);
  add_of_cores(json, "c_state_deepest", cores, [](unsigned core) { return std::optional(deepest_state(core)); });
  json.text("idle_driver", states.empty() ? "halt" : "mwait");
  add_of_cores(json, "idle_governor", cores, [](unsigned core) {
    return std::optional<std::string_view>(idle_state_names[static_cast<unsigned>(policy::of(core).idle)]);
  });
  add_of_cores(json, "busy_poll_us", cores, [](unsigned core) { return std::optional(policy::of(core).poll_budget_us); });
}

/// A preference by the names of Linux, or as a number.
std::string preference_text(unsigned preference) {
  switch (preference) {
    case 0:
      return "performance";
    case 128:
      return "balance_performance";
    case 192:
      return "balance_power";
    case 255:
      return "power";
    default:
      return std::to_string(preference);
  }
}

void add_frequencies(Json& json, const PowerAbilities& abilities) {
  if (!abilities.pstates || abilities.ratio_khz == 0) return;
  const auto mhz_of = [&](std::uint64_t ratio) { return ratio * abilities.ratio_khz / khz_per_mhz; };
  json.number("frequency_min_mhz", mhz_of(abilities.ratio_min));
  json.number("frequency_base_mhz", mhz_of(abilities.ratio_max));
  json.number("frequency_max_mhz", mhz_of(abilities.ratio_turbo_max));
  const auto fixed = [&](unsigned core) -> std::optional<std::uint64_t> {
    const std::uint64_t request = policy::of(core).pstate;  // as IA32_PERF_CTL: the ratio in bits 15:8
    return request == 0 ? std::nullopt : std::optional(mhz_of(request >> 8 & 0xff));
  };
  add_of_cores(json, "frequency_limit_min_mhz", machine::core_count(), fixed);
  add_of_cores(json, "frequency_limit_max_mhz", machine::core_count(), fixed);
  json.text("pstate_driver", abilities.hwp ? "hwp" : "perf_ctl");
  add_of_cores(json, "pstate_governor", machine::core_count(),
               [](unsigned core) { return std::optional<std::string_view>(policy::of(core).pstate == 0 ? "firmware" : "fixed"); });
}

void add_power(Json& json) {
  const PowerAbilities& abilities = machine::power_abilities();
  const MachineFacts& facts = machine::facts();
  const unsigned cores = machine::core_count();
  add_frequencies(json, abilities);
  json.boolean("hwp", abilities.hwp);
  if (abilities.energy_preference) {
    add_of_cores(json, "epp", cores, [](unsigned core) -> std::optional<std::string> {
      const unsigned preference = policy::of(core).epp;
      return preference == machine::firmwares_preference ? std::nullopt : std::optional(preference_text(preference));
    });
  }
  if (abilities.turbo) {
    add_of_cores(json, "turbo", cores, [&](unsigned core) -> std::optional<bool> {
      constexpr unsigned never_set = 2;
      if (const unsigned turbo = policy::of(core).turbo; turbo != never_set) return turbo == 1;
      return facts.turbo_off ? std::optional(!*facts.turbo_off) : std::nullopt;
    });
  }
  add_of_cores(json, "power_limit_1_mw", cores, [&](unsigned core) -> std::optional<std::uint32_t> {
    const std::uint32_t limit = policy::of(core).power_limit_mw;
    return limit == 0 ? facts.power_limit_mw : limit;
  });
  if (facts.power_limit_2_mw) json.number("power_limit_2_mw", *facts.power_limit_2_mw);
}

void add_time(Json& json) {
  json.number("tsc_hz", machine::timestamp_hz());
  if (machine::facts().tsc_invariant) json.boolean("tsc_invariant", *machine::facts().tsc_invariant);
  json.text("clock_source", "tsc");
}

void add_card(Json& json, const NetDevice& device) {
  constexpr std::uint32_t ethernet_header_bytes = 14;
  const NetDeviceIdentity identity = device.identity();
  const NetDeviceLimits limits = device.limits();
  json.text("card_pci_id", hex(identity.vendor_id, 4).substr(2) + ':' + hex(identity.device_id, 4).substr(2));
  json.number("card_pci_revision", identity.revision);
  json.text("card_driver", "neap");
  json.boolean("link_up", device.link_up());
  if (const std::uint32_t megabits = device.link_megabits(); megabits != 0) json.number("link_mbps", megabits);
  json.number("mtu_bytes", limits.frame_bytes_max - ethernet_header_bytes);
  json.number("queues", limits.queue_pairs);
  json.boolean("rss", limits.queue_pairs > 1);
  std::vector<std::string> cores;  // each queue belongs to the core with its number
  for (unsigned core = 0; core < limits.queue_pairs; ++core) cores.push_back(std::to_string(core));
  json.list("queue_cores", cores);
  json.boolean("rx_checksum", limits.checksum_offload);
  json.boolean("tx_checksum", limits.checksum_offload);
  add_of_cores(json, "tso", std::min(limits.transmit_queues, machine::core_count()),
               [](unsigned core) { return std::optional(policy::of(core).segmentation != policy::Segmentation::off); });
}

void add_card_settings(Json& json, const policy::Device& card, unsigned queues) {
  const auto value_of = [&](std::string_view name) -> std::optional<std::uint32_t> {
    for (const policy::Row& row : card.settings()) {
      if (row.name == name) return card.value_of(row.setting);
    }
    return std::nullopt;
  };
  const auto number = [&](std::string_view member, std::string_view setting) {
    if (const auto value = value_of(setting)) json.number(member, *value);
  };
  const auto flag = [&](std::string_view member, std::string_view setting, std::uint32_t mask = ~0U) {
    if (const auto value = value_of(setting)) json.boolean(member, (*value & mask) != 0);
  };
  number("rx_ring_descriptors", "rx_ring");
  number("tx_ring_descriptors", "tx_ring");
  add_of_cores(json, "itr_us", std::min(queues, machine::core_count()), [&](unsigned core) { return std::optional(card.itr_us(core)); });
  json.boolean("itr_adaptive", false);
  number("pthresh_descriptors", "pthresh");
  number("hthresh_descriptors", "hthresh");
  number("wthresh_descriptors", "wthresh");
  flag("head_write_back", "head_write_back");
  flag("rsc", "rsc");
  flag("vlan_strip", "vlan");
  // The values of `flow_control` are off, receive, transmit, both.
  constexpr std::uint32_t receive = 1, transmit = 2;
  flag("pause_rx", "flow_control", receive);
  flag("pause_tx", "flow_control", transmit);
  flag("dca", "dca");
}

}  // namespace

std::string make_machine_list(const BootFacts& boot, const NetDevice* device) {
  Json json;
  add_system(json, boot);
  add_cpu(json);
  add_idle(json);
  add_power(json);
  add_time(json);
  if (device != nullptr) {
    add_card(json, *device);
    if (const policy::Device* const card = policy::device()) add_card_settings(json, *card, device->limits().queue_pairs);
  }
  return json.take();
}

task<std::string> report_machine_list(const Request& request) {
  const net::Network* const network = request.server.network();
  co_return "ok " + make_machine_list(request.server.boot(), network == nullptr ? nullptr : &network->device());
}

}  // namespace neap::observe
