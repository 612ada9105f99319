// SPDX-License-Identifier: BSL-1.0
// A core's queues: a receive queue, a transmit queue and one interrupt vector for both.
//
// The interrupt of the receive queue announces frames, and the next event reaps completions. Completions cause no interrupt. While a core
// is awake, used entries are seen by the event that follows; before it sleeps, it looks at the rings once more (`check_before_sleep`).
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "drivers/virtio/receive_queue.hpp"
#include "drivers/virtio/transmit_queue.hpp"
#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"

namespace neap::virtio {

class QueuePair final : public FrameSender {
 public:
  /// `index` is the number of the pair and of the core. `fail(context)` is called on the pair's core when the device has failed.
  QueuePair(unsigned index, void (*fail)(void*) noexcept, void* context) noexcept
      : receive_(traffic_), transmit_(traffic_), index_(index), fail_(fail), context_(context) {}
  QueuePair& operator=(QueuePair&&) = delete;
  ~QueuePair() override;

  // All functions MUST be called on the pair's core, unless stated otherwise.
  /// Makes the first buffers available. The device MUST be running.
  void start() noexcept { receive_.refill(); }
  /// Passes frames to `receiver` from the next event on. MUST be called once.
  void attach(FrameReceiver& receiver);
  /// Detaches the receiver. Returns false if an event of the pair is still queued; the caller MUST then try again in a later event.
  [[nodiscard]] bool detach() noexcept;
  [[nodiscard]] bool attached() const noexcept { return receiver_ != nullptr; }
  /// Returns all buffers and tokens. The device MUST have been reset. From now on `transmit` returns `closed`.
  void abandon() noexcept;

  /// Sets the link's state, and reports it to the stack in a later event of the pair's core. MAY be called on any core, by one at a time.
  void set_link(bool up) noexcept {
    if (link_up_.exchange(up, std::memory_order_relaxed) != up) link_call_.ask(index_);
  }
  void set_budget(std::uint32_t budget) noexcept { budget_ = budget; }

  // Overrides FrameSender.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept override {
    return transmit_.transmit_alike(pieces, offload, token) ? TransmitResult{} : transmit_any(pieces, offload, token);
  }
  void reap() noexcept override;

  /// Runs as the event of this pair's vector.
  void interrupt() noexcept;
  void want_interrupts(bool on) noexcept;
  [[nodiscard]] bool frames_pending() const noexcept { return receive_.ready(); }
  [[nodiscard]] const volatile void* next_receive_line() const noexcept { return receive_.ring().used_line(); }

  [[nodiscard]] unsigned core() const noexcept { return index_; }
  [[nodiscard]] ReceiveQueue& receive_queue() noexcept { return receive_; }
  [[nodiscard]] TransmitQueue& transmit_queue() noexcept { return transmit_; }
  [[nodiscard]] const PairCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const log::Traffic& traffic() const noexcept { return traffic_; }
  /// The reason for which the pair called `fail`; null: it did not. MAY be called on any core.
  [[nodiscard]] const char* fault() const noexcept { return fault_.load(std::memory_order_acquire); }

  static constexpr std::chrono::seconds hang_period{2};
  /// The time after which completions are reaped if no event has reaped them, while the ring is short of room.
  static constexpr std::chrono::microseconds reap_period{100};

 private:
  [[nodiscard]] TransmitResult transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept;
  void poll() noexcept;
  [[nodiscard]] bool work() noexcept;
  [[nodiscard]] bool check_before_sleep() noexcept;
  void end_of_event() noexcept;
  void check_faults() noexcept;
  void report_link() noexcept;
  void reap_soon() noexcept;
  void watch() noexcept;

  log::Traffic traffic_;
  ReceiveQueue receive_;
  TransmitQueue transmit_;
  FrameReceiver* receiver_ = nullptr;
  std::atomic<bool> link_up_ = false;
  std::atomic<const char*> fault_ = nullptr;
  unsigned index_;
  std::uint32_t budget_ = 64;
  void (*fail_)(void*) noexcept;
  void* context_;

  CoalescedCall repeat_{[](void* pair) noexcept { static_cast<QueuePair*>(pair)->poll(); }, this};
  CoalescedCall link_call_{[](void* pair) noexcept { static_cast<QueuePair*>(pair)->report_link(); }, this};
  std::optional<EventEndHook> end_;
  std::optional<IdleHook> idle_;
  Timer reaping_, watchdog_;
  std::uint32_t progress_seen_ = 0;
  PairCounters counters_;
};

}  // namespace neap::virtio
