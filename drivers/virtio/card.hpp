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
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "drivers/virtio/control_queue.hpp"
#include "drivers/virtio/queue_pair.hpp"
#include "drivers/virtio/transport.hpp"
#include "kernel/net_device.hpp"
#include "kernel/policy.hpp"

namespace neap::virtio {

constexpr unsigned pairs_max = 64;

struct Options {
  std::uint32_t frame_bytes_max = 1514;
  std::uint32_t ring_descriptors_max = Ring::descriptors_max;  ///< the device may have fewer
  std::uint64_t features = ~std::uint64_t{0};                  ///< those that may be used, for tests
};

class Card final : public NetDevice, public policy::Device {
 public:
  /// MUST be called only by `start` below.
  Card(std::unique_ptr<Transport> transport, Options options);
  Card& operator=(Card&&) = delete;
  /// Queue pairs with a stack attached (see `close`) stay in memory, because their cores may be using them.
  ~Card() override;

  /// Resets the device and detaches its stacks. MUST be called on the core that opened the card. The card MUST NOT be destroyed before the
  /// stacks have released their buffers.
  [[nodiscard]] task<void> close();

  [[nodiscard]] NetDeviceIdentity identity() const noexcept override { return transport_->identity(); }
  [[nodiscard]] MacAddress mac() const noexcept override { return configuration_.mac; }
  [[nodiscard]] NetDeviceLimits limits() const noexcept override;
  [[nodiscard]] bool link_up() const noexcept override { return link_up_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t link_megabits() const noexcept override {
    return link_up() ? link_megabits_.load(std::memory_order_relaxed) : 0;
  }
  [[nodiscard]] FrameSender& attach(FrameReceiver& receiver) override;
  [[nodiscard]] unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                        std::uint16_t destination_port) const noexcept override;
  [[nodiscard]] unsigned receiving_core_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                             std::uint16_t destination_port) const noexcept override;
  [[nodiscard]] task<void> set_multicast(std::vector<MacAddress> groups) override;
  void report_counters(std::optional<unsigned> core, const Emit& emit) const override;
  /// The device has no counters of its own (virtio 1.2). Errors: `closed`.
  [[nodiscard]] task<Result<void>> report_device_counters(std::optional<unsigned> core, const Emit& emit) override;

  // Overrides of policy::Device.
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override;
  [[nodiscard]] std::uint32_t itr_us(unsigned core) const noexcept override;
  /// The device gets the interval by a command, shortly after the call.
  void set_itr(unsigned core, std::uint32_t itr_us) noexcept override;
  void set_interrupt(unsigned core, bool on) noexcept override;
  [[nodiscard]] const volatile void* next_receive_line(unsigned core) const noexcept override;
  [[nodiscard]] std::span<const policy::Row> settings() const noexcept override;
  [[nodiscard]] std::uint32_t value_of(policy::Setting setting) const noexcept override;
  [[nodiscard]] task<Result<Change>> change(policy::Setting setting, std::uint32_t value, unsigned core) override;

  /// `core` MUST be below `limits().queue_pairs`.
  [[nodiscard]] QueuePair& pair(unsigned core) noexcept {
    require(core < pairs_.size(), "virtio: this core has no queue pair", core);
    return *pairs_[core];
  }
  [[nodiscard]] std::uint64_t features() const noexcept { return features_; }
  [[nodiscard]] const CardCounters& counters() const noexcept { return counters_; }

 private:
  friend task<Result<std::unique_ptr<Card>>> start(std::unique_ptr<Transport> transport, Options options);

  [[nodiscard]] task<Result<void>> bring_up();
  [[nodiscard]] Result<void> make_vectors();
  [[nodiscard]] task<Result<void>> prepare_pairs();
  [[nodiscard]] Result<std::uint32_t> select_queue(unsigned number) const noexcept;
  [[nodiscard]] Result<void> start_queue(Ring& ring, unsigned number, unsigned vector) const noexcept;
  [[nodiscard]] task<Result<void>> configure();
  [[nodiscard]] task<Result<void>> steer();
  [[nodiscard]] task<Result<void>> send(Command command, std::span<const std::byte> data);
  [[nodiscard]] task<void> send_intervals();
  void config_interrupt();
  void inspect();
  void look_at_link();
  [[nodiscard]] task<void> fail(const char* why);
  void stop() noexcept;
  [[nodiscard]] bool has(std::uint64_t features) const noexcept { return (features_ & features) == features; }
  [[nodiscard]] bool joins() const noexcept { return (features_ & (feature::guest_tso4 | feature::guest_tso6)) != 0; }

  std::unique_ptr<Transport> transport_;
  Options options_;
  unsigned home_core_;
  std::uint64_t features_ = 0;
  Configuration configuration_;
  unsigned queue_pairs_offered_ = 1;
  std::uint32_t rss_entries_ = 0;  ///< of the table; 0: the device decides
  std::atomic<bool> link_up_ = false;
  std::atomic<std::uint32_t> link_megabits_ = 0;
  std::vector<std::unique_ptr<QueuePair>> pairs_;
  std::vector<std::pair<unsigned, std::uint8_t>> vectors_;  // core and vector, in the order of MSI-X entries
  ControlQueue control_;
  std::array<std::atomic<std::uint32_t>, pairs_max> itr_us_{};  // as set; with one interval for all queues, the first is that
  std::array<std::uint32_t, pairs_max> itr_us_sent_{};
  std::uint32_t budget_ = 64;
  bool promiscuous_ = false, coalescing_ = true, all_multicast_ = false;
  bool failing_ = false, stopped_ = false, sending_ = false;
  CoalescedCall inspection_{[](void* card) noexcept { static_cast<Card*>(card)->inspect(); }, this};
  CoalescedCall interval_call_{[](void* card) noexcept { neap::start(static_cast<Card*>(card)->send_intervals()); }, this};
  CardCounters counters_;
};

/// Starts the device behind `transport`. MUST be called on the core that will be the card's home core. Errors: `unsupported`, `invalid`
/// (options), `out_of_memory`, `timeout`, `device`.
[[nodiscard]] task<Result<std::unique_ptr<Card>>> start(std::unique_ptr<Transport> transport, Options options = {});

}  // namespace neap::virtio
