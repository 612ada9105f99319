// SPDX-License-Identifier: BSL-1.0
// A change is carried out by core 0, one at a time: whoever wants one sends it there and waits. So two changes never cross, and numbering
// them needs no more than a counter.
#include "kernel/policy.hpp"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <chrono>
#include <coroutine>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/log.hpp"
#include "kernel/policy_values.hpp"

namespace neap::policy {

namespace {

constinit std::atomic<std::uint32_t> accepted_changes{0};
constinit std::atomic<Device*> device_in_use{nullptr};

constexpr auto segmentation_at_first = Segmentation::off;
constexpr auto segmentation_of_studies = Segmentation::copy;

using Cores = std::bitset<machine::cores_max>;
using Outcome = std::expected<Applied, Refusal>;

bool is_package_wide(Setting setting) { return setting == Setting::power_limit || setting == Setting::turbo; }
bool wants_interrupts(IdleState state) { return state != IdleState::poll && state != IdleState::monitor; }

template <typename T>
T load(const std::atomic<T>& value) {
  return value.load(std::memory_order_relaxed);
}
template <typename T>
void store(std::atomic<T>& place, T value) {
  place.store(value, std::memory_order_relaxed);
}

// --- On the core concerned ---------------------------------------------------------------------------------------------------------------

/// What `setting` is on a core, to go back to.
Value present_value(Setting setting, const CorePolicy& now) {
  Value value;
  value.idle = now.idle;
  value.performance = now.performance;
  value.number = setting == Setting::itr           ? now.itr_us
                 : setting == Setting::poll_budget ? now.poll_budget_us
                 : setting == Setting::power_limit ? now.power_limit_mw
                 : setting == Setting::epp         ? now.epp
                 : setting == Setting::tso         ? static_cast<std::uint32_t>(now.segmentation)
                                                   : now.turbo;
  return value;
}

void follow_idle(const PolicySlot& slot) noexcept {
  constexpr std::uint64_t ns_per_us = 1000;
  event_loop.idle_by(load(slot.idle), load(slot.poll_budget_us) * ns_per_us);
}

void set_idle(PolicySlot& slot, IdleState state) noexcept {
  const IdleState before = load(slot.idle);
  store(slot.idle, state);
  follow_idle(slot);
  Device* const card = device();
  if (card != nullptr && wants_interrupts(before) != wants_interrupts(state)) card->set_interrupt(this_core(), wants_interrupts(state));
}

/// What holds on this core goes into its log.
void log_settings(Setting setting, std::uint32_t card_value) noexcept {
  const PolicySlot& slot = core_state(this_core()).policy;
  log::Settings settings{};
  settings.idle_state = static_cast<std::uint8_t>(load(slot.idle));
  settings.changed = static_cast<std::uint8_t>(setting);
  settings.turbo = load(slot.turbo);
  settings.generation = load(slot.generation);
  settings.itr_us = load(slot.itr_us);
  settings.poll_budget_us = load(slot.poll_budget_us);
  settings.performance = load(slot.performance);
  settings.power_limit_mw = load(slot.power_limit_mw);
  settings.card_value = card_value;
  log::policy_changed(settings);
}

/// Returns the value that holds, which the CPU may have rounded. `tell_cpu`: false on those cores of a package that only take note.
Result<Value> apply_here(Setting setting, Value value, std::uint32_t number, bool tell_cpu) noexcept {
  PolicySlot& slot = core_state(this_core()).policy;
  switch (setting) {
    default:  // the card has done it
      break;
    case Setting::preset:  // and what the network asks of it
      if (load(slot.no_segmentation) == nullptr)
        store(slot.segmentation, value.number != 0 ? segmentation_of_studies : segmentation_at_first);
      break;
    case Setting::tso:
      store(slot.segmentation, static_cast<Segmentation>(value.number));
      break;
    case Setting::idle:
      set_idle(slot, value.idle);
      break;
    case Setting::itr:
      if (Device* const card = device(); card != nullptr) card->set_itr(this_core(), value.number);
      store(slot.itr_us, value.number);
      break;
    case Setting::pstate:
      if (const auto set = machine::set_performance(value.performance); !set) return std::unexpected(set.error());
      store(slot.performance, value.performance);
      break;
    case Setting::power_limit:
      if (tell_cpu) {
        const auto rounded = machine::set_power_limit(value.number);
        if (!rounded) return std::unexpected(rounded.error());
        value.number = *rounded;
      }
      store(slot.power_limit_mw, value.number);
      break;
    case Setting::turbo:
      if (tell_cpu) {
        if (const auto set = machine::set_turbo(value.number != 0); !set) return std::unexpected(set.error());
      }
      store(slot.turbo, static_cast<std::uint8_t>(value.number));
      break;
    case Setting::epp:
      if (const auto set = machine::set_energy_preference(value.number); !set) return std::unexpected(set.error());
      store(slot.epp, static_cast<std::uint16_t>(value.number));
      break;
    case Setting::poll_budget:
      store(slot.poll_budget_us, value.number);
      follow_idle(slot);
      break;
  }
  store(slot.generation, number);
  log_settings(setting, is_card_setting(setting) || setting == Setting::epp || setting == Setting::tso ? value.number : 0);
  return value;
}

/// After a change of `pstate`: the ratio that this core runs at goes into its log. 0: the CPU does not tell.
unsigned note_granted_ratio() noexcept {
  const unsigned ratio = machine::granted_ratio().value_or(0);
  if (ratio != 0) log_settings(Setting::pstate, ratio);
  return ratio;
}

// --- On core 0 ---------------------------------------------------------------------------------------------------------------------------

Cores cores_in_scope(Setting setting, unsigned core) {
  Cores cores;
  for (unsigned i = 0; i < core_count(); ++i) {
    cores[i] = core == all_cores || i == core || (is_package_wide(setting) && machine::package_of(i) == machine::package_of(core));
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

bool has_queue(const Device* card, unsigned core) {
  if (card == nullptr) return false;
  const auto rounded = card->round_itr(core, 0);
  return rounded || rounded.error().code != ErrorCode::unsupported;
}

/// `cores`: those without a queue are left out if all were meant.
std::expected<void, Refusal> check_itr(Value& value, Cores& cores, bool all) {
  const Device* const card = device();
  if (card == nullptr) return refuse(ErrorCode::unsupported, Setting::itr, "no network card is in use");
  const Cores wanted = cores;
  for (unsigned core = 0; core < core_count(); ++core) {
    if (!wanted[core]) continue;
    const auto rounded = card->round_itr(core, value.number);
    if (rounded) {
      value.number = *rounded;
    } else if (all && rounded.error().code == ErrorCode::unsupported) {
      cores[core] = false;
    } else {
      return refuse(rounded.error().code, Setting::itr, rounded.error().message);
    }
  }
  if (cores.none()) return refuse(ErrorCode::unsupported, Setting::itr, "no core has a queue of the network card");
  return {};
}

std::expected<void, Refusal> check_monitor(const Cores& cores) {
  const Device* const card = device();
  for (unsigned core = 0; core < core_count(); ++core) {
    if (!cores[core] || has_queue(card, core)) continue;
    return refuse(ErrorCode::unsupported, Setting::idle,
                  "monitor sleeps on a queue of the network card, and core " + std::to_string(core) +
                      " has none; accepted here: " + accepted_idle_states(machine::power_abilities()));
  }
  return {};
}

/// `cores`: those that can have nothing segmented are left out if all were meant.
std::expected<void, Refusal> check_segmentation(Cores& cores, bool all) {
  const char* refusal = nullptr;
  for (unsigned core = core_count(); core-- > 0;) {
    const char* const why_not = load(core_state(core).policy.no_segmentation);
    if (!cores[core] || why_not == nullptr) continue;
    refusal = why_not;
    cores[core] = false;
  }
  if (refusal != nullptr && (!all || cores.none())) return refuse(ErrorCode::unsupported, Setting::tso, refusal);
  return {};
}

std::expected<void, Refusal> check(Setting setting, Value& value, Cores& cores, bool all) {
  if (setting == Setting::itr) return check_itr(value, cores, all);
  if (setting == Setting::tso) return check_segmentation(cores, all);
  if (setting == Setting::idle && value.idle == IdleState::monitor) return check_monitor(cores);
  return {};
}

/// True for the core that speaks to the CPU for its package.
bool speaks_for_package(unsigned core, const Cores& cores) {
  for (unsigned other = 0; other < core; ++other) {
    if (cores[other] && machine::package_of(other) == machine::package_of(core)) return false;
  }
  return true;
}

/// The cores in `cores` below `end`, back to what they had before, as a change of its own. False: of some that is not known.
task<bool> set_back(Setting setting, std::span<const Value> before, const Cores& cores, unsigned end) {
  constexpr std::uint32_t turbo_never_set = 2;
  bool all_known = true;
  const std::uint32_t number = generation() + 1;
  for (unsigned core = 0; core < end; ++core) {
    if (!cores[core]) continue;
    if (setting == Setting::turbo && before[core].number == turbo_never_set) {
      all_known = false;
      continue;
    }
    const bool speaks = speaks_for_package(core, cores);
    store(accepted_changes, number);
    static_cast<void>(co_await on_core(core, [=, value = before[core]] { return apply_here(setting, value, number, speaks).has_value(); }));
  }
  co_return all_known;
}

/// The card first; then every core notes it.
task<Outcome> change_card(Setting setting, Value value, unsigned core) {
  Device* const card = device();
  if (card == nullptr) co_return refuse(ErrorCode::unsupported, setting, "no network card is in use");
  if (setting != Setting::steer && core != all_cores) co_return refuse(ErrorCode::invalid, setting, "holds for all cores of the card");
  if (setting == Setting::steer && core == all_cores) co_return refuse(ErrorCode::invalid, setting, "needs the core that gets the frames");
  const auto changed = co_await card->change(setting, value.number, core);
  if (!changed) co_return refuse(changed.error().code, setting, changed.error().message);
  value.number = changed->value;
  const std::uint32_t number = generation() + 1;
  const Cores cores = cores_in_scope(setting, core);
  for (unsigned i = 0; i < core_count(); ++i) {
    if (cores[i]) static_cast<void>(co_await on_core(i, [=] { return apply_here(setting, value, number, false).has_value(); }));
  }
  store(accepted_changes, number);
  co_return Applied{.generation = number, .value = text_of(setting, value), .cores = text_of(cores), .lost_frames = changed->lost_frames};
}

/// What the cores run at once the CPU has followed a change of `pstate`: "24", "24-29"; empty where it does not tell.
task<std::string> granted_ratios(Cores cores) {
  // A package is asked every 500 us or so; Haswell-EP and later do no more (Hackenberg et al., 2015).
  constexpr std::chrono::milliseconds settled{2};
  if (!machine::granted_ratio()) co_return "";
  co_await sleep_for(settled);
  unsigned least = ~0U, most = 0;
  for (unsigned core = 0; core < core_count(); ++core) {
    if (!cores[core]) continue;
    const unsigned ratio = co_await on_core(core, [] { return note_granted_ratio(); });
    least = std::min(least, ratio);
    most = std::max(most, ratio);
  }
  co_return least == most ? std::to_string(least) : std::to_string(least) + '-' + std::to_string(most);
}

task<Outcome> carry_out(Setting setting, std::string_view text, unsigned core) {
  if (core != all_cores && core >= core_count()) {
    co_return refuse(ErrorCode::invalid, setting,
                     "core " + std::to_string(core) + " does not run; accepted here: 0 to " + std::to_string(core_count() - 1));
  }
  auto value = parse(setting, text, machine::power_abilities());
  if (!value) co_return std::unexpected(std::move(value.error()));
  if (is_card_setting(setting)) co_return co_await change_card(setting, *value, core);
  Cores cores = cores_in_scope(setting, core);
  if (auto good = check(setting, *value, cores, core == all_cores); !good) co_return std::unexpected(std::move(good.error()));

  std::vector<Value> before(core_count());
  const std::uint32_t number = generation() + 1;
  for (unsigned i = 0; i < core_count(); ++i) {
    if (!cores[i]) continue;
    const bool speaks = speaks_for_package(i, cores);
    before[i] = present_value(setting, of(i));
    const auto done = co_await on_core(i, [setting, asked = *value, number, speaks] { return apply_here(setting, asked, number, speaks); });
    if (!done) {
      const bool set_back_all = co_await set_back(setting, before, cores, i);
      co_return refuse(done.error().code, setting,
                       "core " + std::to_string(i) + " refused: " + done.error().message +
                           (set_back_all ? "; nothing has changed" : "; the cores before it have changed"));
    }
    value->number = done->number;
    store(accepted_changes, number);  // a change is one once a core has it
  }
  std::string granted;
  if (setting == Setting::pstate) granted = co_await granted_ratios(cores);
  co_return Applied{.generation = number, .value = text_of(setting, *value), .cores = text_of(cores), .granted = std::move(granted)};
}

// --- The way there and back --------------------------------------------------------------------------------------------------------------

/// Lives in the frame of who wants it.
struct Change : RemoteNode {
  Change(Setting wanted, std::string text, unsigned for_core) noexcept
      : RemoteNode{.run = &Change::arrive, .next = nullptr}, setting(wanted), value(std::move(text)), core(for_core), home(this_core()) {}
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> who) noexcept {
    waiter = who;
    hand_over(0, *this);
  }
  Outcome await_resume() { return std::move(outcome); }

  static void arrive(RemoteNode* node) noexcept;
  static void resume(RemoteNode* node) noexcept { detail::run_coroutine(static_cast<Change*>(node)->waiter); }
  void go_home() noexcept {
    run = &Change::resume;
    hand_over(home, *this);
  }
  void refuse_without_memory() {
    outcome = std::unexpected(Refusal{.code = ErrorCode::out_of_memory, .why = "out of memory"});  // short enough to need none
  }

  Setting setting;
  std::string value;
  unsigned core;
  unsigned home;
  std::coroutine_handle<> waiter;
  Outcome outcome;
  Change* after = nullptr;
};

/// Core 0's: the changes that wait for their turn, oldest first.
struct Waiting {
  Change* first = nullptr;
  Change* last = nullptr;
  bool at_work = false;
};
constinit thread_local Waiting waiting;

Change* take_waiting() noexcept {
  Change* const change = waiting.first;
  if (change == nullptr) {
    waiting.at_work = false;
    return nullptr;
  }
  waiting.first = change->after;
  return change;
}

task<void> carry_out_waiting() {
  while (Change* const change = take_waiting()) {
    try {
      change->outcome = co_await carry_out(change->setting, change->value, change->core);
    } catch (const std::exception&) {
      change->refuse_without_memory();
    }
    change->go_home();
  }
}

void Change::arrive(RemoteNode* node) noexcept {
  auto* const change = static_cast<Change*>(node);
  change->after = nullptr;
  (waiting.first == nullptr ? waiting.first : waiting.last->after) = change;
  waiting.last = change;
  if (waiting.at_work) return;
  try {
    waiting.at_work = true;
    start(carry_out_waiting());
  } catch (const std::exception&) {
    while (Change* const refused = take_waiting()) {
      refused->refuse_without_memory();
      refused->go_home();
    }
  }
}

}  // namespace

CorePolicy of(unsigned core) noexcept {
  const PolicySlot& slot = core_state(core).policy;
  return {.idle = load(slot.idle),
          .turbo = load(slot.turbo),
          .itr_us = load(slot.itr_us),
          .poll_budget_us = load(slot.poll_budget_us),
          .performance = load(slot.performance),
          .power_limit_mw = load(slot.power_limit_mw),
          .epp = load(slot.epp),
          .segmentation = load(slot.segmentation),
          .generation = load(slot.generation)};
}

std::uint32_t generation() noexcept { return load(accepted_changes); }

task<std::expected<Applied, Refusal>> set(Setting setting, std::string value, unsigned core) {
  Change change(setting, std::move(value), core);
  co_return co_await change;
}

std::expected<Setting, Refusal> setting_by_name(std::string_view name) {
  std::string known;
  for (unsigned i = 0; i < settings; ++i) {
    if (name == setting_names[i]) return static_cast<Setting>(i);
    known += ' ';
    known += setting_names[i];
  }
  return std::unexpected(Refusal{.code = ErrorCode::not_found, .why = "no such setting; accepted:" + known});
}

const std::atomic<Segmentation>& offer_segmentation(const char* why_not) noexcept {
  PolicySlot& slot = core_state(this_core()).policy;
  store(slot.segmentation, why_not == nullptr ? segmentation_at_first : Segmentation::off);
  store(slot.no_segmentation, why_not);
  return slot.segmentation;
}

Wishes Wishes::from(Arguments& arguments) {
  constexpr std::array<const char*, settings> help{
      "what an idle core does: halt, c1, c1e, c3, c6, c7, poll, monitor, deepest (empty: deepest)",
      "interrupt moderation of the network card, such as 8us",
      "P-state: 24 (ratio), 2400MHz, 2.4GHz, 0x1800 (PERF_CTL), off",
      "package power limit, such as 35W, or off",
      "on or off",
      "how long an idle core looks for work before it sleeps, such as 50us",
      "receive descriptors of each queue of the network card, 64 to 4096",
      "transmit descriptors of each queue, 64 to 4096",
      "receive descriptors that an event may take, such as 64",
      "transmit prefetch threshold in descriptors (PTHRESH)",
      "transmit host threshold in descriptors (HTHRESH)",
      "transmit write-back threshold in descriptors (WTHRESH)",
      "on or off: sent frames are told by the ring's head",
      "on or off: receive side coalescing",
      "on or off: frames for others are received too",
      "study or default: the card's settings as the published studies had them",
      "",
      "HWP's energy preference: 0 (speed) to 255, performance, balance_performance, balance_power, power, off",
      "pause frames: receive (obeys them), transmit (sends them), both, off",
      "on or off: the card writes into the core's cache, where the chipset has that (DCA)",
      "1 to 4094: frames carry this VLAN's tag, and only such are received; or off",
      "off, copy or chain: segments reach the card as one frame, which it cuts up (TSO)",
  };
  Wishes wishes;
  for (unsigned i = 0; i < settings; ++i) {
    if (static_cast<Setting>(i) != Setting::steer) wishes.values[i] = arguments.text(setting_names[i], "", help[i]);
  }
  return wishes;
}

task<std::expected<void, Refusal>> apply(const Wishes& wishes) {
  // A preset before what departs from it.
  std::array<unsigned, settings> order{static_cast<unsigned>(Setting::preset)};
  for (unsigned i = 0, place = 1; i < settings; ++i) {
    if (static_cast<Setting>(i) != Setting::preset) order[place++] = i;
  }
  for (const unsigned i : order) {
    std::string value = wishes.values[i];
    if (value.empty() && static_cast<Setting>(i) == Setting::idle) value = "deepest";
    if (value.empty()) continue;
    auto done = co_await set(static_cast<Setting>(i), std::move(value), all_cores);
    if (!done) co_return std::unexpected(std::move(done.error()));
  }
  co_return std::expected<void, Refusal>{};
}

Device::~Device() { forget(*this); }

task<Result<Device::Change>> Device::change(Setting, std::uint32_t, unsigned) {
  co_return failure(ErrorCode::unsupported, "this card has no such setting");
}

void use(Device* device) noexcept {
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
