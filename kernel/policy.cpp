// SPDX-License-Identifier: BSL-1.0
// Core 0 carries out all changes, one at a time, and the task that asked for a change waits. So two changes never overlap, and a counter is
// enough to number them.
#include "kernel/policy.hpp"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <chrono>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernel/async_mutex.hpp"
#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/log.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy_settings.hpp"

namespace neap::policy {

namespace {

constinit std::atomic<std::uint32_t> accepted_changes{0};
constinit std::atomic<Device*> device_in_use{nullptr};
/// The network's settings, plus 1; 0: the default.
constinit std::array<std::atomic<std::uint64_t>, network_settings> network_values{};
constinit std::atomic<void (*)() noexcept> network_changed{nullptr};
using Cores = std::bitset<machine::cores_max>;
using Outcome = std::expected<Applied, Refusal>;

bool needs_interrupts(IdleState state) { return state != IdleState::poll && state != IdleState::monitor; }

template <typename T>
T load(const std::atomic<T>& value) {
  return value.load(std::memory_order_relaxed);
}
template <typename T>
void store(std::atomic<T>& place, T value) {
  place.store(value, std::memory_order_relaxed);
}

/// The place of a setting of scope `machine`.
std::atomic<std::uint64_t>& network_value(Setting setting) noexcept {
  const auto place = static_cast<unsigned>(setting) - static_cast<unsigned>(Setting::tcp_congestion);
  require(place < network_values.size(), "the network has no such setting", static_cast<unsigned>(setting));
  return network_values[place];
}

bool is_networks(Setting setting) noexcept {
  return static_cast<unsigned>(setting) - static_cast<unsigned>(Setting::tcp_congestion) < network_settings;
}

// --- Functions called on a core that applies a change ------------------------------------------------------------------------------------
Value present_value(Setting setting, const PolicySlot& slot) noexcept {
  if (is_networks(setting)) {
    const std::uint64_t set = load(network_value(setting));
    return set != 0 ? set - 1 : find_row(setting)->initial;
  }
  switch (setting) {
    case Setting::idle:
      return static_cast<Value>(load(slot.idle));
    case Setting::itr:
      return load(slot.itr_us);
    case Setting::pstate:
      return load(slot.pstate);
    case Setting::power_limit:
      return load(slot.power_limit_mw);
    case Setting::turbo:
      return load(slot.turbo);
    case Setting::poll_budget:
      return load(slot.poll_budget_us);
    case Setting::epp:
      return load(slot.epp);
    case Setting::segmentation:
      return static_cast<Value>(load(slot.segmentation));
    case Setting::monitor_state:
      return static_cast<Value>(load(slot.monitor_state));
    case Setting::adaptive_poll:
      return load(slot.adaptive_poll_us);
    default:
      break;
  }
  panic("a core has no such setting", static_cast<unsigned>(setting));
}

void follow_idle(const PolicySlot& slot) noexcept {
  constexpr std::uint64_t ns_per_us = 1000;
  event_loop.idle_by({.state = load(slot.idle),
                      .monitor_state = load(slot.monitor_state),
                      .poll_budget_ns = load(slot.poll_budget_us) * ns_per_us,
                      .adaptive_poll_ns = load(slot.adaptive_poll_us) * ns_per_us});
}

void set_idle(PolicySlot& slot, IdleState state) noexcept {
  require(static_cast<unsigned>(state) < idle_states, "a core is set to an idle state that does not exist", static_cast<unsigned>(state));
  const IdleState before = load(slot.idle);
  store(slot.idle, state);
  follow_idle(slot);
  Device* const card = device();
  if (card != nullptr && needs_interrupts(before) != needs_interrupts(state)) card->set_interrupt(this_core(), needs_interrupts(state));
}

/// Writes this core's settings into its log. `setting` is the one that has changed.
void log_settings(Setting setting, std::uint32_t card_value) noexcept {
  const PolicySlot& slot = core_state(this_core()).policy;
  log::Settings settings{};
  settings.idle_state = static_cast<std::uint8_t>(load(slot.idle));
  settings.changed = static_cast<std::uint8_t>(setting);
  settings.turbo = load(slot.turbo);
  settings.generation = load(slot.generation);
  settings.itr_us = load(slot.itr_us);
  settings.poll_budget_us = load(slot.poll_budget_us);
  settings.performance = load(slot.pstate);
  settings.power_limit_mw = load(slot.power_limit_mw);
  settings.card_value = card_value;
  log::policy_changed(settings);
}

/// Records that this core has applied change `number`, which set `row` to `value`.
void note_change(const Row& row, Value value, std::uint32_t number) noexcept {
  constexpr std::string_view field_of_all_others = Row{}.log_field;
  store(core_state(this_core()).policy.generation, number);
  log_settings(row.setting, row.log_field == field_of_all_others ? static_cast<std::uint32_t>(value) : 0);
}

/// Returns the value now in force, which the CPU may have rounded. `write_cpu`: false on the cores of a package that only record the
/// change.
Result<Value> apply_here(const Row& row, Value value, std::uint32_t number, bool write_cpu) noexcept {
  PolicySlot& slot = core_state(this_core()).policy;
  const auto small_value = static_cast<std::uint32_t>(value);
  if (is_networks(row.setting)) {
    store(network_value(row.setting), value + 1);
    if (const auto changed = load(network_changed); changed != nullptr) changed();
    note_change(row, value, number);
    return value;
  }
  switch (row.setting) {
    case Setting::segmentation:
      store(slot.segmentation, static_cast<Segmentation>(value));
      break;
    case Setting::idle:
      set_idle(slot, static_cast<IdleState>(value));
      break;
    case Setting::itr:
      if (Device* const card = device(); card != nullptr) card->set_itr(this_core(), small_value);
      store(slot.itr_us, small_value);
      break;
    case Setting::pstate:
      if (const auto set = machine::set_pstate(value); !set) return std::unexpected(set.error());
      store(slot.pstate, value);
      break;
    case Setting::power_limit:
      if (write_cpu) {
        const auto rounded = machine::set_power_limit(small_value);
        if (!rounded) return std::unexpected(rounded.error());
        value = *rounded;
      }
      store(slot.power_limit_mw, static_cast<std::uint32_t>(value));
      break;
    case Setting::turbo:
      if (write_cpu) {
        if (const auto set = machine::set_turbo(value != 0); !set) return std::unexpected(set.error());
      }
      store(slot.turbo, static_cast<std::uint8_t>(value));
      break;
    case Setting::epp:
      if (const auto set = machine::set_energy_preference(small_value); !set) return std::unexpected(set.error());
      store(slot.epp, static_cast<std::uint16_t>(value));
      break;
    case Setting::monitor_state:
      store(slot.monitor_state, static_cast<IdleState>(value));
      follow_idle(slot);
      break;
    case Setting::adaptive_poll:
      store(slot.adaptive_poll_us, small_value);
      follow_idle(slot);
      break;
    case Setting::poll_budget:
      store(slot.poll_budget_us, small_value);
      follow_idle(slot);
      break;
    default:
      panic("a core has no such setting", static_cast<unsigned>(row.setting));
  }
  note_change(row, value, number);
  return value;
}

/// Records on this core a `change` that the card has carried out.
void note_card_change(const Row& row, const Device::Change& change, std::uint32_t number) noexcept {
  PolicySlot& slot = core_state(this_core()).policy;
  if (change.segmentation && load(slot.no_segmentation) == nullptr) store(slot.segmentation, *change.segmentation);
  note_change(row, change.value, number);
  if (row.preset) log::record_configuration();
}

/// After a change of `pstate`: writes the ratio at which this core runs into its log, and returns it. 0: the CPU does not report it.
unsigned note_granted_ratio() noexcept {
  const unsigned ratio = machine::granted_ratio().value_or(0);
  if (ratio != 0) log_settings(Setting::pstate, ratio);
  return ratio;
}

// --- Functions called on core 0 ----------------------------------------------------------------------------------------------------------
Cores cores_in_scope(const Row& row, unsigned core) {
  Cores cores;
  for (unsigned i = 0; i < core_count(); ++i) {
    cores[i] = core == all_cores || i == core || (row.scope == Scope::package && machine::package_of(i) == machine::package_of(core));
  }
  return cores;
}

std::string text_of(const Cores& cores) {
  std::string text;
  for (unsigned first = 0; first < cores.size(); ++first) {
    if (!cores[first]) continue;
    unsigned last = first;
    while (last + 1 < cores.size() && cores[last + 1]) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last != first) text += '-' + std::to_string(last);
    first = last;
  }
  return text;
}

/// If the change is for `all` cores, removes from `cores` those that have no queue.
std::expected<void, Refusal> check_itr(const Row& row, Value& value, Cores& cores, bool all) {
  const Device* const card = device();
  if (card == nullptr) return refuse(ErrorCode::unsupported, row, "no network card is in use");
  const Cores wanted = cores;
  for (unsigned core = 0; core < core_count(); ++core) {
    if (!wanted[core]) continue;
    const auto rounded = card->round_itr(core, static_cast<std::uint32_t>(value));
    if (rounded) {
      value = *rounded;
    } else if (all && rounded.error().code == ErrorCode::unsupported) {
      cores[core] = false;
    } else {
      return refuse(rounded.error().code, row, rounded.error().message);
    }
  }
  if (cores.none()) return refuse(ErrorCode::unsupported, row, "no core has a queue of the network card");
  return {};
}

std::expected<void, Refusal> check_monitor(const Row& row, const Cores& cores) {
  const Device* const card = device();
  for (unsigned core = 0; core < core_count(); ++core) {
    if (!cores[core] || has_queue(card, core)) continue;
    return refuse(ErrorCode::unsupported, row,
                  "monitor sleeps on a queue of the network card, and core " + std::to_string(core) +
                      " has none; accepted here: " + accepted_idle_states(machine::power_abilities()));
  }
  return {};
}

/// If the change is for `all` cores, removes from `cores` those that cannot segment.
std::expected<void, Refusal> check_segmentation(const Row& row, Cores& cores, bool all) {
  const char* refusal = nullptr;
  for (unsigned core = core_count(); core-- > 0;) {
    const char* const why_not = load(core_state(core).policy.no_segmentation);
    if (!cores[core] || why_not == nullptr) continue;
    refusal = why_not;
    cores[core] = false;
  }
  if (refusal != nullptr && (!all || cores.none())) return refuse(ErrorCode::unsupported, row, refusal);
  return {};
}

std::expected<void, Refusal> check(const Row& row, Value& value, Cores& cores, bool all) {
  if (row.setting == Setting::itr) return check_itr(row, value, cores, all);
  if (row.setting == Setting::segmentation) return check_segmentation(row, cores, all);
  if (row.setting == Setting::idle && static_cast<IdleState>(value) == IdleState::monitor) return check_monitor(row, cores);
  return {};
}

/// True for the one core of a package that writes the CPU's registers for the whole package.
bool writes_for_package(unsigned core, const Cores& cores) {
  require(cores[core], "a core outside of a change's scope is asked to write for its package", core);
  for (unsigned other = 0; other < core; ++other) {
    if (cores[other] && machine::package_of(other) == machine::package_of(core)) return false;
  }
  return true;
}

/// Restores the values `before` on the `cores` with numbers below `end`, as another change. False: some of the earlier values are unknown.
task<bool> set_back(const Row& row, std::span<const Value> before, const Cores& cores, unsigned end) {
  bool all_known = true;
  const std::uint32_t number = generation() + 1;
  for (unsigned core = 0; core < end; ++core) {
    if (!cores[core]) continue;
    if (row.setting == Setting::turbo && before[core] == turbo_never_set) {
      all_known = false;
      continue;
    }
    const bool writes = writes_for_package(core, cores);
    store(accepted_changes, number);
    static_cast<void>(
        co_await on_core(core, [=, &row, value = before[core]] { return apply_here(row, value, number, writes).has_value(); }));
  }
  co_return all_known;
}

/// The card applies the change first; then every core in scope records it.
task<Outcome> change_card(const Row& row, Value value, unsigned core) {
  Device* const card = device();
  require(card != nullptr, "a network card's setting is changed without a card");
  if (row.scope == Scope::card && core != all_cores) co_return refuse(ErrorCode::invalid, row, "holds for all cores of the card");
  if (row.scope == Scope::named_core && core == all_cores) co_return refuse(ErrorCode::invalid, row, "needs the core that it is for");
  const auto changed = co_await card->change(row.setting, static_cast<std::uint32_t>(value), core);
  if (!changed) co_return refuse(changed.error().code, row, changed.error().message);
  require(row.scope != Scope::card || row.kind != Kind::choice || changed->value < row.choices.size(),
          "a card set a value that is none of the setting's choices", changed->value);
  const std::uint32_t number = generation() + 1;
  const Cores cores = cores_in_scope(row, core);
  for (unsigned i = 0; i < core_count(); ++i) {
    if (cores[i]) co_await on_core(i, [&] { note_card_change(row, *changed, number); });
  }
  store(accepted_changes, number);
  co_return Applied{
      .generation = number, .value = print(row, changed->value), .cores = text_of(cores), .lost_frames = changed->lost_frames};
}

/// The ratios at which the cores run once the CPU has followed a change of `pstate`: "24", "24-29". Empty if the CPU does not report them.
task<std::string> granted_ratios(Cores cores) {
  // Haswell-EP and later change a frequency only every 500 us or so (Hackenberg et al., 2015).
  constexpr std::chrono::milliseconds settled{2};
  if (!machine::granted_ratio()) co_return "";
  co_await sleep_for(settled);
  unsigned ratio_min = ~0U, ratio_max = 0;
  for (unsigned core = 0; core < core_count(); ++core) {
    if (!cores[core]) continue;
    const unsigned ratio = co_await on_core(core, [] { return note_granted_ratio(); });
    ratio_min = std::min(ratio_min, ratio);
    ratio_max = std::max(ratio_max, ratio);
  }
  co_return ratio_min == ratio_max ? std::to_string(ratio_min) : std::to_string(ratio_min) + '-' + std::to_string(ratio_max);
}

bool is_kernels(const Row& row) {
  return std::ranges::any_of(kernel_rows(), [&](const Row& known) { return known.setting == row.setting; });
}

task<Outcome> carry_out(Setting setting, std::string_view text, unsigned core) {
  require(this_core() == 0, "a setting is changed by another core than 0", this_core());
  const Row* const known = find_row(setting);
  if (known == nullptr)
    co_return std::unexpected(
        Refusal{.code = ErrorCode::unsupported,
                .why = device() == nullptr ? "no network card is in use" : "the network card in use has no such setting"});
  const Row& row = *known;
  if (core != all_cores && core >= core_count()) {
    co_return refuse(ErrorCode::invalid, row,
                     "core " + std::to_string(core) + " does not run; accepted here: 0 to " + std::to_string(core_count() - 1));
  }
  auto value = parse(row, text, machine::power_abilities());
  if (!value) co_return std::unexpected(std::move(value.error()));
  if (!is_kernels(row)) co_return co_await change_card(row, *value, core);
  if (row.scope == Scope::machine && core != all_cores) co_return refuse(ErrorCode::invalid, row, "holds for the whole machine");
  Cores cores = cores_in_scope(row, core);
  std::optional<std::uint64_t> lost_frames;
  std::string also;
  auto good = check(row, *value, cores, core == all_cores);
  if (!good && good.error().code == ErrorCode::invalid && setting == Setting::itr) {
    if (const auto off = device()->off_for_itr(static_cast<std::uint32_t>(*value))) {
      auto done = co_await change_card(*find_row(*off), 0, all_cores);
      if (!done) co_return done;
      lost_frames = done->lost_frames;
      also = std::move(done->value);
      cores = cores_in_scope(row, core);
      good = check(row, *value, cores, core == all_cores);
    }
  }
  if (!good) co_return std::unexpected(std::move(good.error()));

  std::vector<Value> before(core_count());
  const std::uint32_t number = generation() + 1;
  for (unsigned i = 0; i < core_count(); ++i) {
    if (!cores[i]) continue;
    const bool writes = writes_for_package(i, cores);
    before[i] = present_value(setting, core_state(i).policy);
    const auto done = co_await on_core(i, [&row, asked = *value, number, writes] { return apply_here(row, asked, number, writes); });
    if (!done) {
      const bool set_back_all = co_await set_back(row, before, cores, i);
      co_return refuse(done.error().code, row,
                       "core " + std::to_string(i) + " refused: " + done.error().message +
                           (set_back_all ? "; nothing has changed" : "; the cores before it have changed"));
    }
    *value = *done;
    store(accepted_changes, number);  // a change is accepted once one core has applied it
  }
  std::string granted;
  if (setting == Setting::pstate) granted = co_await granted_ratios(cores);
  co_return Applied{.generation = number,
                    .value = print(row, *value),
                    .cores = text_of(cores),
                    .granted = std::move(granted),
                    .also = std::move(also),
                    .lost_frames = lost_frames};
}

/// Held by the change that is being carried out.
constinit AsyncMutex change_in_progress;

}  // namespace

CorePolicy of(unsigned core) noexcept {
  require(core < core_count(), "settings of a core that does not run are asked for", core);
  const PolicySlot& slot = core_state(core).policy;
  return {.idle = load(slot.idle),
          .monitor_state = load(slot.monitor_state),
          .turbo = load(slot.turbo),
          .itr_us = load(slot.itr_us),
          .poll_budget_us = load(slot.poll_budget_us),
          .adaptive_poll_us = load(slot.adaptive_poll_us),
          .pstate = load(slot.pstate),
          .power_limit_mw = load(slot.power_limit_mw),
          .epp = load(slot.epp),
          .segmentation = load(slot.segmentation),
          .generation = load(slot.generation)};
}

std::uint32_t generation() noexcept { return load(accepted_changes); }

task<std::expected<Applied, Refusal>> set(Setting setting, std::string value, unsigned core) {
  try {
    co_return co_await on_core(0, [&]() -> task<Outcome> {
      const auto lock = co_await change_in_progress.lock();
      co_return co_await carry_out(setting, value, core);
    });
  } catch (const std::bad_alloc&) {
    co_return std::unexpected(Refusal{.code = ErrorCode::out_of_memory, .why = "out of memory"});  // this short text needs no heap memory
  }
}

Value value_of(Setting setting, unsigned core) noexcept {
  require(core < core_count(), "a setting of a core that does not run is asked for", core);
  return present_value(setting, core_state(core).policy);
}

std::expected<Setting, Refusal> setting_by_name(std::string_view name) {
  if (const Row* const row = find_row(name); row != nullptr) return row->setting;
  std::string known;
  for (const Row* const row : rows()) known += ' ' + std::string(row->name);
  return std::unexpected(Refusal{.code = ErrorCode::not_found, .why = "no such setting; accepted:" + known});
}

const std::atomic<Segmentation>& offer_segmentation(const char* why_not) noexcept {
  PolicySlot& slot = core_state(this_core()).policy;
  store(slot.segmentation, why_not == nullptr ? default_segmentation : Segmentation::off);
  store(slot.no_segmentation, why_not);
  return slot.segmentation;
}

void follow_network_settings(void (*changed)() noexcept) noexcept { store(network_changed, changed); }
bool has_network() noexcept { return load(network_changed) != nullptr; }

BootSettings BootSettings::from(Arguments& arguments, std::span<const Row> device_rows) {
  BootSettings boot_settings;
  for (const std::span<const Row> rows : {kernel_rows(), device_rows}) {
    for (const Row& row : rows) {
      if (row.scope == Scope::named_core) continue;
      std::string value = arguments.text(row.name, "", help(row));
      if (!value.empty()) boot_settings.values.emplace_back(&row, std::move(value));
    }
  }
  return boot_settings;
}

task<std::expected<void, Refusal>> apply(const BootSettings& boot_settings) {
  log::describe_configuration_by(&report_configuration);
  auto values = boot_settings.values;
  const auto sets_idle = [](const auto& value) { return value.first->setting == Setting::idle; };
  const Row* const idle = find_row(Setting::idle);
  if (std::ranges::none_of(values, sets_idle)) values.emplace(values.begin(), idle, default_value(*idle));
  // Presets are applied first, so that the other settings can override parts of them.
  std::ranges::stable_partition(values, [](const auto& value) { return value.first->preset; });
  for (auto& [row, value] : values) {
    auto done = co_await set(row->setting, std::move(value), all_cores);
    if (!done) co_return std::unexpected(std::move(done.error()));
  }
  co_return std::expected<void, Refusal>{};
}

Device::~Device() { forget(*this); }

task<Result<Device::Change>> Device::change(Setting, std::uint32_t, unsigned) {
  co_return failure(ErrorCode::unsupported, "this card has no such setting");
}

void use(Device* device) noexcept {
  for (const Row& row : device != nullptr ? device->settings() : std::span<const Row>()) {
    require(!is_kernels(row), "a setting of the network card has the number of another setting", static_cast<unsigned>(row.setting));
  }
  device_in_use.store(device, std::memory_order_release);
  for (unsigned core = 0; core < core_count(); ++core) {
    store(core_state(core).policy.itr_us, has_queue(device, core) ? device->itr_us(core) : 0U);
  }
}

void forget(Device& device) noexcept {
  Device* expected = &device;
  device_in_use.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel);
}

Device* device() noexcept { return device_in_use.load(std::memory_order_acquire); }

}  // namespace neap::policy
