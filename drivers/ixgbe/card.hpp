// SPDX-License-Identifier: BSL-1.0
// The Intel 82599 10 Gb/s Ethernet card.
//
// One card serves all cores and shares nothing between them: each of the first 16 cores owns a receive queue, a transmit queue and an
// interrupt vector (a QueuePair), and RSS sends every flow to one of them. What belongs to the card as a whole (link, faults, statistics)
// is handled on the core that opened it.
//
// `open` follows the datasheet's start-up order (start_up.hpp). It does not wait for a link: the machine comes up without one, and
// `link_changed` tells when there is.
//
// Section numbers are those of the Intel 82599 datasheet, document 331520.
#pragma once

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

constexpr unsigned pairs_max = rss::queues_max;

struct Options {
  unsigned rss_cores = 0;  ///< cores 0 to rss_cores - 1 get flows; 0: all that have a queue pair
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
  void attach(FrameReceiver& receiver) override;
  [[nodiscard]] Result<void> transmit(const TransmitFrame& frame) noexcept override;
  [[nodiscard]] unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                        std::uint16_t destination_port) const noexcept override;
  void tell_counters(std::optional<unsigned> core, const Emit& emit) const override;
  [[nodiscard]] task<Result<void>> tell_own_counters(std::optional<unsigned> core, const Emit& emit) override;

  // policy::Device. `unsupported` for a core without a queue pair, `invalid` for a time that the card does not take.
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override;
  [[nodiscard]] std::uint32_t itr_us(unsigned core) const noexcept override;
  void set_itr(unsigned core, std::uint32_t itr_us) noexcept override;
  void set_interrupt(unsigned core, bool on) noexcept override;
  [[nodiscard]] const volatile void* next_receive_line(unsigned core) const noexcept override;

  /// The card's own counts, up to now. On the core that opened it. Errors: `closed` (card gone).
  [[nodiscard]] Result<Statistics> collect_statistics() noexcept;
  /// `core` below `limits().queue_pairs`; its counters may be read from any core.
  [[nodiscard]] QueuePair& pair(unsigned core) noexcept { return *pairs_[core]; }

 private:
  friend task<Result<std::unique_ptr<Card>>> open(std::optional<pci::Address> where, Options options);

  [[nodiscard]] task<Result<void>> start();
  [[nodiscard]] task<Result<void>> make_pairs();
  [[nodiscard]] task<Result<void>> start_queues();
  [[nodiscard]] Result<void> wire_vectors();
  void other_interrupt();
  void inspect();
  void look_at_link(bool announce);
  void set_link(bool up) noexcept;
  void stop() noexcept;

  const pci::Device& device_;
  Registers registers_;
  Options options_;
  Moderation moderation_;
  bool sfp_;
  unsigned home_core_;
  std::uint16_t steered_port_ = 0;  ///< 0: none
  MacAddress mac_{};
  rss::Table rss_table_{};
  std::atomic<bool> link_up_ = false;
  std::vector<std::unique_ptr<QueuePair>> pairs_;
  std::array<std::atomic<std::uint32_t>, pairs_max> itr_us_{};  // as it stands in EITR
  std::vector<std::pair<unsigned, std::uint8_t>> vectors_;      // core and vector, in the order of MSI-X entries
  /// A queue's complaint on its way to the home core, which may read registers.
  Errand inspection_{[](void* card) noexcept { static_cast<Card*>(card)->inspect(); }, this};
  Statistics statistics_;
  CardCounters counters_;
  bool stopped_ = false;
};

/// Finds the card at `where`, or the first 82599 in bus order, and starts it; on the core that will look after it. Errors: `not_found`,
/// `invalid` (options), `unsupported` (too few interrupt vectors), `out_of_memory`, `timeout` (message names the register), `device`,
/// `closed`.
[[nodiscard]] task<Result<std::unique_ptr<Card>>> open(std::optional<pci::Address> where = {}, Options options = {});

}  // namespace neap::ixgbe
