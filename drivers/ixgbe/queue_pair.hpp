// SPDX-License-Identifier: BSL-1.0
// A core's two queues of the card, receive and transmit, served by one event. Cores from 16 on have only a transmit queue.
//
// One event serves both queues: first TX completions, which return memory to the stack, then up to `budget` received descriptors. New
// buffers and new frames are posted once, at the end of the event that caused them.
//
// TX completions cause no interrupt on a core that receives, unless `tx_interrupt` is on. A core sends its replies and sleeps, and their
// completions would wake it only to return memory that nothing waits for. So completions are reaped by the next event that receives. If the
// stack needs the room, or half of the ring is in use, they are reaped before the core sleeps, too, and by a timer. The stack reaps them
// itself (`reap`) before it acts on what the card still holds. The watchdog reaps the last ones of an idle core.
//
// The card raises no second interrupt for descriptors that it has already announced. So an event that stops at its budget queues itself
// again, behind the waiting events. Before the core sleeps, the rings are checked once more.
//
// Interrupts are not masked while an event runs. The vector's cause clears itself when the interrupt message is sent (EIAC). A later cause
// only sets a bit; the next interrupt follows after the interval of interrupt moderation. Masking the vector would cost two register writes
// for each event and save nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>

#include "drivers/ixgbe/receive_queue.hpp"
#include "drivers/ixgbe/rss.hpp"
#include "drivers/ixgbe/transmit_queue.hpp"
#include "kernel/events.hpp"
#include "kernel/timer.hpp"

namespace neap::ixgbe {

class QueuePair final : public FrameSender {
 public:
  /// `index` is the number of both queues and of the core.
  QueuePair(Registers registers, unsigned index) noexcept
      : receive_(registers, index, traffic_), transmit_(registers, index, traffic_), index_(index) {}
  QueuePair& operator=(QueuePair&&) = delete;
  ~QueuePair() override;

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

  /// Passes frames to `receiver` from the next event on, first those that wait in the ring. MUST be called once, on the pair's core.
  void attach(FrameReceiver& receiver);
  /// Detaches the receiver. MUST be called on the pair's core. Returns false if an event of the pair is still queued; the caller
  /// MUST then try again in a later event.
  [[nodiscard]] bool detach() noexcept;
  [[nodiscard]] bool attached() const noexcept { return receiver_ != nullptr; }

  /// Sets the link's state. MAY be called on any core. Without a link, `transmit` refuses frames, and waiting frames do not count as hung.
  void set_link(bool up) noexcept { link_up_.store(up, std::memory_order_relaxed); }
  /// Makes the pair's core read the link's state in a later event and report it to the stack. MUST be called by one core at a time.
  void announce_link() noexcept { link_call_.ask(index_); }
  /// Applies the options that may change while the queues run. MUST be called on the pair's core.
  void follow(const QueueOptions& options) noexcept { budget_ = options.budget_descriptors; }

  /// `call(context)` runs on the pair's core, from its watchdog, whenever transmission makes no progress. MUST be set before `attach`.
  void on_hang(void (*call)(void*) noexcept, void* context) noexcept {
    require(receiver_ == nullptr, "ixgbe: the callback for hangs is set after attach", index_);
    hang_call_ = call;
    hang_context_ = context;
  }

  /// True if the callback of `on_hang` was called since the last `take_hang`. MAY be called on any core.
  [[nodiscard]] bool take_hang() noexcept { return hung_.exchange(false); }

  // Overrides FrameSender. MUST be called on the pair's core.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept override {
    return transmit_.transmit_alike(pieces, offload, token) ? TransmitResult{} : transmit_any(pieces, offload, token);
  }
  void reap() noexcept override;

  /// Runs as the event of this pair's vector.
  void interrupt() noexcept;

  /// True if the card has written back receive descriptors that were not processed yet. MUST be called on the pair's core.
  [[nodiscard]] bool frames_pending() const noexcept { return receive_.ready(); }

  /// Returns the cache line of the receive descriptor that is written back next. MUST be called on the pair's core.
  [[nodiscard]] const volatile void* next_receive_line() const noexcept { return receive_.next_line(); }

  [[nodiscard]] unsigned core() const noexcept { return index_; }
  /// False for cores from 16 on: they have no receive queue, because RSS can name only the first 16 queues.
  [[nodiscard]] bool receives() const noexcept { return index_ < rss::queues_max; }
  [[nodiscard]] ReceiveQueue& receive_queue() noexcept { return receive_; }
  [[nodiscard]] TransmitQueue& transmit_queue() noexcept { return transmit_; }
  [[nodiscard]] const PairCounters& counters() const noexcept { return counters_; }
  /// Returns the traffic counters of both queues. The core's log reads these counters while a stack is attached.
  [[nodiscard]] const log::Traffic& traffic() const noexcept { return traffic_; }

  /// A transmit queue with frames in flight hangs if it makes no progress for this long.
  static constexpr std::chrono::seconds hang_period{2};
  /// The time after which completions are reaped if no event has reaped them, while the ring is short of room.
  static constexpr std::chrono::microseconds reap_period{100};

 private:
  [[nodiscard]] TransmitResult transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  [[nodiscard]] TransmitResult transmit_checked(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  /// Runs the pair's event without an interrupt. If it finds frames, it writes a log record.
  void poll() noexcept;
  /// Returns true if the card had written back descriptors.
  [[nodiscard]] bool work() noexcept;
  [[nodiscard]] bool check_before_sleep() noexcept;
  void end_of_event() noexcept;
  void report_link() noexcept;
  void reap_soon() noexcept;
  void watch() noexcept;

  log::Traffic traffic_;
  ReceiveQueue receive_;
  TransmitQueue transmit_;
  FrameReceiver* receiver_ = nullptr;
  std::atomic<bool> link_up_ = false, hung_ = false;
  unsigned index_;
  std::uint32_t budget_ = 64;
  bool held_ = false;

  CoalescedCall repeat_{[](void* pair) noexcept { static_cast<QueuePair*>(pair)->poll(); }, this};
  CoalescedCall link_call_{[](void* pair) noexcept { static_cast<QueuePair*>(pair)->report_link(); }, this};
  std::optional<EventEndHook> end_;
  std::optional<IdleHook> idle_;

  Timer reaping_;
  Timer watchdog_;
  std::uint32_t progress_seen_ = 0;
  void (*hang_call_)(void*) noexcept = nullptr;
  void* hang_context_ = nullptr;
  PairCounters counters_;
};

/// Calls `prepare` for all pairs, each on its core. After an error the prepared memory of all pairs is released. A later `program` then
/// continues with the old rings.
[[nodiscard]] task<Result<void>> prepare_all(std::span<const std::unique_ptr<QueuePair>> pairs, const QueueOptions& options);

}  // namespace neap::ixgbe
