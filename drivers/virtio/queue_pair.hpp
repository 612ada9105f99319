// SPDX-License-Identifier: BSL-1.0
// A core's queues: a receive queue, a transmit queue and one interrupt vector for both. drivers/queue_pair_base.hpp has their events.
//
// A device may write impossible entries into the used rings. The first one is counted and reported to the card, which closes the device.
#pragma once

#include <atomic>

#include "drivers/queue_pair_base.hpp"
#include "drivers/virtio/counters.hpp"
#include "drivers/virtio/receive_queue.hpp"
#include "drivers/virtio/transmit_queue.hpp"

namespace neap::virtio {

class QueuePair final : public QueuePairBase<QueuePair, ReceiveQueue, TransmitQueue, PairCounters> {
 public:
  static constexpr const char* driver = "virtio";
  explicit QueuePair(unsigned index) noexcept : QueuePairBase(index) {}

  // Both functions MUST be called on the pair's core.
  /// Returns all buffers and tokens. The device MUST have been reset. From now on `transmit` returns `closed`.
  void abandon() noexcept;
  void want_interrupts(bool on) noexcept;
  [[nodiscard]] const volatile void* next_receive_line() const noexcept { return receive_.ring().used_line(); }
  /// The reason for which the pair reported a failure; null: it did not. MAY be called on any core.
  [[nodiscard]] const char* fault() const noexcept { return fault_.load(std::memory_order_acquire); }

 private:
  friend QueuePairBase;
  // Hooks of QueuePairBase.
  // `Ring::seen` has told the device from which entry on it raises an interrupt. An entry that it used before it could see that raises
  // none.
  void prepare_sleep() noexcept { receive_.ring().fence(); }
  void check_faults() noexcept {
    if (receive_.fault() != nullptr || transmit_.fault() != nullptr) [[unlikely]]
      take_fault();
  }
  void take_fault() noexcept;

  std::atomic<const char*> fault_ = nullptr;
};

}  // namespace neap::virtio
