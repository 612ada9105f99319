// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/card.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "drivers/common_settings.hpp"
#include "kernel/console.hpp"
#include "kernel/timer.hpp"

namespace neap::virtio {

using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t joining = feature::guest_tso4 | feature::guest_tso6, moderating = feature::queue_coalescing | feature::coalescing;
constexpr std::uint64_t wanted_features = feature::checksum | feature::guest_checksum | feature::control_guest_offloads | feature::mtu |
                                          feature::mac | joining | feature::host_tso4 | feature::host_tso6 | feature::merged_buffers |
                                          feature::status | feature::control_queue | feature::control_receive | feature::multiqueue |
                                          feature::indirect | feature::event_index | feature::version_1 | feature::access_platform |
                                          feature::order_platform | moderating | feature::rss | feature::speed;
// 5.1.3.1. Without merged buffers, each buffer for joined segments would need 64 KiB (5.1.6.3.1).
constexpr Requirement requirements[] = {
    {feature::host_tso4 | feature::host_tso6, feature::checksum},
    {joining, feature::guest_checksum | feature::merged_buffers},
    {feature::control_receive | feature::control_guest_offloads | feature::multiqueue | feature::rss | moderating, feature::control_queue},
};
constexpr std::pair<std::uint64_t, std::string_view> feature_names[] = {{feature::checksum, " csum"},
                                                                        {feature::guest_checksum, " guest_csum"},
                                                                        {feature::host_tso4, " tso4"},
                                                                        {feature::host_tso6, " tso6"},
                                                                        {feature::guest_tso4, " guest_tso4"},
                                                                        {feature::guest_tso6, " guest_tso6"},
                                                                        {feature::merged_buffers, " mrg_rxbuf"},
                                                                        {feature::indirect, " indirect"},
                                                                        {feature::event_index, " event_idx"},
                                                                        {moderating, " coalescing"}};
constexpr policy::Row rows[] = {card_setting::budget_row(ReceiveQueue::budget_max), card_setting::coalescing_row,
                                card_setting::promiscuous_row};
constexpr std::uint32_t ethernet_bytes = 14, itr_us_max = 10'000;
constexpr unsigned multicast_max = 64;  // QEMU's table has 64 addresses

// 2.5.1: fields of more than 32 bits are read again if the device has changed its configuration meanwhile.
MacAddress read_mac(const Transport& transport) noexcept {
  constexpr unsigned tries = 16;
  MacAddress mac{};
  for (unsigned i = 0; i < tries; ++i) {
    const std::uint32_t generation = transport.read(reg::config_generation);
    for (std::uint8_t octet = 0; octet < mac.size(); ++octet)
      mac[octet] = static_cast<std::uint8_t>(transport.read({Region::device, octet, 1}));
    if (transport.read(reg::config_generation) == generation) break;
  }
  return mac;
}

std::uint16_t number(std::uint64_t value) noexcept { return static_cast<std::uint16_t>(value); }

}  // namespace

std::span<const policy::Row> setting_rows() noexcept { return rows; }

// --- Start -------------------------------------------------------------------------------------------------------------------------------
task<Result<std::unique_ptr<Card>>> start(std::unique_ptr<Transport> transport, Options options) {
  std::unique_ptr<Card> card(new (std::nothrow) Card(std::move(transport), options));
  if (!card) co_return failure(ErrorCode::out_of_memory, "virtio: no memory for the card");
  auto done = co_await card->bring_up();
  if (!done) {
    card->transport_->write(reg::device_status, status::failed);  // 3.1.1
    co_return std::unexpected(done.error());
  }
  card->print_start();
  co_return std::move(card);
}

task<Result<void>> Card::bring_up() {
  if (auto done = co_await reset(*transport_); !done) co_return done;
  const auto agreed = negotiate(*transport_, wanted_features & options_.features, requirements);
  if (!agreed) co_return std::unexpected(agreed.error());
  features_ = *agreed;
  mac_ = has(feature::mac) ? read_mac(*transport_) : random_mac();
  const std::uint32_t mtu = has(feature::mtu) ? transport_->read(reg::mtu) : options_.frame_bytes_max;
  if (options_.frame_bytes_max > mtu + ethernet_bytes)
    co_return failure(ErrorCode::invalid, "virtio: the device's MTU is smaller than the wanted one", mtu);
  if (!has(feature::merged_buffers) && options_.frame_bytes_max > ReceivePool::buffer_bytes - frame_header_bytes)
    co_return failure(ErrorCode::unsupported, "virtio: the device has no merged buffers, which long frames need", options_.frame_bytes_max);
  if (has_one(feature::multiqueue | feature::rss)) pairs_offered_ = std::max(transport_->read(reg::queue_pairs_max), 1U);
  // One message is for the configuration. `make_vectors` refuses a device that then has none for a pair.
  const unsigned messages = std::max(bus_.msix_vectors(), 2U) - 1;
  make_pairs(std::min({core_count(), pairs_offered_, messages, cores_max}));
  bus_.enable(true);
  if (auto done = make_vectors(); !done) co_return done;
  if (auto done = route_vectors(); !done) co_return done;
  const auto pairs = static_cast<std::uint32_t>(pairs_.size());
  transport_->write(reg::config_vector, pairs);
  if (transport_->read(reg::config_vector) != pairs)
    co_return failure(ErrorCode::device, "virtio: the device refuses an interrupt vector", pairs);
  for (auto& pair : pairs_) {
    auto done = co_await on_core(pair->core(), [&]() -> Result<void> {
      ReceiveQueue& receive = pair->receive_queue();
      TransmitQueue& transmit = pair->transmit_queue();
      const unsigned core = pair->core();
      auto started = start_queue(receive.ring(), 2 * core, core, [&](std::uint32_t size) { return receive.prepare(size, features_); });
      if (!started) return started;
      return start_queue(transmit.ring(), 2 * core + 1, core,
                         [&](std::uint32_t size) { return transmit.prepare(size, features_, options_.frame_bytes_max); });
    });
    if (!done) co_return done;
  }
  if (has(feature::control_queue)) {
    auto done = start_queue(control_.ring(), 2 * pairs_offered_, no_vector,
                            [this](std::uint32_t size) { return control_.prepare(std::min(size, Ring::descriptors_min)); });
    if (!done) co_return done;
  }
  transport_->write(reg::device_status, status::acknowledge | status::driver | status::features_ok | status::driver_ok);
  // First of all, because a device may wait for buffers with a frame that came early. QEMU 7.2 then holds up its other queues, too.
  co_await on_each_pair([](QueuePair& pair) { pair.receive_queue().refill(); });
  if (auto done = co_await steer(); !done) co_return done;
  // Without this command, QEMU's device receives all frames.
  if (has(feature::control_receive)) {
    if (auto done = co_await control_.send(CommandBytes() << command::set_promiscuous << std::uint8_t{0}); !done) co_return done;
    co_await set_multicast({});
  }
  look_at_link();
  co_return Result<void>{};
}

/// Calls `prepare(descriptors)`, which allocates `ring`, and starts the queue.
template <class Prepare>
Result<void> Card::start_queue(Ring& ring, unsigned number, unsigned vector, Prepare prepare) {
  const auto descriptors = select_queue(*transport_, number, options_.ring_descriptors_max);
  if (!descriptors) return std::unexpected(descriptors.error());
  if (auto done = prepare(*descriptors); !done) return done;
  return enable_queue(*transport_, ring, number, vector, has(feature::event_index));
}

// Tells the device how to spread flows over the pairs. With one pair, each entry of `rss_table_` names it.
task<Result<void>> Card::steer() {
  const std::uint16_t pairs = number(pairs_.size());
  if (pairs == 1) co_return Result<void>{};
  const std::uint32_t entries = has(feature::rss) ? std::bit_floor(std::min(transport_->read(reg::rss_table_max), rss::table_entries)) : 0;
  if (entries != 0 && transport_->read(reg::rss_key_max) >= toeplitz::key.size()) {
    rss_table_ = rss::table_for(pairs, rss::none, entries);
    CommandBytes set_rss;
    set_rss << command::set_rss << rss_hash_types << number(entries - 1) << std::uint16_t{0};
    for (const std::uint8_t queue : rss_table_) set_rss << number(queue);
    set_rss << pairs << static_cast<std::uint8_t>(toeplitz::key.size()) << toeplitz::key;
    if (auto done = co_await control_.send(set_rss)) co_return done;
  }
  rss_table_.entries = 0;
  if (has(feature::multiqueue)) co_return co_await control_.send(CommandBytes() << command::set_queue_pairs << pairs);
  co_return failure(ErrorCode::device, "virtio: the device does not spread flows over its queues");
}

void Card::print_start() const {
  Line line;
  line << "virtio: network card, MAC " << mac() << ", " << pairs_.size() << " of " << pairs_offered_ << " queue pairs, "
       << (pairs_.size() == 1        ? "one queue"
           : rss_table_.entries != 0 ? "RSS"
                                     : "the device steers")
       << ", rings " << pairs_[0]->receive_queue().ring().size() << " and " << pairs_[0]->transmit_queue().ring().size() << ", link "
       << (link_up() ? "up" : "down") << ", features";
  for (const auto& [features, name] : feature_names) {
    if (has_one(features)) line << name;
  }
  line.print();
}

// --- Interrupts, the link, and the end ---------------------------------------------------------------------------------------------------
void Card::other_interrupt() {
  counters_.config_interrupts.add();
  inspect();
}

void Card::inspect() {
  require_home_core();
  if (stopped_ || closing_) return;
  const char* why = nullptr;
  // A device that is gone reads as all ones.
  if ((transport_->read(reg::device_status) & status::needs_reset) != 0) why = "virtio: the device is gone, or needs a reset";
  for (auto& pair : pairs_) why = pair->fault() != nullptr ? pair->fault() : why;
  if (why == nullptr) return look_at_link();
  closing_ = true;
  neap::start(fail(why));
}

void Card::look_at_link() {
  const bool up = !has(feature::status) || (transport_->read(reg::status) & link_up_bit) != 0;
  const std::uint32_t speed = has(feature::speed) ? transport_->read(reg::speed) : speed_unknown;
  if (change_link(up, speed != speed_unknown ? speed : 0)) announce_link();
}

task<void> Card::fail(const char* why) {
  counters_.failures.add();
  print(why, "; the device is closed");
  set_link(false);
  announce_link();
  co_await take_back();
}

task<void> Card::close() {
  require_home_core();
  while (closing_ || sending_) co_await sleep_for(1ms);
  if (!stopped_) co_await take_back();
  while (control_.busy()) co_await sleep_for(100us);  // a stack starts `set_multicast` without a wait for its end
  co_await detach_all();
}

// Resets the device, and takes the buffers and frames back that it held.
task<void> Card::take_back() {
  closing_ = true;
  control_.close();
  static_cast<void>(co_await reset(*transport_));
  // Without bus mastering, not even a device that ignores the reset reaches memory.
  stop();
  co_await on_each_pair([](QueuePair& pair) { pair.abandon(); });
  closing_ = false;
}

void Card::stop_device() noexcept {
  control_.close();
  transport_->write(reg::device_status, 0);
}

// --- The interfaces ----------------------------------------------------------------------------------------------------------------------
NetDeviceLimits Card::limits() const noexcept {
  const auto pairs = static_cast<std::uint32_t>(pairs_.size());
  return {.queue_pairs = pairs,
          .transmit_queues = pairs,
          .frame_bytes_max = options_.frame_bytes_max,
          .transmit_pieces_max = pairs_[0]->transmit_queue().pieces_max(),
          .tso_bytes_max = has(feature::host_tso4 | feature::host_tso6 | feature::indirect) ? TransmitQueue::tso_bytes_max : 0,
          .checksum_offload = has(feature::checksum),
          .ip_header_offload = false};
}

task<void> Card::set_multicast(std::vector<MacAddress> groups) {
  co_await on_core(home_core_, [this, &groups]() -> task<void> {
    if (!has(feature::control_receive) || stopped_) co_return;  // the device then receives all groups
    const bool all = groups.size() > multicast_max;
    if (all) groups.clear();
    static_cast<void>(co_await control_.send(CommandBytes() << command::set_all_multicast << std::uint8_t{all}));
    // A table of addresses of hosts, which stays empty, and one of groups.
    CommandBytes tables;
    tables << command::set_mac_tables << std::uint32_t{0} << static_cast<std::uint32_t>(groups.size());
    for (const MacAddress& group : groups) tables << group;
    static_cast<void>(co_await control_.send(tables));
  });
}

// --- Settings ----------------------------------------------------------------------------------------------------------------------------
Result<std::uint32_t> Card::round_itr(unsigned core, std::uint32_t itr_us) const noexcept {
  if (core >= pairs_.size()) return failure(ErrorCode::unsupported, "this core has no receive queue: the device has too few", core);
  if (!has_one(moderating) && itr_us != 0)
    return failure(ErrorCode::invalid, "this device does not moderate interrupts: it takes 0us", itr_us);
  if (itr_us > itr_us_max) return failure(ErrorCode::invalid, "the card takes 0us to 10000us", itr_us);
  return itr_us;
}

// Without an interval for each queue, there is one for all.
void Card::set_itr(unsigned core, std::uint32_t itr_us) noexcept {
  if (!round_itr(core, itr_us)) return;
  for (unsigned each = 0; each < pairs_.size(); ++each) {
    if (each == core || !has(feature::queue_coalescing)) itr_us_[each].store(itr_us, std::memory_order_relaxed);
  }
  interval_call_.ask(home_core_);
}

task<void> Card::send_intervals() {
  if (std::exchange(sending_, true)) co_return;  // the call in progress sends this change, too
  const bool each = has(feature::queue_coalescing);
  for (bool changed = true; std::exchange(changed, false) && !stopped_;) {
    for (unsigned core = 0; core < (each ? pairs_.size() : 1); ++core) {
      const std::uint32_t wanted_us = itr_us(core);
      if (std::exchange(itr_us_sent_[core], wanted_us) == wanted_us) continue;
      changed = true;
      CommandBytes set;
      set << (each ? command::set_queue_coalescing : command::set_receive_coalescing);
      if (each) set << number(2ULL * core) << std::uint16_t{0};
      // Half a ring of frames ends the wait early, so that the ring does not run dry.
      set << pairs_[core]->receive_queue().ring().size() / 2 << wanted_us;
      static_cast<void>(co_await control_.send(set));
    }
  }
  sending_ = false;
}

std::span<const policy::Row> Card::settings() const noexcept { return rows; }

std::uint32_t Card::value_of(policy::Setting wanted) const noexcept {
  if (wanted == card_setting::budget) return budget_;
  if (wanted == card_setting::coalescing) return has_one(joining) && coalescing_ ? 1 : 0;
  return promiscuous_ ? 1 : 0;
}

task<Result<policy::Device::Change>> Card::change(policy::Setting wanted, std::uint32_t value, unsigned) {
  if (this_core() != home_core_) co_return failure(ErrorCode::unsupported, "the card was not opened on core 0", home_core_);
  if (stopped_ || closing_) co_return failure(ErrorCode::closed, "the card is closed");
  const bool on = value != 0;
  Result<void> done;
  if (wanted == card_setting::budget) {
    budget_ = value;
    co_await on_each_pair([value](QueuePair& pair) { pair.set_budget(value); });
  } else if (wanted == card_setting::promiscuous) {
    if (!has(feature::control_receive)) co_return failure(ErrorCode::unsupported, "this device has no filter");
    done = co_await control_.send(CommandBytes() << command::set_promiscuous << std::uint8_t{on});
    if (done) promiscuous_ = on;
  } else if (wanted == card_setting::coalescing) {
    if (on == (value_of(wanted) != 0)) co_return Change{.value = value};
    if (!has_one(joining) || !has(feature::control_guest_offloads))
      co_return failure(ErrorCode::unsupported, "this device cannot change rsc");
    const std::uint64_t offloads = features_ & (feature::guest_checksum | (on ? joining : 0));
    done = co_await control_.send(CommandBytes() << command::set_guest_offloads << offloads);
    if (done) coalescing_ = on;
  } else {
    co_return failure(ErrorCode::unsupported, "virtio-net has no such setting");
  }
  if (!done) co_return std::unexpected(done.error());
  co_return Change{.value = value};
}

}  // namespace neap::virtio
