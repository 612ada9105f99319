// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/card.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "drivers/intel_eeprom.hpp"
#include "drivers/ixgbe/semaphore.hpp"
#include "drivers/ixgbe/settings.hpp"
#include "drivers/ixgbe/sfp.hpp"
#include "drivers/ixgbe/start_up.hpp"
#include "drivers/ixgbe/vectors.hpp"
#include "kernel/console.hpp"
#include "kernel/panic.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t frame_bytes_min = 60;
constexpr std::uint32_t frame_bytes_max = 15'500;  // 8.2.3.22.13: the card's own limit is 15.5 KiB, including tags and FCS

Result<const pci::Device*> find_device(std::optional<pci::Address> where) {
  for (const pci::Device& device : pci::devices()) {
    if (where ? device.address == *where : kind_of(device) != nullptr) {
      if (kind_of(device) == nullptr)
        return failure(ErrorCode::unsupported, "ixgbe: device at this address is no 82599, X540 or X550", device.device_id);
      return &device;
    }
  }
  return failure(ErrorCode::not_found, where ? "ixgbe: no device at this PCI address" : "ixgbe: no 82599, X540 or X550 found");
}

Result<void> check(const Options& options, unsigned receiving) {
  if (options.rss_cores > receiving)
    return failure(ErrorCode::invalid, "ixgbe: rss_cores is more than there are receive queues", options.rss_cores);
  if (options.reserved_core && *options.reserved_core >= receiving)
    return failure(ErrorCode::invalid, "ixgbe: the core to reserve has no receive queue", *options.reserved_core);
  if (options.reserved_core && options.reserved_port == 0) return failure(ErrorCode::invalid, "ixgbe: a core is reserved for port 0");
  if (options.queues.frame_bytes_max < frame_bytes_min || options.queues.frame_bytes_max > frame_bytes_max) {
    return failure(ErrorCode::invalid, "ixgbe: largest frame must have 60 to 15500 bytes", options.queues.frame_bytes_max);
  }
  for (const CardSetting& setting : card_settings()) {
    if (setting.option == nullptr || setting.row.kind != policy::Kind::number) continue;
    const std::uint32_t value = options.queues.*setting.option;
    const bool off = setting.row.off && value == 0;
    if (!off && (value < setting.row.value_min || value > setting.row.value_max))
      return failure(ErrorCode::invalid, "ixgbe: an option of the queues is out of its range (docs/policy.md)", value);
  }
  return {};
}

}  // namespace

task<Result<std::unique_ptr<Card>>> open(std::optional<pci::Address> where, Options options) {
  const auto device = find_device(where);
  if (!device) co_return std::unexpected(device.error());
  const auto bar = (*device)->map_bar(0);
  if (!bar) co_return std::unexpected(bar.error());
  if (bar->size() < Registers::bytes) co_return failure(ErrorCode::device, "ixgbe: BAR 0 is too small", bar->size());
  // PCIe must carry 10 Gbit/s of frames, descriptors, and PCIe packet headers.
  constexpr std::uint64_t wanted_mbps = 12'000;
  (*device)->settle_link("ixgbe", wanted_mbps);
  (*device)->enable_registers();
  std::unique_ptr<Card> card(new (std::nothrow) Card(**device, Registers(*bar), *kind_of(**device), options));
  if (!card) co_return failure(ErrorCode::out_of_memory, "ixgbe: no memory for the card");
  auto started = co_await card->start();
  if (!started) co_return std::unexpected(started.error());
  co_return std::move(card);
}

Card::Card(const pci::Device& device, Registers registers, const DeviceKind& kind, Options options)
    : CardBase(pci_, kind.model->name),
      device_(device),
      registers_(registers),
      options_(options),
      model_(*kind.model),
      medium_(kind.medium) {}

void Card::stop_device() noexcept {
  link_watch_.cancel();
  if (!registers_.card_gone()) stop_card(registers_);
}

task<void> Card::close() {
  require_home_core();
  while (busy_ || reset_wanted_) co_await sleep_for(1ms);
  stop();
  co_await detach_all();
}

task<Result<void>> Card::start() {
  const auto moderation = Moderation::from_us(options_.itr_us);
  if (!moderation) co_return std::unexpected(moderation.error());
  for (auto& itr_us : itr_us_) itr_us = moderation->itr_us();
  if (moderation->itr_us() < QueueOptions::coalescing_itr_us_min) options_.queues.coalescing = 0;
  if (auto good = check(options_, std::min(core_count(), receive_queues_max)); !good) co_return good;
  make_pairs(std::min(core_count(), pairs_max), registers_);
  if (auto done = co_await prepare_all(pairs_, options_.queues); !done) co_return done;
  const unsigned rss_cores = options_.rss_cores == 0 ? receiving() : options_.rss_cores;
  const bool leave_out = options_.reserved_core && *options_.reserved_core < rss_cores && rss_cores > 1;
  rss_table_ = rss::table_for(rss_cores, leave_out ? *options_.reserved_core : rss::none, model_.rss_entries);
  const unsigned hashed_to = rss_cores - (leave_out ? 1 : 0);
  if (options_.reserved_core) steered_[0] = {options_.reserved_port, *options_.reserved_core};
  unmasked_ = (std::uint64_t{1} << pairs_.size()) - 1;

  if (auto done = make_vectors(); !done) co_return done;
  if (auto done = co_await bring_up(); !done) co_return std::unexpected(done.error());
  if (auto done = co_await check_eeprom(); !done) co_return done;

  const auto& at = device_.address;
  Line line;
  line << "ixgbe: " << model_.name << " " << hex(device_.device_id) << " at bus " << at.bus << " device " << at.device << " function "
       << at.function << ", MAC " << mac_ << ", " << receiving() << " receive and " << pairs_.size() << " transmit queues, RSS over "
       << hashed_to << ", moderation " << moderation->itr_us() << " us, link " << (link_up() ? "up" : "down");
  line.print();
  if (options_.reserved_core) print("ixgbe: core ", *options_.reserved_core, " kept for TCP port ", options_.reserved_port);
  if (moderation->itr_us() != options_.itr_us)
    print("ixgbe: moderation of ", options_.itr_us, " us rounded to ", moderation->itr_us(), " us");
  co_return Result<void>{};
}

task<Result<void>> Card::check_eeprom() {
  if (!model_.eeprom_registers) co_return Result<void>{};
  auto turn = co_await acquire(registers_, model_.guard, SharedResource::eeprom);
  if (!turn) co_return turn;
  const auto read = [this](std::uint16_t address) { return read_eeprom(registers_, address); };
  const auto sum = co_await sum_intel_eeprom(read, model_.eeprom_unsummed);
  auto given_back = co_await release(registers_, model_.guard, SharedResource::eeprom);
  if (!sum) co_return std::unexpected(sum.error());
  if (*sum != intel_eeprom_checksum)
    print("ixgbe: EEPROM's checksum is ", hex(*sum), ", not ", hex(intel_eeprom_checksum), ": its address and link settings may be wrong");
  co_return given_back;
}

// Performs 4.6.3 from reset to running queues, at the start and after a fault that needs a reset. Pairs MUST be stopped (`hold`) or unused.
task<Result<std::uint64_t>> Card::bring_up() {
  require_home_core();
  if (counters_.resets.value() != 0) (void)statistics_.collect(registers_);
  if (auto done = co_await reset_card(registers_); !done) co_return std::unexpected(done.error());
  // Bus mastering starts only after the reset. Before the reset, the card may still use the rings of an earlier owner, whose memory now has
  // another use.
  device_.enable(true);
  std::uint64_t lost = 0;  // frames that were not sent
  for (auto& pair : pairs_) lost += co_await on_core(pair->core(), [&pair] { return pair->empty(); });
  if (auto done = co_await wait_until_initialised(registers_); !done) co_return std::unexpected(done.error());
  const auto mac = read_mac(registers_);
  if (!mac) co_return std::unexpected(mac.error());
  mac_ = *mac;
  if (auto done = co_await start_link(registers_, model_, medium_); !done) co_return std::unexpected(done.error());
  clear_statistics(registers_);
  if (auto done = co_await start_queues(); !done) co_return std::unexpected(done.error());
  if (auto done = start_interrupts(); !done) co_return std::unexpected(done.error());
  look_at_link(false);
  // Counts the frames that arrived after reception was enabled and before their queue was enabled.
  for (unsigned core = 0; core < receiving(); ++core) lost += statistics_.collect_dropped(registers_, core);
  co_return lost;
}

task<Result<void>> Card::start_queues() {
  // 4.6.7: filters and queues are programmed with reception off. Then reception is enabled, then each queue; a queue's tail is moved last.
  program_receive(registers_, model_, rss_table_, options_.queues.frame_bytes_max);
  for (unsigned i = 0; i < steered_.size(); ++i) {
    if (steered_[i].first != 0) program_steering(registers_, i, steered_[i].first, steered_[i].second);
  }
  program_multicast(registers_, groups_, options_.queues.promiscuous != 0);
  // 4.6.8: the order is the same as for reception: DMATXCTL.TE is set before the queues are enabled.
  program_transmit(registers_, options_.queues.frame_bytes_max);
  co_await on_each_pair([this](QueuePair& pair) { pair.program(options_.queues); });
  for (auto& pair : pairs_) {
    if (auto done = co_await pair->transmit_queue().enable(true); !done) co_return done;
  }
  program_running_options();
  // A reset clears EITR, and 7.3.2.1 requires that a queue with RSC has its interval from the first frame on.
  for (unsigned core = 0; core < pairs_.size(); ++core) set_itr(core, itr_us(core));
  if (auto done = co_await start_receive(registers_); !done) co_return done;
  for (auto& pair : pairs_) {
    if (auto done = co_await pair->enable_receive(true); !done) co_return done;
    co_await on_core(pair->core(), [&pair] { pair->resume(); });
  }
  co_return Result<void>{};
}

Result<void> Card::start_interrupts() {
  const auto pairs = static_cast<unsigned>(pairs_.size());
  program_vectors(registers_, pairs, options_.queues.transmit_interrupt != 0);
  if (auto routed = route_vectors(); !routed) return routed;
  enable_vectors(registers_, unmasked_);
  return {};
}

void Card::other_interrupt() {
  counters_.other_interrupts.add();
  const reg::Eicr causes = take_other_causes(registers_);
  if (causes.ecc && causes.raw() != Registers::all_ones) {
    // 8.2.3.5.1: the card's memory has failed, so its contents are unknown.
    counters_.memory_errors.add();
    if (counters_.memory_errors.value() == 1) print("ixgbe: EICR.ECC: the card's memory failed");
  }
  if (causes.pci_exception && causes.raw() != Registers::all_ones) {
    counters_.dma_errors.add();
    if (counters_.dma_errors.value() == 1) print("ixgbe: EICR.PCI_EXCEPTION: the card could not reach memory");
  }
  if ((causes.ecc || causes.pci_exception) && causes.raw() != Registers::all_ones && !std::exchange(reset_wanted_, true))
    neap::start(recover(nullptr));
  // The link is read at every interrupt, whatever its cause: if an LSC interrupt is lost, the stack must still learn the link's state.
  inspect();
}

void Card::inspect() {
  require_home_core();
  if (registers_.card_gone()) {
    counters_.gone.add();
    if (counters_.gone.value() == 1) print(card_gone_error.message);
  }
  look_at_link(true);  // also reports the loss of the link if the card is gone
  for (auto& pair : pairs_) {
    if (pair->take_hang()) neap::start(recover(pair.get()));
  }
}

void Card::look_at_link(bool announce) {
  const LinkStatus status = read_link(registers_, model_);
  // Without a link no frame arrives and no queue counts as hung, so no other event inspects the card. If the interrupt of the new link is
  // lost, only this timer notices that the link came up.
  link_watch_.cancel();  // the timer is needed only without a link
  if (!status.up && !stopped_) link_watch_.arm(1s, [this] { inspect(); });
  if (!change_link(status.up, status.megabits)) return;
  if (!announce) return;
  if (status.up) {
    print("ixgbe: link up, ", status.megabits, " Mb/s");
  } else {
    print("ixgbe: link down");
  }
  announce_link();
}

NetDeviceLimits Card::limits() const noexcept {
  return {.queue_pairs = receiving(),
          .transmit_queues = static_cast<std::uint32_t>(pairs_.size()),
          .frame_bytes_max = options_.queues.frame_bytes_max,
          .transmit_pieces_max = TransmitQueue::pieces_max,
          .tso_bytes_max = TransmitQueue::tso_bytes_max,
          .checksum_offload = true,
          .ip_header_offload = true};
}

unsigned Card::receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                              std::uint16_t destination_port) const noexcept {
  // A TCP filter takes precedence over RSS. This function is called only for TCP flows. The filters match only IPv4 (7.1.2.5), so RSS alone
  // chooses the core of a flow over IPv6.
  for (const auto& [flow, core] : steered_) {
    if (flow == destination_port && flow != 0) return core;
  }
  return CardBase::receiving_core(source_ip, destination_ip, source_port, destination_port);
}

Result<std::uint32_t> Card::round_itr(unsigned core, std::uint32_t itr_us) const noexcept {
  if (core >= receiving()) return failure(ErrorCode::unsupported, "this core has no receive queue: only the first 16 have", core);
  const auto moderation = Moderation::from_us(itr_us);
  if (!moderation) return std::unexpected(moderation.error());
  if (const char* const why = options_.queues.why_refused(moderation->itr_us())) return failure(ErrorCode::invalid, why, itr_us);
  return moderation->itr_us();
}

void Card::set_itr(unsigned core, std::uint32_t itr_us) noexcept {
  const auto moderation = Moderation::from_us(itr_us);
  if (core >= pairs_.size() || !moderation) return;
  program_moderation(registers_, core, *moderation);
  itr_us_[core].store(moderation->itr_us(), std::memory_order_relaxed);
}

void Card::want_interrupts(QueuePair& pair, bool on) noexcept {
  const unsigned core = pair.core();
  const std::uint64_t bit = std::uint64_t{1} << core;
  if (!on) {
    unmasked_ &= ~bit;
    mask_vector(registers_, core);
    return;
  }
  unmasked_ |= bit;
  // Frames that arrived while the vector was masked may be unprocessed, because polling may have missed them.
  unmask_vector(registers_, core, pair.frames_pending());
}

Result<Statistics> Card::collect_statistics() noexcept {
  if (auto collected = statistics_.collect(registers_); !collected) return std::unexpected(collected.error());
  return statistics_;
}

task<Result<void>> Card::report_device_counters(std::optional<unsigned> core, const Emit& emit) {
  const auto statistics = co_await on_core(home_core_, [this] { return collect_statistics(); });
  if (!statistics) co_return std::unexpected(statistics.error());
  statistics->report(core, emit);
  co_return Result<void>{};
}

}  // namespace neap::ixgbe
