// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/card.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "drivers/virtio/settings.hpp"
#include "kernel/console.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/panic.hpp"
#include "kernel/toeplitz.hpp"

namespace neap::virtio {

using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t wanted_features =
    feature::checksum | feature::guest_checksum | feature::control_guest_offloads | feature::mtu | feature::mac | feature::guest_tso4 |
    feature::guest_tso6 | feature::host_tso4 | feature::host_tso6 | feature::merged_buffers | feature::status | feature::control_queue |
    feature::control_receive | feature::multiqueue | feature::indirect | feature::event_index | feature::version_1 |
    feature::access_platform | feature::order_platform | feature::queue_coalescing | feature::coalescing | feature::rss | feature::speed;
constexpr std::uint32_t ethernet_bytes = 14, itr_us_max = 10'000;
constexpr unsigned rss_entries_max = 128, multicast_max = 64;  // QEMU's table has 64 addresses

/// The data of a command, built from little-endian numbers.
class CommandData {
 public:
  template <class T>
  CommandData& operator<<(T value) noexcept {
    require(bytes_ + sizeof value <= data_.size(), "virtio: a command's data are too long", bytes_);
    std::memcpy(data_.data() + bytes_, &value, sizeof value);
    bytes_ += sizeof value;
    return *this;
  }
  operator std::span<const std::byte>() const noexcept { return std::span(data_).first(bytes_); }

 private:
  std::array<std::byte, 512> data_;
  std::size_t bytes_ = 0;
};

std::uint16_t number(std::uint64_t value) noexcept { return static_cast<std::uint16_t>(value); }

}  // namespace

task<Result<std::unique_ptr<Card>>> start(std::unique_ptr<Transport> transport, Options options) {
  std::unique_ptr<Card> card(new (std::nothrow) Card(std::move(transport), options));
  if (!card) co_return failure(ErrorCode::out_of_memory, "virtio: no memory for the card");
  auto done = co_await card->bring_up();
  if (!done) {
    card->transport_->write(reg::device_status, status::failed);  // 3.1.1
    co_return std::unexpected(done.error());
  }
  co_return std::move(card);
}

Card::Card(std::unique_ptr<Transport> transport, Options options)
    : transport_(std::move(transport)), options_(options), home_core_(this_core()) {}

void Card::stop() noexcept {
  if (std::exchange(stopped_, true)) return;
  policy::forget(*this);
  control_.close();
  link_up_.store(false, std::memory_order_relaxed);
  transport_->write(reg::device_status, 0);
  transport_->enable(false);
  for (const auto& [core, vector] : vectors_) free_vector(core, vector);
}

Card::~Card() {
  stop();
  for (auto& pair : pairs_) {
    if (pair && pair->attached()) (void)pair.release();
  }
}

task<void> Card::close() {
  require(this_core() == home_core_, "virtio: the card is closed on another core than the one that opened it", this_core());
  while (failing_ || sending_) co_await sleep_for(1ms);
  stop();
  (void)co_await reset(*transport_);
  for (auto& pair : pairs_) {
    co_await on_core(pair->core(), [&pair] { pair->abandon(); });
    while (!co_await on_core(pair->core(), [&pair] { return pair->detach(); })) {
    }
  }
}

task<Result<void>> Card::bring_up() {
  if (auto done = co_await reset(*transport_); !done) co_return done;
  const auto agreed = negotiate(*transport_, wanted_features & options_.features);
  if (!agreed) co_return std::unexpected(agreed.error());
  features_ = *agreed;
  configuration_ = read_configuration(*transport_, features_);
  if (!has(feature::mac)) {
    const std::uint64_t random = machine::random_bits();
    std::memcpy(configuration_.mac.data(), &random, configuration_.mac.size());
    configuration_.mac[0] = static_cast<std::uint8_t>((configuration_.mac[0] & 0xFC) | 2);  // local, and no group
  }
  if (has(feature::mtu) && options_.frame_bytes_max > configuration_.mtu + ethernet_bytes)
    co_return failure(ErrorCode::invalid, "virtio: the device's MTU is smaller than the wanted one", configuration_.mtu);
  if (!has(feature::merged_buffers) && options_.frame_bytes_max > ReceivePool::buffer_bytes - frame_header_bytes)
    co_return failure(ErrorCode::unsupported, "virtio: the device has no merged buffers, which long frames need", options_.frame_bytes_max);
  if ((features_ & (feature::multiqueue | feature::rss)) != 0) queue_pairs_offered_ = std::max(configuration_.queue_pairs_max, 1U);
  if (transport_->vectors() < 2) co_return failure(ErrorCode::unsupported, "virtio: too few MSI-X vectors", transport_->vectors());
  const unsigned pairs = std::min({core_count(), queue_pairs_offered_, transport_->vectors() - 1, pairs_max});
  for (unsigned core = 0; core < pairs; ++core) {
    pairs_.push_back(std::make_unique<QueuePair>(
        core, [](void* card) noexcept { static_cast<Card*>(card)->inspection_.ask(static_cast<Card*>(card)->home_core_); }, this));
  }
  if (auto done = co_await prepare_pairs(); !done) co_return done;
  transport_->enable(true);
  if (auto done = make_vectors(); !done) co_return done;
  for (unsigned core = 0; core < pairs; ++core) {
    if (auto done = start_queue(pairs_[core]->receive_queue().ring(), 2 * core, core); !done) co_return done;
    if (auto done = start_queue(pairs_[core]->transmit_queue().ring(), 2 * core + 1, core); !done) co_return done;
  }
  if (has(feature::control_queue)) {
    if (auto done = start_queue(control_.ring(), 2 * queue_pairs_offered_, no_vector); !done) co_return done;
  }
  constexpr std::uint32_t running = status::acknowledge | status::driver | status::features_ok | status::driver_ok;
  transport_->write(reg::device_status, running);
  if (auto done = co_await configure(); !done) co_return done;
  for (auto& pair : pairs_) co_await on_core(pair->core(), [&pair] { pair->start(); });
  look_at_link();

  const auto yes = [this](std::uint64_t features, const char* text) { return (features_ & features) != 0 ? text : ""; };
  Line line;
  line << "virtio: network card, MAC " << mac() << ", " << pairs << " of " << queue_pairs_offered_ << " queue pairs, "
       << (rss_entries_ != 0 ? "RSS"
           : pairs > 1       ? "the device steers"
                             : "one queue")
       << ", rings " << pairs_[0]->receive_queue().ring().size() << " and " << pairs_[0]->transmit_queue().ring().size() << ", link "
       << (link_up() ? "up" : "down") << ", features" << yes(feature::checksum, " csum") << yes(feature::guest_checksum, " guest_csum")
       << yes(feature::host_tso4, " tso4") << yes(feature::host_tso6, " tso6") << yes(feature::guest_tso4, " guest_tso4")
       << yes(feature::guest_tso6, " guest_tso6") << yes(feature::merged_buffers, " mrg_rxbuf") << yes(feature::indirect, " indirect")
       << yes(feature::event_index, " event_idx") << yes(feature::coalescing | feature::queue_coalescing, " coalescing");
  line.print();
  co_return Result<void>{};
}

Result<std::uint32_t> Card::select_queue(unsigned number) const noexcept {
  transport_->write(reg::queue_select, number);
  const std::uint32_t offered = transport_->read(reg::queue_size);
  // 2.7: the size of a split ring is a power of two, at most 32768.
  if (offered < Ring::descriptors_min || offered > 32768 || transport_->read(reg::queue_enable) != 0)
    return failure(ErrorCode::device, "virtio: a queue does not exist, is too short, or is in use", offered);
  return std::bit_floor(std::min(offered, options_.ring_descriptors_max));
}

task<Result<void>> Card::prepare_pairs() {
  for (auto& pair : pairs_) {
    const auto receive = select_queue(2 * pair->core()), transmit = select_queue(2 * pair->core() + 1);
    if (!receive) co_return std::unexpected(receive.error());
    if (!transmit) co_return std::unexpected(transmit.error());
    auto done = co_await on_core(pair->core(), [&]() -> Result<void> {
      if (auto prepared = pair->receive_queue().prepare(*receive, features_); !prepared) return prepared;
      return pair->transmit_queue().prepare(*transmit, features_, options_.frame_bytes_max);
    });
    if (!done) co_return done;
  }
  if (!has(feature::control_queue)) co_return Result<void>{};
  const auto size = select_queue(2 * queue_pairs_offered_);
  if (!size) co_return std::unexpected(size.error());
  co_return control_.prepare(std::min(*size, Ring::descriptors_min));
}

Result<void> Card::make_vectors() {
  const auto pairs = static_cast<unsigned>(pairs_.size());
  for (unsigned entry = 0; entry <= pairs; ++entry) {
    const bool queue = entry < pairs;
    const unsigned core = queue ? entry : home_core_;
    Callback callback = queue ? Callback([pair = pairs_[entry].get()] { pair->interrupt(); }) : Callback([this] { config_interrupt(); });
    const auto vector = allocate_vector(core, std::move(callback));
    if (!vector) return std::unexpected(vector.error());
    vectors_.emplace_back(core, *vector);
    if (auto routed = transport_->route(entry, core, *vector); !routed) return routed;
  }
  transport_->write(reg::config_vector, pairs);
  if (transport_->read(reg::config_vector) != pairs)
    return failure(ErrorCode::device, "virtio: the device refuses an interrupt vector", pairs);
  return {};
}

Result<void> Card::start_queue(Ring& ring, unsigned number, unsigned vector) const noexcept {
  transport_->write(reg::queue_select, number);
  transport_->write(reg::queue_size, ring.size());
  transport_->write(reg::queue_vector, vector);
  if (transport_->read(reg::queue_vector) != vector)
    return failure(ErrorCode::device, "virtio: the device refuses an interrupt vector", vector);
  transport_->write(reg::queue_descriptors, ring.descriptors_address());
  transport_->write(reg::queue_available, ring.available_address());
  transport_->write(reg::queue_used, ring.used_address());
  volatile std::uint16_t* const notify = transport_->notify_address(transport_->read(reg::queue_notify_offset));
  if (notify == nullptr) return failure(ErrorCode::device, "virtio: a queue is notified outside of its BAR", number);
  ring.connect(notify, static_cast<std::uint16_t>(number), has(feature::event_index));
  transport_->write(reg::queue_enable, 1);
  return {};
}

// --- Commands ----------------------------------------------------------------------------------------------------------------------------
task<Result<void>> Card::send(Command command, std::span<const std::byte> data) {
  counters_.commands.add();
  auto done = co_await control_.send(command, data);
  if (!done) counters_.refused_commands.add();
  co_return done;
}

task<Result<void>> Card::configure() {
  if (pairs_.size() > 1) {
    if (auto done = co_await steer(); !done) co_return done;
  }
  // Without this command, QEMU's device receives all frames.
  if (has(feature::control_receive)) {
    if (auto done = co_await send(command::set_promiscuous, CommandData() << std::uint8_t{0}); !done) co_return done;
    co_await set_multicast({});
  }
  co_return Result<void>{};
}

task<Result<void>> Card::steer() {
  const auto pairs = static_cast<unsigned>(pairs_.size());
  if (has(feature::rss) && configuration_.rss_key_max >= toeplitz::key.size() && configuration_.rss_table_max != 0) {
    const std::uint32_t entries = std::bit_floor(std::min<std::uint32_t>(configuration_.rss_table_max, rss_entries_max));
    CommandData data;
    data << rss_hash_types << number(entries - 1) << std::uint16_t{0};
    for (std::uint32_t i = 0; i < entries; ++i) data << number(i % pairs);
    data << number(pairs) << static_cast<std::uint8_t>(toeplitz::key.size()) << toeplitz::key;
    if (co_await send(command::set_rss, data)) {
      rss_entries_ = entries;
      co_return Result<void>{};
    }
  }
  if (has(feature::multiqueue)) co_return co_await send(command::set_queue_pairs, CommandData() << number(pairs));
  co_return failure(ErrorCode::device, "virtio: the device does not spread flows over its queues");
}

task<void> Card::set_multicast(std::vector<MacAddress> groups) {
  co_await on_core(home_core_, [this, &groups]() -> task<void> {
    if (!has(feature::control_receive) || stopped_) co_return;  // the device then receives all groups
    const bool all = groups.size() > multicast_max;
    if (all != all_multicast_) {
      if (co_await send(command::set_all_multicast, CommandData() << static_cast<std::uint8_t>(all ? 1 : 0))) all_multicast_ = all;
    }
    if (all) co_return;
    // A table of addresses of hosts, which stays empty, and one of groups.
    CommandData data;
    data << std::uint32_t{0} << static_cast<std::uint32_t>(groups.size());
    for (const MacAddress& group : groups) data << group;
    static_cast<void>(co_await send(command::set_mac_tables, data));
  });
}

task<void> Card::send_intervals() {
  if (std::exchange(sending_, true)) co_return;
  for (unsigned core = 0; core < pairs_.size() && !stopped_;) {
    const std::uint32_t wanted_us = itr_us(core);
    if (wanted_us == itr_us_sent_[core]) {
      ++core;
      continue;
    }
    itr_us_sent_[core] = wanted_us;
    CommandData data;
    // Half a ring of frames ends the wait early, so that the ring does not run dry.
    const std::uint32_t frames_max = pairs_[core]->receive_queue().ring().size() / 2;
    const bool for_queue = has(feature::queue_coalescing);
    if (for_queue) data << number(2ULL * core) << std::uint16_t{0};
    data << frames_max << wanted_us;
    static_cast<void>(co_await send(for_queue ? command::set_queue_coalescing : command::set_receive_coalescing, data));
    core = 0;  // a further change may have come meanwhile
  }
  sending_ = false;
}

// --- Interrupts, the link, and failures --------------------------------------------------------------------------------------------------
void Card::config_interrupt() {
  counters_.config_interrupts.add();
  inspect();
}

void Card::inspect() {
  require(this_core() == home_core_, "virtio: the card is inspected on another core than the one that opened it", this_core());
  if (stopped_ || failing_) return;
  const char* why = nullptr;
  // A device that is gone reads as all ones.
  if ((transport_->read(reg::device_status) & status::needs_reset) != 0) why = "virtio: the device is gone, or needs a reset";
  for (auto& pair : pairs_) why = pair->fault() != nullptr ? pair->fault() : why;
  if (why == nullptr) return look_at_link();
  failing_ = true;
  neap::start(fail(why));
}

void Card::look_at_link() {
  const Configuration now = read_configuration(*transport_, features_);
  const bool up = !has(feature::status) || (now.status & link_up_bit) != 0;
  link_megabits_.store(now.speed != speed_unknown ? now.speed : 0, std::memory_order_relaxed);
  if (link_up_.exchange(up, std::memory_order_relaxed) != up) counters_.link_changes.add();
  for (auto& pair : pairs_) pair->set_link(up);
}

task<void> Card::fail(const char* why) {
  counters_.failures.add();
  print(why, "; the device is closed");
  control_.close();
  link_up_.store(false, std::memory_order_relaxed);
  for (auto& pair : pairs_) pair->set_link(false);
  // Without bus mastering, not even a device that ignores the reset reaches memory.
  static_cast<void>(co_await reset(*transport_));
  transport_->enable(false);
  for (auto& pair : pairs_) co_await on_core(pair->core(), [&pair] { pair->abandon(); });
  failing_ = false;
  stop();
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

FrameSender& Card::attach(FrameReceiver& receiver) {
  QueuePair& own = pair(this_core());
  own.attach(receiver);
  return own;
}

unsigned Card::receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                              std::uint16_t destination_port) const noexcept {
  if (rss_entries_ == 0) return pairs_.size() == 1 ? 0 : device_decides;
  return toeplitz::hash_ipv4(source_ip, destination_ip, source_port, destination_port) % rss_entries_ % pairs_.size();
}

unsigned Card::receiving_core_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                   std::uint16_t destination_port) const noexcept {
  if (rss_entries_ == 0) return pairs_.size() == 1 ? 0 : device_decides;
  return toeplitz::hash_ipv6(source_ip, destination_ip, source_port, destination_port) % rss_entries_ % pairs_.size();
}

void Card::report_counters(std::optional<unsigned> core, const Emit& emit) const {
  const auto emit_sums = [&](const auto& table, auto counters_of) {
    for (const auto& [name, count] : table) {
      std::uint64_t sum = 0;
      for (unsigned i = 0; i < pairs_.size(); ++i) {
        if (!core || i == *core) sum += (counters_of(*pairs_[i]).*count).value();
      }
      emit(name, sum);
    }
  };
  emit_sums(traffic_counts, [](QueuePair& pair) -> auto& { return pair.traffic(); });
  emit_sums(receive_counts, [](QueuePair& pair) -> auto& { return pair.receive_queue().counters(); });
  emit_sums(transmit_counts, [](QueuePair& pair) -> auto& { return pair.transmit_queue().counters(); });
  emit_sums(pair_counts, [](QueuePair& pair) -> auto& { return pair.counters(); });
  if (core) return;
  for (const auto& [name, count] : card_counts) emit(name, (counters_.*count).value());
}

task<Result<void>> Card::report_device_counters(std::optional<unsigned>, const Emit&) {
  if (stopped_) co_return failure(ErrorCode::closed, "virtio: the device is closed");
  co_return Result<void>{};
}

Result<std::uint32_t> Card::round_itr(unsigned core, std::uint32_t itr_us) const noexcept {
  if (core >= pairs_.size()) return failure(ErrorCode::unsupported, "this core has no receive queue: the device has too few", core);
  const bool moderates = (features_ & (feature::queue_coalescing | feature::coalescing)) != 0;
  if (!moderates && itr_us != 0) return failure(ErrorCode::invalid, "this device does not moderate interrupts: it takes 0us", itr_us);
  if (itr_us > itr_us_max) return failure(ErrorCode::invalid, "the card takes 0us to 10000us", itr_us);
  return itr_us;
}

std::uint32_t Card::itr_us(unsigned core) const noexcept {
  if (core >= pairs_.size()) return 0;
  return itr_us_[has(feature::queue_coalescing) ? core : 0].load(std::memory_order_relaxed);
}

void Card::set_itr(unsigned core, std::uint32_t itr_us) noexcept {
  if (core >= pairs_.size() || !round_itr(core, itr_us)) return;
  itr_us_[has(feature::queue_coalescing) ? core : 0].store(itr_us, std::memory_order_relaxed);
  if ((features_ & (feature::queue_coalescing | feature::coalescing)) != 0) interval_call_.ask(home_core_);
}

void Card::set_interrupt(unsigned core, bool on) noexcept {
  if (core >= pairs_.size()) return;
  require(core == this_core(), "virtio: a core turns another core's interrupt on or off", core);
  pairs_[core]->want_interrupts(on);
}

const volatile void* Card::next_receive_line(unsigned core) const noexcept {
  return core < pairs_.size() ? pairs_[core]->next_receive_line() : nullptr;
}

std::span<const policy::Row> Card::settings() const noexcept { return setting_rows(); }

std::uint32_t Card::value_of(policy::Setting wanted) const noexcept {
  if (wanted == setting::budget) return budget_;
  if (wanted == setting::coalescing) return joins() && coalescing_ ? 1 : 0;
  return promiscuous_ ? 1 : 0;
}

task<Result<policy::Device::Change>> Card::change(policy::Setting wanted, std::uint32_t value, unsigned) {
  if (this_core() != home_core_) co_return failure(ErrorCode::unsupported, "the card was not opened on core 0", home_core_);
  if (stopped_ || failing_) co_return failure(ErrorCode::closed, "the card is closed");
  const bool on = value != 0;
  Result<void> done;
  if (wanted == setting::budget) {
    budget_ = value;
    for (auto& pair : pairs_) co_await on_core(pair->core(), [&] { pair->set_budget(value); });
  } else if (wanted == setting::promiscuous) {
    if (!has(feature::control_receive)) co_return failure(ErrorCode::unsupported, "this device has no filter");
    done = co_await send(command::set_promiscuous, CommandData() << static_cast<std::uint8_t>(on ? 1 : 0));
    if (done) promiscuous_ = on;
  } else if (wanted == setting::coalescing) {
    if (on == (value_of(wanted) != 0)) co_return Change{.value = value};
    if (!joins() || !has(feature::control_guest_offloads)) co_return failure(ErrorCode::unsupported, "this device cannot change rsc");
    constexpr std::uint64_t joining = feature::guest_tso4 | feature::guest_tso6;
    done = co_await send(command::set_guest_offloads, CommandData() << (features_ & (feature::guest_checksum | (on ? joining : 0))));
    if (done) coalescing_ = on;
  } else {
    co_return failure(ErrorCode::unsupported, "virtio-net has no such setting");
  }
  if (!done) co_return std::unexpected(done.error());
  co_return Change{.value = value};
}

}  // namespace neap::virtio
