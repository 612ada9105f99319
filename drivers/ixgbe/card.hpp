// SPDX-License-Identifier: BSL-1.0
// The Intel 82599 10 Gb/s Ethernet card, and its successors X540 and X550 (model.hpp).
//
// One card serves all cores, and no two cores share a queue. Each of the first 16 cores owns a QueuePair: a receive queue, a transmit queue
// and an interrupt vector. RSS sends every flow to one of these cores. Further cores have only a transmit queue and a vector, so replies to
// their frames arrive on other cores. The core that opened the card, its home core, handles the link, faults and statistics.
//
// `open` follows the datasheet's start-up order (start_up.hpp). It does not wait for a link; `FrameReceiver::link_changed` reports the link
// to the stack later.
//
// Section numbers are those of the Intel 82599 datasheet, document 331520.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "drivers/card_base.hpp"
#include "drivers/ixgbe/counters.hpp"
#include "drivers/ixgbe/device_ids.hpp"
#include "drivers/ixgbe/link.hpp"
#include "drivers/ixgbe/moderation.hpp"
#include "drivers/ixgbe/queue_pair.hpp"
#include "drivers/ixgbe/statistics.hpp"
#include "kernel/net_device.hpp"
#include "kernel/pci.hpp"

namespace neap::ixgbe {

/// 8.2.3.5.16: each pair has a vector. The last of the 64 vectors serves all causes that are not a queue's.
constexpr unsigned pairs_max = 63;

struct Options {
  unsigned rss_cores = 0;  ///< cores 0 to rss_cores - 1 get flows; 0: all cores that receive
  /// RSS leaves this core out. The core gets TCP to `reserved_port` and, if it is core 0, frames that RSS does not hash (such as ARP). If
  /// there is only one core, it stays in RSS.
  std::optional<unsigned> reserved_core;
  std::uint16_t reserved_port = 0;
  std::uint32_t itr_us = Moderation::itr_us_default;
  QueueOptions queues;
};

class Card final : public CardBase<QueuePair, CardCounters> {
 public:
  /// MUST be called only by `open` below.
  Card(const pci::Device& device, Registers registers, const DeviceKind& kind, Options options);
  /// Stops the card. Queue pairs with a stack attached (see `close`) stay in memory, because their cores may be using them.
  ~Card() override { stop(); }

  /// Stops the card and detaches its stacks. Afterwards the card calls no stack. The card MUST NOT be destroyed before the stacks have
  /// released their buffers. MUST be called on the core that opened the card.
  [[nodiscard]] task<void> close();

  [[nodiscard]] MacAddress mac() const noexcept override { return mac_; }
  [[nodiscard]] NetDeviceLimits limits() const noexcept override;
  [[nodiscard]] unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                        std::uint16_t destination_port) const noexcept override;
  [[nodiscard]] task<void> set_multicast(std::vector<MacAddress> groups) override;
  [[nodiscard]] task<Result<void>> report_device_counters(std::optional<unsigned> core, const Emit& emit) override;

  // Overrides of policy::Device, by which settings reach the card. Errors: `unsupported` (the core does not receive), `invalid` (`itr_us`).
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override;
  void set_itr(unsigned core, std::uint32_t itr_us) noexcept override;
  [[nodiscard]] std::span<const policy::Row> settings() const noexcept override;
  [[nodiscard]] std::uint32_t value_of(policy::Setting setting) const noexcept override;
  [[nodiscard]] std::optional<policy::Setting> off_for_itr(std::uint32_t itr_us) const noexcept override;
  /// Changes a setting. If the setting can change only while a queue is stopped, the queues are stopped one core after the other. Errors:
  /// `invalid`, `unsupported` and `out_of_memory` (nothing has changed), `full` (no filter left), and those of a reset of the card.
  [[nodiscard]] task<Result<Change>> change(policy::Setting setting, std::uint32_t value, unsigned core) override;

  /// Returns the card's own counts up to now. MUST be called on the core that opened the card. Errors: `closed` (card gone).
  [[nodiscard]] Result<Statistics> collect_statistics() noexcept;

 private:
  friend task<Result<std::unique_ptr<Card>>> open(std::optional<pci::Address> where, Options options);

  /// A lock that one task holds while it programs the card or restarts a queue. `close` waits for that task.
  class Work {
   public:
    explicit Work(bool& busy) noexcept : busy_(busy) { busy_ = true; }
    Work& operator=(Work&&) = delete;
    ~Work() { busy_ = false; }

   private:
    bool& busy_;
  };

  [[nodiscard]] task<Result<void>> start();
  [[nodiscard]] task<Result<void>> check_eeprom();
  [[nodiscard]] task<Result<std::uint64_t>> bring_up();
  [[nodiscard]] task<Result<void>> start_queues();
  [[nodiscard]] Result<void> start_interrupts();
  /// Makes `wanted` the options of the card and of all queues. Stops queues only if one of the changed options needs that. Returns the
  /// number of lost frames.
  [[nodiscard]] task<Result<std::uint64_t>> set_queues(QueueOptions wanted);
  [[nodiscard]] task<Result<std::uint64_t>> restart(QueuePair& pair, const QueueOptions& options, bool drain);
  void program_running_options() noexcept;
  [[nodiscard]] Result<void> steer(std::uint32_t flow, unsigned core) noexcept;
  [[nodiscard]] task<void> recover(QueuePair* hung);
  void other_interrupt() override;
  void inspect() override;
  void want_interrupts(QueuePair& pair, bool on) noexcept override;
  void stop_device() noexcept override;
  void look_at_link(bool announce);
  [[nodiscard]] std::uint32_t lowest_itr_us() const noexcept;
  /// Returns the number of cores that receive: cores 0 to this number - 1.
  [[nodiscard]] unsigned receiving() const noexcept { return std::min(static_cast<unsigned>(pairs_.size()), receive_queues_max); }

  const pci::Device& device_;
  PciBus pci_{device_};
  Registers registers_;
  Options options_;
  const Model& model_;
  Medium medium_;
  /// The flow (as for `program_steering`) and the core of each filter; flow 0: the filter is free. The first filter is for `reserved_port`.
  std::array<std::pair<std::uint32_t, unsigned>, reg::FTQF.count> steered_{};
  MacAddress mac_{};
  std::vector<MacAddress> groups_;
  std::atomic<std::uint64_t> unmasked_ = 0;  // a bit for each unmasked vector
  Statistics statistics_;
  Timer link_watch_;
  bool busy_ = false;
  bool coalescing_chosen_ = false;  // RSC has another origin than the default or a preset
  bool reset_wanted_ = false;       // a fault has occurred that needs a reset of the card
};

/// Finds the card at `where`, or the first one in bus order, and starts it. MUST be called on the core that will be the card's home core.
/// Errors: `not_found`, `invalid` (options), `unsupported` (too few interrupt vectors), `out_of_memory`, `timeout` (message names the
/// register), `device`, `closed`.
[[nodiscard]] task<Result<std::unique_ptr<Card>>> open(std::optional<pci::Address> where = {}, Options options = {});

}  // namespace neap::ixgbe
