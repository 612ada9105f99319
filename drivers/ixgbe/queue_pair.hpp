// SPDX-License-Identifier: BSL-1.0
// A core's two queues of the card, receive and transmit, served by one event. Cores from 16 on have only a transmit queue.
// drivers/queue_pair_base.hpp has the events. This class stops a pair and starts it anew, and reports a queue that hangs.
//
// Interrupts are not masked while an event runs. The vector's cause clears itself when the interrupt message is sent (EIAC). A later cause
// only sets a bit; the next interrupt follows after the interval of interrupt moderation. Masking the vector would cost two register writes
// for each event and save nothing.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "drivers/ixgbe/receive_queue.hpp"
#include "drivers/ixgbe/transmit_queue.hpp"
#include "drivers/queue_pair_base.hpp"

namespace neap::ixgbe {

class QueuePair final : public QueuePairBase<QueuePair, ReceiveQueue, TransmitQueue> {
 public:
  static constexpr const char* driver = "ixgbe";
  /// `index` is the number of both queues and of the core.
  QueuePair(Registers registers, unsigned index) noexcept : QueuePairBase(index, registers, index) {}

  /// Allocates memory for both queues. MUST be called on the pair's core, so that the memory is on that core's NUMA node. Errors:
  /// `invalid`, `out_of_memory`; after an error nothing has changed.
  [[nodiscard]] Result<void> prepare(const QueueOptions& options);

  /// Frees the memory of the last `prepare`, if no `program` has used it.
  void discard_prepared() noexcept;

  // The steps to stop a running pair and to continue with other options. Each step MUST run on the pair's core. Between steps, the caller
  // waits until the queues are off or on.
  /// After this call no tail is written, and `transmit` refuses frames as if the ring were full.
  void hold() noexcept;
  /// True if the card has sent all frames of which it was notified.
  [[nodiscard]] bool drained() noexcept;
  /// Passes received frames and the tokens of unsent frames to the stack. Returns the number of unsent frames. Both queues MUST be off.
  [[nodiscard]] std::uint32_t empty() noexcept;
  void program(const QueueOptions& options) noexcept;
  /// Calls ReceiveQueue::enable if the pair receives.
  [[nodiscard]] task<Result<void>> enable_receive(bool on) const;
  /// Continues after `hold`. MUST be called only when both queues are on.
  void resume() noexcept;

  /// As `QueuePairBase::detach`; from this call on, the next frame is refused.
  [[nodiscard]] bool detach() noexcept;
  /// Applies the options that may change while the queues run. MUST be called on the pair's core.
  void follow(const QueueOptions& options) noexcept { set_budget(options.budget_descriptors); }

  /// True if the pair has reported a hang (`on_failure`) since the last `take_hang`. MAY be called on any core.
  [[nodiscard]] bool take_hang() noexcept { return hung_.exchange(false); }

  /// Returns the cache line of the receive descriptor that is written back next. MUST be called on the pair's core.
  [[nodiscard]] const volatile void* next_receive_line() const noexcept { return receive_.next_line(); }

  /// False for cores from 16 on: they have no receive queue, because RSS can name only the first 16 queues.
  [[nodiscard]] bool receives() const noexcept { return index_ < receive_queues_max; }

 private:
  friend QueuePairBase;
  // Hooks of QueuePairBase.
  [[nodiscard]] bool held() const noexcept { return held_; }
  void handle_hang() noexcept {
    hung_ = true;
    report_failure();
  }
  [[nodiscard]] TransmitResult transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;

  std::atomic<bool> hung_ = false;
  bool held_ = false;
};

/// Calls `prepare` for all pairs, each on its core. After an error the prepared memory of all pairs is released. A later `program` then
/// continues with the old rings.
[[nodiscard]] task<Result<void>> prepare_all(std::span<const std::unique_ptr<QueuePair>> pairs, const QueueOptions& options);

}  // namespace neap::ixgbe
