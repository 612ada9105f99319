// SPDX-License-Identifier: BSL-1.0
// A network card with a queue pair for each core: the part that is the same for every driver.
//
// No two cores share a queue, and the core that opened the card, its home core, handles everything else: the link, faults and commands. So
// each driver makes a pair and an interrupt vector for each core, and one vector for all other causes. Other cores read the link's state
// and the counters without a lock. A pair that finds its queues stuck asks the home core to inspect the card, because only that core may
// access the card's registers.
//
// A driver derives its card from the template, with its classes of pairs (queue_pair_base.hpp) and counters. All functions run rarely, none
// for a frame.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "drivers/card_bus.hpp"
#include "drivers/queue_counters.hpp"
#include "drivers/rss.hpp"
#include "kernel/events.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/net_device.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"
#include "kernel/task.hpp"
#include "kernel/toeplitz.hpp"

namespace neap {

template <class QueuePair, class CardCounters>
class CardBase : public NetDevice, public policy::Device {
 public:
  /// A driver MAY have a lower limit.
  static constexpr unsigned cores_max = 64;

  CardBase& operator=(CardBase&&) = delete;
  /// Pairs with a stack attached stay in memory, because their cores may use them.
  ~CardBase() override {
    for (auto& pair : pairs_) {
      if (pair->attached()) (void)pair.release();
    }
  }

  [[nodiscard]] NetDeviceIdentity identity() const noexcept override { return bus_.identity(name_); }
  [[nodiscard]] bool link_up() const noexcept override { return link_up_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t link_megabits() const noexcept override {
    return link_up() ? link_megabits_.load(std::memory_order_relaxed) : 0;
  }
  [[nodiscard]] FrameSender& attach(FrameReceiver& receiver) override {
    QueuePair& own = pair(this_core());
    own.attach(receiver);
    return own;
  }
  [[nodiscard]] unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                        std::uint16_t destination_port) const noexcept override {
    return rss::queue_of(rss_table_, toeplitz::hash_ipv4(source_ip, destination_ip, source_port, destination_port));
  }
  [[nodiscard]] unsigned receiving_core_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                             std::uint16_t destination_port) const noexcept override {
    return rss::queue_of(rss_table_, toeplitz::hash_ipv6(source_ip, destination_ip, source_port, destination_port));
  }
  [[nodiscard]] const volatile void* next_receive_line(unsigned core) const noexcept override {
    return core < pairs_.size() && pairs_[core]->receives() ? pairs_[core]->next_receive_line() : nullptr;
  }
  [[nodiscard]] std::uint32_t itr_us(unsigned core) const noexcept override {
    return core < pairs_.size() ? itr_us_[core].load(std::memory_order_relaxed) : 0;
  }
  void set_interrupt(unsigned core, bool on) noexcept override {
    if (core >= pairs_.size()) return;
    require(core == this_core(), "card: a core turns another core's interrupt on or off", core);
    want_interrupts(*pairs_[core], on);
  }
  void report_counters(std::optional<unsigned> core, const Emit& emit) const override {
    const auto report = [&]<class Struct, std::size_t rows>(const NamedCount<Struct, Counter>(&table)[rows], auto counters_of) {
      emit_counts(QueuePair::driver, table, emit, [&](auto count) {
        std::uint64_t sum = 0;
        for (const auto& pair : pairs_) {
          if (!core || pair->core() == *core) sum += (counters_of(*pair).*count).value();
        }
        return sum;
      });
    };
    const auto report_both = [&]<class Common>(std::type_identity<Common>, auto counters_of) {
      using Own = std::remove_cvref_t<decltype(counters_of(std::declval<QueuePair&>()))>;
      report(Common::names, counters_of);
      if constexpr (!std::is_same_v<Common, Own>) report(Own::names, counters_of);
    };
    report(traffic_counts, [](QueuePair& pair) -> auto& { return pair.traffic(); });
    report_both(std::type_identity<ReceiveQueueCounters>(), [](QueuePair& pair) -> auto& { return pair.receive_queue().counters(); });
    report_both(std::type_identity<TransmitQueueCounters>(), [](QueuePair& pair) -> auto& { return pair.transmit_queue().counters(); });
    report_both(std::type_identity<QueuePairCounters>(), [](QueuePair& pair) -> auto& { return pair.counters(); });
    if (core) return;
    const auto value_of = [this](auto count) { return (counters_.*count).value(); };
    emit_counts(QueuePair::driver, NetCardCounters::names, emit, value_of);
    emit_counts(QueuePair::driver, CardCounters::names, emit, value_of);
  }
  [[nodiscard]] const CardCounters& counters() const noexcept { return counters_; }
  /// `core` MUST be below `limits().transmit_queues`. The pair's counters MAY be read on any core.
  [[nodiscard]] QueuePair& pair(unsigned core) noexcept {
    require(core < pairs_.size(), "card: this core has no queue pair", core);
    return *pairs_[core];
  }

  /// Stops the card for good, on the home core. The driver's destructor MUST call this.
  void stop() noexcept {
    if (std::exchange(stopped_, true)) return;
    policy::forget(*this);
    set_link(false);
    stop_device();
    bus_.enable(false);
    for (const auto& [core, vector] : vectors_) free_vector(core, vector);
  }

 protected:
  static_assert(rss::none == device_decides, "without a table, the device decides");

  /// `bus` MUST outlive the card. `name` is a static text.
  CardBase(const CardBus& bus, std::string_view name) noexcept : bus_(bus), name_(name), home_core_(this_core()) {}

  /// Runs on the home core, after a pair has reported a failure.
  virtual void inspect() = 0;
  /// Runs as the event of the vector for all causes that are not a queue's.
  virtual void other_interrupt() = 0;
  /// Turns a pair's interrupt on or off, on the pair's core.
  virtual void want_interrupts(QueuePair& pair, bool on) noexcept = 0;
  /// Stops the device for good, on the home core. Called once, by `stop`.
  virtual void stop_device() noexcept = 0;

  void require_home_core() const noexcept {
    require(this_core() == home_core_, "card: it is handled on another core than the one that opened it", this_core());
  }

  // --- Pairs -----------------------------------------------------------------------------------------------------------------------------
  /// Makes a pair for each core below `count`, of `arguments` and the core.
  template <class... Arguments>
  void make_pairs(unsigned count, Arguments... arguments) {
    for (unsigned core = 0; core < count; ++core) {
      pairs_.push_back(std::make_unique<QueuePair>(arguments..., core));
      pairs_.back()->on_failure(
          [](void* card) noexcept {
            auto& self = *static_cast<CardBase*>(card);
            self.inspection_.ask(self.home_core_);
          },
          this);
    }
  }
  /// Runs `function(pair)` on the core of each pair, one after the other.
  template <class Function>
  [[nodiscard]] task<void> on_each_pair(Function function) {
    for (auto& pair : pairs_) co_await on_core(pair->core(), [&] { function(*pair); });
  }
  /// Detaches all stacks. Afterwards the pairs call no stack.
  [[nodiscard]] task<void> detach_all() {
    for (auto& pair : pairs_) {
      // A core runs its events in order, so events that a pair has queued for itself run before the next try.
      while (!co_await on_core(pair->core(), [&pair] { return pair->detach(); })) {
      }
    }
  }

  // --- Vectors ---------------------------------------------------------------------------------------------------------------------------
  /// Allocates a vector for each pair, on its core, and one for `other_interrupt`, on the home core. Errors: `unsupported` (the card has
  /// too few MSI-X messages), `full` (a core has no free vector).
  [[nodiscard]] Result<void> make_vectors() {
    const unsigned offered = bus_.msix_vectors();
    if (offered <= pairs_.size()) return failure(ErrorCode::unsupported, "card: too few MSI-X vectors", offered);
    const auto add = [this](unsigned core, Callback callback) -> Result<void> {
      const auto vector = allocate_vector(core, std::move(callback));
      if (!vector) return std::unexpected(vector.error());
      vectors_.emplace_back(core, *vector);
      return {};
    };
    for (const auto& pair : pairs_) {
      if (auto done = add(pair->core(), [pair = pair.get()] { pair->interrupt(); }); !done) return done;
    }
    return add(home_core_, [this] { other_interrupt(); });
  }
  /// Routes the card's messages to the vectors: first those of the pairs, then the one for `other_interrupt`.
  [[nodiscard]] Result<void> route_vectors() const {
    for (unsigned entry = 0; entry < vectors_.size(); ++entry) {
      if (auto routed = bus_.route_msix(entry, vectors_[entry].first, vectors_[entry].second); !routed) return routed;
    }
    return {};
  }

  // --- The link --------------------------------------------------------------------------------------------------------------------------
  void set_link(bool up) noexcept {
    link_up_.store(up, std::memory_order_relaxed);
    for (auto& pair : pairs_) pair->set_link(up);
  }
  /// Stores what the card says of its link. Returns true, and counts that, if the link has come up or gone down.
  [[nodiscard]] bool change_link(bool up, std::uint32_t megabits) noexcept {
    link_megabits_.store(megabits, std::memory_order_relaxed);
    if (up == link_up()) return false;
    set_link(up);
    counters_.link_changes.add();
    return true;
  }
  /// Makes all pairs report the link's state to their stacks.
  void announce_link() noexcept {
    for (auto& pair : pairs_) pair->announce_link();
  }

  const CardBus& bus_;
  std::string_view name_;
  unsigned home_core_;
  CardCounters counters_;
  bool stopped_ = false;
  rss::Table rss_table_{};
  std::atomic<bool> link_up_ = false;
  std::atomic<std::uint32_t> link_megabits_ = 0;
  std::vector<std::unique_ptr<QueuePair>> pairs_;
  std::array<std::atomic<std::uint32_t>, cores_max> itr_us_{};  ///< for each core, the interval in use
  std::vector<std::pair<unsigned, std::uint8_t>> vectors_;      ///< core and vector, in the order of MSI-X entries
  /// A pair that has failed makes the home core call `inspect`, because that core may read registers.
  CoalescedCall inspection_{[](void* card) noexcept { static_cast<CardBase*>(card)->inspect(); }, this};
};

}  // namespace neap
