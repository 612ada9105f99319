// SPDX-License-Identifier: BSL-1.0
// What one core does for the card: its receive and its transmit queue as one event. Cores from 16 on have the latter alone.
//
// Receive and transmit share a vector, so one event looks at both: first what was sent (its memory goes back to the stack), then up to
// `budget` received descriptors. New buffers and new frames are told to the card once, at the end of whatever event caused them.
//
// The card raises no second interrupt for descriptors that it has announced already. So an event that stops at its budget queues itself
// again, behind what waits already; and before the core sleeps the rings are looked at once more.
//
// Interrupts are not masked while an event runs: the vector's cause clears itself when the message is sent (EIAC), anything after that
// raises the next one, at the distance that moderation sets, and it marks a bit. Masking would cost two register writes for each event and
// save nothing.
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
  /// Both queues have number `index`, which is the core's.
  QueuePair(Registers registers, unsigned index) noexcept
      : receive_(registers, index, traffic_), transmit_(registers, index, traffic_), index_(index) {}
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair() override;

  /// Memory for both queues, on the pair's core, so that it is near. Errors: `invalid`, `out_of_memory`; then nothing has changed.
  [[nodiscard]] Result<void> prepare(const QueueOptions& options);

  /// Gives that memory back, if no `program` has used it.
  void forget_prepared() noexcept;

  // How a running pair is stopped and goes on with other options; each step on the pair's core but for the waits between them, in which
  // the queues go off or come up.
  /// From here on no tail moves: frames to be sent are refused as by a full ring.
  void hold() noexcept;
  /// True if all that was told to the card is sent.
  [[nodiscard]] bool drained() noexcept;
  /// Hands up what was received, and gives back what was not sent; returns how many frames the latter were. Both queues are off.
  [[nodiscard]] std::uint32_t empty() noexcept;
  void program(const QueueOptions& options) noexcept;
  /// ReceiveQueue::enable, where there is one.
  [[nodiscard]] task<Result<void>> enable_receive(bool on) const;
  /// Both queues are on.
  void resume() noexcept;

  /// On the pair's core, once: frames go to `receiver` from the next event on, those that wait in the ring first.
  void attach(FrameReceiver& receiver);
  /// On the pair's core: no call to the receiver after this. False: an event of the pair is still queued; try again in a later event.
  [[nodiscard]] bool detach() noexcept;
  [[nodiscard]] bool attached() const noexcept { return receiver_ != nullptr; }

  /// Any core. Without a link `transmit` refuses, and frames that wait are no hang.
  void set_link(bool up) noexcept { link_up_.store(up, std::memory_order_relaxed); }
  /// One core at a time. The receiver hears of the link as it is by then, on the pair's core.
  void announce_link() noexcept { link_news_.ask(index_); }
  void set_budget(std::uint32_t descriptors) noexcept { budget_ = descriptors; }

  /// `call(context)` runs on the pair's core, from its watchdog, each time that transmission makes no progress. Before `attach`.
  void on_hang(void (*call)(void*) noexcept, void* context) noexcept {
    hang_call_ = call;
    hang_context_ = context;
  }

  /// True once for each time that `on_hang` was called since the last look. Any core.
  [[nodiscard]] bool take_hang() noexcept { return hung_.exchange(false); }

  // FrameSender, on the pair's core.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept override {
    return transmit_.transmit_alike(pieces, offload, token) ? TransmitResult{} : transmit_any(pieces, offload, token);
  }

  /// The event of this pair's vector.
  void interrupt() noexcept;

  /// True if the card has written something back that was not looked at yet. On the pair's core.
  [[nodiscard]] bool work_waits() const noexcept { return receive_.ready() || transmit_.ready(); }

  /// On the pair's core: the cache line of the next receive descriptor to be written back. Null while frames are on their way out over a
  /// link: their reports are written elsewhere, and memory and room for more hang on them.
  [[nodiscard]] const volatile void* next_receive_line() const noexcept {
    if (transmit_.pending() != 0 && link_up_.load(std::memory_order_relaxed)) return nullptr;
    return receive_.next_line();
  }

  [[nodiscard]] unsigned core() const noexcept { return index_; }
  /// Further cores have no receive queue: RSS could not name it.
  [[nodiscard]] bool receives() const noexcept { return index_ < rss::queues_max; }
  [[nodiscard]] ReceiveQueue& receive_queue() noexcept { return receive_; }
  [[nodiscard]] TransmitQueue& transmit_queue() noexcept { return transmit_; }
  [[nodiscard]] const PairCounters& counters() const noexcept { return counters_; }
  /// What passed through both queues; the core's log counts from here while a stack is attached.
  [[nodiscard]] const log::Traffic& traffic() const noexcept { return traffic_; }

  /// A transmit queue with frames in it that makes no progress for this long is said to hang.
  static constexpr std::chrono::seconds hang_period{2};

 private:
  [[nodiscard]] TransmitResult transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  /// A look without an interrupt that finds something leaves a record of its own.
  void look() noexcept;
  void work() noexcept;
  [[nodiscard]] bool look_before_sleep() noexcept;
  void end_of_event() noexcept;
  void tell_link() noexcept;
  void watch() noexcept;

  log::Traffic traffic_;
  ReceiveQueue receive_;
  TransmitQueue transmit_;
  FrameReceiver* receiver_ = nullptr;
  std::atomic<bool> link_up_ = false;
  std::atomic<bool> hung_ = false;
  unsigned index_;
  std::uint32_t budget_ = 64;
  bool held_ = false;

  Errand again_{[](void* pair) noexcept { static_cast<QueuePair*>(pair)->look(); }, this};
  Errand link_news_{[](void* pair) noexcept { static_cast<QueuePair*>(pair)->tell_link(); }, this};
  std::optional<EventEndHook> end_;
  std::optional<IdleHook> idle_;

  Timer watchdog_;
  std::uint32_t progress_seen_ = 0;
  void (*hang_call_)(void*) noexcept = nullptr;
  void* hang_context_ = nullptr;
  PairCounters counters_;
};

/// `prepare` for all of them, each on its core. With an error none keeps what was prepared: a later `program`, for whatever reason, builds
/// the ring that the options in force describe.
[[nodiscard]] task<Result<void>> prepare_all(std::span<const std::unique_ptr<QueuePair>> pairs, const QueueOptions& options);

}  // namespace neap::ixgbe
