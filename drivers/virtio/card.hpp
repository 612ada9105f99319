// SPDX-License-Identifier: BSL-1.0
// virtio-net, the network card of KVM, QEMU and most clouds.
//
// Each core has a pair of queues, as far as the device has pairs and interrupt vectors. With RSS (5.1.6.5.7) the driver says which queue
// gets a flow. Without it the device decides (5.1.6.5.6, automatic receive steering). The core that opened the card, its home core, sends
// commands and handles the link and failures.
//
// A device that asks for a reset (NEEDS_RESET), or writes an impossible entry into a ring, has failed: it is counted, reset and closed, and
// its frames are given back to the stack. It is not started again.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "drivers/card_base.hpp"
#include "drivers/virtio/control_queue.hpp"
#include "drivers/virtio/queue_pair.hpp"
#include "drivers/virtio_bus/transport.hpp"

namespace neap::virtio {

struct Options {
  std::uint32_t frame_bytes_max = 1514;
  std::uint32_t ring_descriptors_max = Ring::descriptors_max;  ///< the device may have fewer
  std::uint64_t features = ~std::uint64_t{0};                  ///< those that may be used, for tests
};

class Card final : public CardBase<QueuePair, CardCounters> {
 public:
  /// MUST be called only by `start` below.
  Card(std::unique_ptr<Transport> transport, Options options) noexcept
      : CardBase(transport->bus(), "virtio-net"), transport_(std::move(transport)), options_(options) {}
  /// Queue pairs with a stack attached (see `close`) stay in memory, because their cores may be using them.
  ~Card() override { stop(); }

  /// Resets the device and detaches its stacks. MUST be called on the core that opened the card. The card MUST NOT be destroyed before the
  /// stacks have released their buffers.
  [[nodiscard]] task<void> close();

  [[nodiscard]] MacAddress mac() const noexcept override { return mac_; }
  [[nodiscard]] NetDeviceLimits limits() const noexcept override;
  [[nodiscard]] task<void> set_multicast(std::vector<MacAddress> groups) override;

  // Overrides of policy::Device.
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override;
  /// The device gets the interval by a command, shortly after the call.
  void set_itr(unsigned core, std::uint32_t itr_us) noexcept override;
  [[nodiscard]] std::span<const policy::Row> settings() const noexcept override;
  [[nodiscard]] std::uint32_t value_of(policy::Setting setting) const noexcept override;
  [[nodiscard]] task<Result<Change>> change(policy::Setting setting, std::uint32_t value, unsigned core) override;

  [[nodiscard]] std::uint64_t features() const noexcept { return features_; }

 private:
  friend task<Result<std::unique_ptr<Card>>> start(std::unique_ptr<Transport> transport, Options options);

  [[nodiscard]] task<Result<void>> bring_up();
  template <class Prepare>
  [[nodiscard]] Result<void> start_queue(Ring& ring, unsigned number, unsigned vector, Prepare prepare);
  [[nodiscard]] task<Result<void>> steer();
  [[nodiscard]] task<void> send_intervals();
  void print_start() const;
  void other_interrupt() override;
  void inspect() override;
  void want_interrupts(QueuePair& pair, bool on) noexcept override { pair.want_interrupts(on); }
  void stop_device() noexcept override;
  void look_at_link();
  [[nodiscard]] task<void> fail(const char* why);
  [[nodiscard]] task<void> take_back();
  /// True if device and driver agree on all of `features`; `has_one`: on at least one.
  [[nodiscard]] bool has(std::uint64_t features) const noexcept { return (features_ & features) == features; }
  [[nodiscard]] bool has_one(std::uint64_t features) const noexcept { return (features_ & features) != 0; }

  std::unique_ptr<Transport> transport_;
  Options options_;
  std::uint64_t features_ = 0;
  MacAddress mac_{};
  std::uint32_t pairs_offered_ = 1;
  ControlQueue control_{counters_};
  std::array<std::uint32_t, cores_max> itr_us_sent_{};
  std::uint32_t budget_ = 64;
  bool promiscuous_ = false, coalescing_ = true, closing_ = false, sending_ = false;
  CoalescedCall interval_call_{[](void* card) noexcept { neap::start(static_cast<Card*>(card)->send_intervals()); }, this};
};

/// True for virtio-net with the modern interface, and for a transitional one (4.1.2.1).
[[nodiscard]] constexpr bool is_network_card(const pci::Device& device) noexcept {
  constexpr unsigned kind = 1, transitional = 0x1000;
  return device.vendor_id == pci_vendor && (device.device_id == pci_device_first + kind || device.device_id == transitional);
}

/// The card's rows of the table of settings (kernel/policy_rows.hpp).
[[nodiscard]] std::span<const policy::Row> setting_rows() noexcept;

/// Starts the device behind `transport`. MUST be called on the core that will be the card's home core. Errors: `unsupported`, `invalid`
/// (options), `out_of_memory`, `timeout`, `device`.
[[nodiscard]] task<Result<std::unique_ptr<Card>>> start(std::unique_ptr<Transport> transport, Options options = {});

}  // namespace neap::virtio
