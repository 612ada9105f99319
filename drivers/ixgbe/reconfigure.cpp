// SPDX-License-Identifier: BSL-1.0
// Changes options while frames flow, and recovers after a fault. Both use the same steps, for one queue pair after the other.
//
// The core that opened the card reads registers; each pair's core accesses the pair's rings. During the change the pair is stopped by
// `hold` (queue_pair.hpp), so that no tail moves on a queue that is off. The card counts the frames that it drops during the change
// (QPRDC), and the reply to the setting's command reports their number.
#include "drivers/ixgbe/card.hpp"
#include "drivers/ixgbe/settings.hpp"
#include "drivers/ixgbe/start_up.hpp"
#include "drivers/ixgbe/vectors.hpp"
#include "kernel/console.hpp"
#include "kernel/panic.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;
using policy::Setting;

namespace {

constexpr auto drain_time_out = 100ms;

/// The preset `study` repeats these options of the published studies. The studies' driver had the ring sizes and the budget that are
/// defaults here. It set only ENABLE in TXDCTL, so the thresholds were 0. RSC, DCA and head write-back were off, checksums and RSS on. Its
/// vectors, like those of Linux, counted TX completions. It copied the segments of a TSO frame into one buffer.
constexpr QueueOptions study_options{.prefetch_threshold = 0, .host_threshold = 0, .coalescing = 0, .transmit_interrupt = 1};
constexpr auto study_segmentation = policy::Segmentation::copy;

bool needs_stop(const QueueOptions& now, const QueueOptions& wanted) noexcept {
  return std::ranges::any_of(card_settings(), [&](const CardSetting& setting) {
    return setting.option != nullptr && !setting.while_running && now.*setting.option != wanted.*setting.option;
  });
}

QueueOptions with_preset(QueueOptions options, const QueueOptions& preset) noexcept {
  for (const CardSetting& setting : card_settings()) {
    if (setting.option != nullptr && setting.in_preset) options.*setting.option = preset.*setting.option;
  }
  return options;
}

}  // namespace

std::uint32_t Card::lowest_itr_us() const noexcept {
  std::uint32_t lowest_us = Moderation::itr_us_max;
  for (unsigned core = 0; core < receiving(); ++core) lowest_us = std::min(lowest_us, itr_us(core));
  return lowest_us;
}

std::span<const policy::Row> Card::settings() const noexcept { return setting_rows(); }

std::uint32_t Card::value_of(Setting setting) const noexcept {
  const CardSetting* const known = find_setting(setting);
  return known != nullptr && known->option != nullptr ? options_.queues.*known->option : 0;
}

// RSC is on by default, and a default should not forbid a short `itr`.
std::optional<Setting> Card::off_for_itr(std::uint32_t itr_us) const noexcept {
  const auto moderation = Moderation::from_us(itr_us);
  QueueOptions without = options_.queues;
  if (!moderation || coalescing_chosen_ || std::exchange(without.coalescing, 0) == 0) return {};
  if (options_.queues.why_refused(moderation->itr_us()) == nullptr || without.why_refused(moderation->itr_us()) != nullptr) return {};
  return std::ranges::find(card_settings(), &QueueOptions::coalescing, &CardSetting::option)->row.setting;
}

task<Result<policy::Device::Change>> Card::change(Setting setting, std::uint32_t value, unsigned core) {
  if (this_core() != home_core_) co_return failure(ErrorCode::unsupported, "the card was not opened on core 0", home_core_);
  if (busy_ || stopped_) co_return failure(ErrorCode::closed, "the card is being set up anew; try again");
  const CardSetting* const known = find_setting(setting);
  if (known == nullptr) co_return failure(ErrorCode::unsupported, "the 82599 has no such setting");
  const Work work(busy_);
  if (known->row.scope == policy::Scope::named_core) {
    if (auto steered = steer(value, core); !steered) co_return std::unexpected(steered.error());
    co_return Change{.value = value};
  }
  Change change{.value = value};
  QueueOptions wanted = options_.queues;
  if (known->row.preset) {
    wanted = with_preset(wanted, value != 0 ? study_options : QueueOptions{});
    if (lowest_itr_us() < QueueOptions::coalescing_itr_us_min) wanted.coalescing = 0;
    change.segmentation = value != 0 ? study_segmentation : policy::default_segmentation;
  } else {
    require(known->option != nullptr, "ixgbe: a setting has no option", static_cast<unsigned>(setting));
    wanted.*known->option = value;
  }
  if (wanted.cache_hints != 0 && options_.queues.cache_hints == 0) {
    if (!model_.cache_hints) co_return failure(ErrorCode::unsupported, "the X550 has no direct cache access", value);
    if (const auto tag = machine::cache_tag(home_core_); !tag) co_return std::unexpected(tag.error());
  }
  if (const char* const why = wanted.why_refused(lowest_itr_us())) co_return failure(ErrorCode::invalid, why, value);
  const auto lost = co_await set_queues(wanted);
  if (!lost) co_return std::unexpected(lost.error());
  if (known->row.preset || known->option == &QueueOptions::coalescing) coalescing_chosen_ = value != 0 && !known->row.preset;
  change.lost_frames = *lost;
  co_return change;
}

task<Result<std::uint64_t>> Card::set_queues(QueueOptions wanted) {
  require(busy_ && this_core() == home_core_, "ixgbe: queues are changed by another core than the card's", this_core());
  // While a queue's WTHRESH may be above 1, its completions need the interval of a vector.
  if (wanted.transmit_interrupt != 0) program_queue_causes(registers_, static_cast<unsigned>(pairs_.size()), true);
  const bool stop = needs_stop(options_.queues, wanted);
  if (stop) {
    if (auto prepared = co_await prepare_all(pairs_, wanted); !prepared) co_return std::unexpected(prepared.error());
  }
  options_.queues = wanted;
  program_running_options();
  std::uint64_t lost = 0;
  for (auto& pair : pairs_) {
    if (!stop) {
      co_await on_core(pair->core(), [&] { pair->follow(wanted); });
      continue;
    }
    const auto more = co_await restart(*pair, wanted, link_up());
    if (!more) co_return std::unexpected(more.error());
    lost += *more;
  }
  program_queue_causes(registers_, static_cast<unsigned>(pairs_.size()), wanted.transmit_interrupt != 0);
  co_return lost;
}

// Programs the registers that take effect while queues run. If SRRCTL.DROP_EN (4.6.7) is set, a ring without descriptors drops its frames.
// Otherwise the frames wait in the packet buffer; above its threshold the card sends pause frames.
void Card::program_running_options() noexcept {
  const QueueOptions& now = options_.queues;
  program_promiscuous(registers_, now.promiscuous != 0);
  program_vlan(registers_, now.vlan);
  program_flow_control(registers_, model_, now);
  for (unsigned core = 0; core < pairs_.size(); ++core) {
    if (core < receiving()) registers_.modify(reg::SRRCTL(core), [&](reg::Srrctl& value) { value.drop_enable = now.drops(); });
    if (model_.cache_hints) program_cache_hints(registers_, core, now.cache_hints != 0, machine::cache_tag(core).value_or(0));
  }
}

task<Result<std::uint64_t>> Card::restart(QueuePair& pair, const QueueOptions& options, bool drain) {
  require(busy_ && this_core() == home_core_, "ixgbe: a queue pair is restarted by another core than the card's", this_core());
  const unsigned core = pair.core();
  co_await on_core(core, [&pair] { pair.hold(); });
  for (const auto deadline = BootClock::now() + drain_time_out; drain && BootClock::now() < deadline;) {
    if (co_await on_core(core, [&pair] { return pair.drained(); })) break;
    co_await sleep_for(100us);
  }
  if (pair.receives()) (void)statistics_.collect_dropped(registers_, core);
  auto done = co_await pair.enable_receive(false);
  if (done) done = co_await pair.transmit_queue().enable(false);
  std::uint64_t lost = 0;
  if (done) {
    lost = co_await on_core(core, [&pair, &options] {
      const std::uint32_t unsent = pair.empty();
      pair.program(options);
      return unsent;
    });
    done = co_await pair.transmit_queue().enable(true);
    if (done) done = co_await pair.enable_receive(true);
  }
  if (!done) {
    // If a queue does not stop or start, the card is reset, because nothing else makes the queue usable.
    if (done.error().code != ErrorCode::timeout) co_return std::unexpected(done.error());
    print(done.error().message, "; the card is reset");
    counters_.resets.add();
    set_link(false);
    co_await on_each_pair([](QueuePair& other) { other.hold(); });
    const auto more = co_await bring_up();
    if (!more) co_return more;
    co_return lost + *more;
  }
  co_await on_core(core, [&pair] { pair.resume(); });
  co_return lost + (pair.receives() ? statistics_.collect_dropped(registers_, core) : 0);
}

// Restarts the pair `hung`. If `hung` is null, restarts the card after an error of memory or DMA.
task<void> Card::recover(QueuePair* hung) {
  require_home_core();
  while (hung == nullptr && busy_) co_await sleep_for(1ms);
  reset_wanted_ = reset_wanted_ && hung != nullptr;
  if (busy_ || stopped_ || registers_.card_gone()) co_return;  // if a queue still hangs, its watchdog requests recovery again
  const Work work(busy_);
  Result<std::uint64_t> lost;
  if (hung != nullptr) {
    lost = co_await restart(*hung, options_.queues, false);
    if (lost) print("ixgbe: queues of core ", hung->core(), " started anew, lost=", *lost);
  } else {
    counters_.resets.add();
    set_link(false);
    co_await on_each_pair([](QueuePair& pair) { pair.hold(); });
    lost = co_await bring_up();
    if (lost) print("ixgbe: card reset, lost=", *lost);
  }
  if (!lost) print(lost.error().message, "; the card stays off");
  announce_link();
}

task<void> Card::set_multicast(std::vector<MacAddress> groups) {
  co_await on_core(home_core_, [this, &groups]() -> task<void> {
    groups_ = std::move(groups);
    while (busy_) co_await sleep_for(1ms);  // no register is written during a reset
    if (!stopped_) program_multicast(registers_, groups_, options_.queues.promiscuous != 0);
  });
}

Result<void> Card::steer(std::uint32_t flow, unsigned core) noexcept {
  require(core < core_count(), "ixgbe: a flow is steered to a core that does not run", core);
  if (core >= receiving()) return failure(ErrorCode::invalid, "a flow is steered to one core with a queue", core);
  const unsigned first = options_.reserved_core ? 1 : 0;  // the first filter is for `reserved_port`
  if (flow == 0) {
    for (unsigned i = first; i < steered_.size(); ++i) {
      if (steered_[i].first == 0 || steered_[i].second != core) continue;
      steered_[i] = {};
      program_steering(registers_, i, 0, 0);
    }
    return {};
  }
  if (first != 0 && steered_[0].first == flow) return failure(ErrorCode::invalid, "control keeps this port for its core", flow);
  // Finds the filter that already has this flow, otherwise the first free filter.
  unsigned place = static_cast<unsigned>(steered_.size());
  for (unsigned i = place; i-- > first && (place == steered_.size() || steered_[place].first != flow);) {
    if (steered_[i].first == 0 || steered_[i].first == flow) place = i;
  }
  if (place == steered_.size()) return failure(ErrorCode::full, "all 128 filters are in use", flow);
  steered_[place] = {flow, core};
  program_steering(registers_, place, flow, core);
  return {};
}

}  // namespace neap::ixgbe
