// SPDX-License-Identifier: BSL-1.0
// The Intel 82599 10 Gb/s Ethernet card.
//
// One card serves all cores and shares nothing between them: each of the first 16 cores owns a receive queue, a transmit queue and an
// interrupt vector (a QueuePair), and RSS sends every flow to one of them. Further cores have the last two: they send, and what answers
// them comes to others. What belongs to the card as a whole (link, faults, statistics) is handled on the core that opened it.
//
// `open` follows the datasheet's start-up order (start_up.hpp). It does not wait for a link: the machine comes up without one, and
// `link_changed` tells when there is.
//
// Section numbers are those of the Intel 82599 datasheet, document 331520.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "drivers/ixgbe/counters.hpp"
#include "drivers/ixgbe/link.hpp"
#include "drivers/ixgbe/moderation.hpp"
#include "drivers/ixgbe/queue_pair.hpp"
#include "drivers/ixgbe/rss.hpp"
#include "drivers/ixgbe/statistics.hpp"
#include "kernel/net_device.hpp"
#include "kernel/pci.hpp"
#include "kernel/policy.hpp"

namespace neap::ixgbe {

/// 8.2.3.5.16: a vector each, and one of the 64 for all else.
constexpr unsigned pairs_max = 63;

struct Options {
  unsigned rss_cores = 0;  ///< cores 0 to rss_cores - 1 get flows; 0: all that receive
  /// Left out of RSS: it gets TCP to `reserved_port` and, if it is core 0, what RSS does not hash (ARP, for one). A core that is alone
  /// stays in RSS.
  std::optional<unsigned> reserved_core;
  std::uint16_t reserved_port = 0;
  std::uint32_t itr_us = Moderation::itr_us_default;
  QueueOptions queues;
};

class Card final : public NetDevice, public policy::Device {
 public:
  /// See `open` below. Public for `new` alone.
  Card(const pci::Device& device, Registers registers, bool sfp, Options options);
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;
  /// Stops the card. Queue pairs with a stack attached (see `close`) stay in memory: their cores may be at work on them.
  ~Card() override;

  /// Stops the card and takes it away from its stacks: none of them is called after this. When they have released their buffers, the card
  /// may be destroyed. On the core that opened it.
  [[nodiscard]] task<void> close();

  [[nodiscard]] MacAddress mac() const noexcept override { return mac_; }
  [[nodiscard]] NetDeviceLimits limits() const noexcept override;
  [[nodiscard]] bool link_up() const noexcept override { return link_up_.load(std::memory_order_relaxed); }
  [[nodiscard]] FrameSender& attach(FrameReceiver& receiver) override;
  [[nodiscard]] unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                        std::uint16_t destination_port) const noexcept override;
  [[nodiscard]] task<void> set_multicast(std::vector<MacAddress> groups) override;
  void tell_counters(std::optional<unsigned> core, const Emit& emit) const override;
  [[nodiscard]] task<Result<void>> tell_own_counters(std::optional<unsigned> core, const Emit& emit) override;

  // policy::Device. `unsupported` for a core that does not receive, `invalid` for a time that the card does not take.
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override;
  [[nodiscard]] std::uint32_t itr_us(unsigned core) const noexcept override;
  void set_itr(unsigned core, std::uint32_t itr_us) noexcept override;
  void set_interrupt(unsigned core, bool on) noexcept override;
  [[nodiscard]] const volatile void* next_receive_line(unsigned core) const noexcept override;
  [[nodiscard]] std::uint32_t value_of(policy::Setting setting) const noexcept override;
  /// Stops one core's queues after the other where the card takes a setting only then. Errors: `invalid` and `unsupported` (nothing has
  /// changed), `out_of_memory` (the same), `full` (no filter left), those of a reset of the card.
  [[nodiscard]] task<Result<Change>> change(policy::Setting setting, std::uint32_t value, unsigned core) override;

  /// The card's own counts, up to now. On the core that opened it. Errors: `closed` (card gone).
  [[nodiscard]] Result<Statistics> collect_statistics() noexcept;
  /// `core` below `limits().transmit_queues`; its counters may be read from any core.
  [[nodiscard]] QueuePair& pair(unsigned core) noexcept { return *pairs_[core]; }

 private:
  friend task<Result<std::unique_ptr<Card>>> open(std::optional<pci::Address> where, Options options);

  /// Held while the card or a queue is being set up anew, by one at a time; `close` waits for it.
  class Work {
   public:
    explicit Work(bool& busy) noexcept : busy_(busy) { busy_ = true; }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    ~Work() { busy_ = false; }

   private:
    bool& busy_;
  };

  [[nodiscard]] task<Result<void>> start();
  [[nodiscard]] task<Result<void>> make_pairs();
  [[nodiscard]] Result<void> make_vectors();
  [[nodiscard]] task<Result<std::uint64_t>> bring_up();
  [[nodiscard]] task<Result<void>> start_queues();
  [[nodiscard]] Result<void> start_interrupts();
  [[nodiscard]] task<Result<std::uint64_t>> set_queues(QueueOptions wanted);
  [[nodiscard]] task<Result<std::uint64_t>> restart(QueuePair& pair, const QueueOptions& options, bool drain);
  void program_running_options() noexcept;
  [[nodiscard]] Result<void> steer(std::uint32_t flow, unsigned core) noexcept;
  [[nodiscard]] task<void> mend(QueuePair* hung);
  void other_interrupt();
  void inspect();
  void look_at_link(bool announce);
  void set_link(bool up) noexcept;
  void stop() noexcept;
  [[nodiscard]] std::uint32_t least_itr_us() const noexcept;
  /// Cores 0 to this - 1 receive.
  [[nodiscard]] unsigned receiving() const noexcept { return std::min(static_cast<unsigned>(pairs_.size()), rss::queues_max); }

  const pci::Device& device_;
  Registers registers_;
  Options options_;
  Moderation moderation_;
  bool sfp_;
  unsigned home_core_;
  /// Flow (as `policy::Setting::steer` names it) and core, by filter; flow 0: the filter is free. The first is the reserved port's.
  std::array<std::pair<std::uint32_t, unsigned>, reg::FTQF.count> steered_{};
  MacAddress mac_{};
  std::vector<MacAddress> groups_;
  rss::Table rss_table_{};
  std::atomic<bool> link_up_ = false;
  std::vector<std::unique_ptr<QueuePair>> pairs_;
  std::array<std::atomic<std::uint32_t>, pairs_max> itr_us_{};  // as it stands in EITR
  std::atomic<std::uint64_t> unmasked_ = 0;                     // vectors of queues that interrupt
  std::vector<std::pair<unsigned, std::uint8_t>> vectors_;      // core and vector, in the order of MSI-X entries
  /// A queue's complaint on its way to the home core, which may read registers.
  Errand inspection_{[](void* card) noexcept { static_cast<Card*>(card)->inspect(); }, this};
  Statistics statistics_;
  CardCounters counters_;
  Timer link_watch_;
  bool stopped_ = false;
  bool busy_ = false;
  bool reset_wanted_ = false;  // a fault came that leaves nothing else
};

/// Finds the card at `where`, or the first 82599 in bus order, and starts it; on the core that will look after it. Errors: `not_found`,
/// `invalid` (options), `unsupported` (too few interrupt vectors), `out_of_memory`, `timeout` (message names the register), `device`,
/// `closed`.
[[nodiscard]] task<Result<std::unique_ptr<Card>>> open(std::optional<pci::Address> where = {}, Options options = {});

}  // namespace neap::ixgbe
