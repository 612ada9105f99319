// SPDX-License-Identifier: BSL-1.0
// What is changed while frames flow, and what is set up anew after a fault: the same steps, a queue pair at a time.
//
// The home core does what needs registers that are read, the pair's core what touches its rings. Between the two the pair is held, so that
// no tail moves on a queue that is off. What the card drops meanwhile it counts (QPRDC): that is the price that the answer tells.
#include "drivers/ixgbe/card.hpp"
#include "drivers/ixgbe/start_up.hpp"
#include "kernel/console.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;
using policy::Setting;

namespace {

constexpr auto drain_time_out = 100ms;

/// What the published studies ran with: rings and budget of their driver, whose TXDCTL had ENABLE and nothing else; checksums and RSS on
/// (they always are), RSC, DCA and head write-back off.
constexpr QueueOptions study_options{.prefetch_threshold = 0, .host_threshold = 0};

const QueueSetting* find_setting(Setting setting) noexcept {
  for (const QueueSetting& known : queue_settings) {
    if (known.setting == setting) return &known;
  }
  return nullptr;
}

bool needs_stop(const QueueOptions& now, const QueueOptions& wanted) noexcept {
  for (const QueueSetting& setting : queue_settings) {
    if (!setting.while_running && now.*setting.value != wanted.*setting.value) return true;
  }
  return false;
}

}  // namespace

std::uint32_t Card::least_itr_us() const noexcept {
  std::uint32_t least = Moderation::itr_us_max;
  for (unsigned core = 0; core < receiving(); ++core) least = std::min(least, itr_us(core));
  return least;
}

std::uint32_t Card::value_of(Setting setting) const noexcept {
  const QueueSetting* const known = find_setting(setting);
  return known != nullptr ? options_.queues.*known->value : 0;
}

task<Result<policy::Device::Change>> Card::change(Setting setting, std::uint32_t value, unsigned core) {
  if (this_core() != home_core_) co_return failure(ErrorCode::unsupported, "the card was not opened on core 0", home_core_);
  if (busy_ || stopped_) co_return failure(ErrorCode::closed, "the card is being set up anew; try again");
  const Work work(busy_);
  QueueOptions wanted = options_.queues;
  if (setting == Setting::steer) {
    if (auto steered = steer(value, core); !steered) co_return std::unexpected(steered.error());
    co_return Change{.value = value};
  }
  if (setting == Setting::dca && value != 0) {
    if (const auto tag = machine::cache_tag(home_core_); !tag) co_return std::unexpected(tag.error());
  }
  if (const QueueSetting* const known = find_setting(setting)) {
    wanted.*known->value = value;
  } else if (setting == Setting::preset) {
    const QueueOptions preset = value != 0 ? study_options : QueueOptions{};
    for (const QueueSetting& part : queue_settings) {
      if (part.in_preset) wanted.*part.value = preset.*part.value;
    }
  } else {
    co_return failure(ErrorCode::unsupported, "the 82599 has no such setting");
  }
  if (const char* const why = wanted.wrong(least_itr_us())) co_return failure(ErrorCode::invalid, why, value);
  const auto lost = co_await set_queues(wanted);
  if (!lost) co_return std::unexpected(lost.error());
  co_return Change{.value = value, .lost_frames = *lost};
}

task<Result<std::uint64_t>> Card::set_queues(QueueOptions wanted) {
  if (!needs_stop(options_.queues, wanted)) {
    options_.queues = wanted;
    program_running_options();
    for (auto& pair : pairs_) co_await on_core(pair->core(), [&] { pair->set_budget(wanted.budget_descriptors); });
    co_return std::uint64_t{0};
  }
  if (auto prepared = co_await prepare_all(pairs_, wanted); !prepared) co_return std::unexpected(prepared.error());
  options_.queues = wanted;
  program_running_options();
  std::uint64_t lost = 0;
  for (auto& pair : pairs_) {
    const auto more = co_await restart(*pair, wanted, link_up());
    if (!more) co_return std::unexpected(more.error());
    lost += *more;
  }
  co_return lost;
}

// What takes effect while queues run. Also 4.6.7: whether a ring without descriptors drops, or fills the packet buffer until that asks for
// a pause.
void Card::program_running_options() noexcept {
  const QueueOptions& now = options_.queues;
  program_promiscuous(registers_, now.promiscuous != 0);
  program_vlan(registers_, now.vlan);
  program_flow_control(registers_, now.flow_control, now.frame_bytes_max);
  for (unsigned core = 0; core < pairs_.size(); ++core) {
    if (core < receiving()) registers_.modify(reg::SRRCTL(core), [&](reg::Srrctl& value) { value.drop_enable = now.drops(); });
    program_cache_hints(registers_, core, now.cache_hints != 0, machine::cache_tag(core).value_or(0));
  }
}

task<Result<std::uint64_t>> Card::restart(QueuePair& pair, const QueueOptions& options, bool drain) {
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
    // A queue that does not obey leaves nothing but the card's reset.
    if (done.error().code != ErrorCode::timeout) co_return std::unexpected(done.error());
    print(done.error().message, "; the card is reset");
    counters_.resets.add();
    set_link(false);
    for (auto& other : pairs_) co_await on_core(other->core(), [&other] { other->hold(); });
    const auto more = co_await bring_up();
    if (!more) co_return more;
    co_return lost + *more;
  }
  co_await on_core(core, [&pair] { pair.resume(); });
  co_return lost + (pair.receives() ? statistics_.collect_dropped(registers_, core) : 0);
}

// A hung queue is started anew; after an error of memory or DMA (null) the card is.
task<void> Card::mend(QueuePair* hung) {
  while (hung == nullptr && busy_) co_await sleep_for(1ms);
  reset_wanted_ = reset_wanted_ && hung != nullptr;
  if (busy_ || stopped_ || registers_.card_gone()) co_return;  // a queue that hangs: the watchdog asks again
  const Work work(busy_);
  Result<std::uint64_t> lost;
  if (hung != nullptr) {
    lost = co_await restart(*hung, options_.queues, false);
    if (lost) print("ixgbe: queues of core ", hung->core(), " started anew, lost=", *lost);
  } else {
    counters_.resets.add();
    set_link(false);
    for (auto& pair : pairs_) co_await on_core(pair->core(), [&pair] { pair->hold(); });
    lost = co_await bring_up();
    if (lost) print("ixgbe: card reset, lost=", *lost);
  }
  if (!lost) print(lost.error().message, "; the card stays off");
  for (auto& pair : pairs_) pair->announce_link();
}

task<void> Card::set_multicast(std::vector<MacAddress> groups) {
  co_await on_core(home_core_, [this, &groups]() -> task<void> {
    groups_ = std::move(groups);
    while (busy_) co_await sleep_for(1ms);  // a card that is being reset is not to be touched
    if (!stopped_) program_multicast(registers_, groups_, options_.queues.promiscuous != 0);
  });
}

Result<void> Card::steer(std::uint32_t flow, unsigned core) noexcept {
  if (core >= receiving()) return failure(ErrorCode::invalid, "a flow is steered to one core with a queue", core);
  const unsigned first = options_.reserved_core ? 1 : 0;  // control keeps its own
  if (flow == 0) {
    for (unsigned i = first; i < steered_.size(); ++i) {
      if (steered_[i].first == 0 || steered_[i].second != core) continue;
      steered_[i] = {};
      program_steering(registers_, i, 0, 0);
    }
    return {};
  }
  if (first != 0 && steered_[0].first == flow) return failure(ErrorCode::invalid, "control keeps this port for its core", flow);
  // Where it stands already, else the first that is free.
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
