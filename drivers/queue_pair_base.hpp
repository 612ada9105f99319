// SPDX-License-Identifier: BSL-1.0
// The events of a core's two queues, receive and transmit, for every driver.
//
// One event serves both queues: first TX completions, which return memory to the stack, then up to `budget` received descriptors. New
// buffers and new frames are posted once, at the end of the event that caused them.
//
// TX completions cause no interrupt on a core that receives, unless a driver's setting asks for it. A core sends its replies and sleeps,
// and their completions would wake it only to return memory that nothing waits for. So completions are reaped by the next event that
// receives. If the stack needs the room, or half of the ring is in use, they are reaped before the core sleeps, too, and by a timer. The
// stack reaps them itself (`reap`) before it acts on what the card still holds. The watchdog reaps the last ones of an idle core.
//
// A card raises no second interrupt for descriptors that it has already announced. So an event that stops at its budget queues itself
// again, behind the waiting events. Before the core sleeps, the rings are checked once more.
//
// The order of these steps is the same for each card, so it is here once. A driver derives its `Pair` from the template, with the classes
// of its queues. There is no virtual call between pair and queues, so that the code of a frame is inlined. The functions under "Hooks" do
// nothing here. A driver that needs one MUST declare a function of that name in `Pair`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "drivers/queue_counters.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/net_device.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"

namespace neap {

template <class Pair, class ReceiveQueue, class TransmitQueue, class Counters = QueuePairCounters>
class QueuePairBase : public FrameSender {
 public:
  QueuePairBase& operator=(QueuePairBase&&) = delete;
  ~QueuePairBase() override {
    if (attached()) log::watch(nullptr);
  }

  // All functions MUST be called on the pair's core, unless stated otherwise.
  /// Passes frames to `receiver` from the next event on, first those that wait in the ring. MUST be called once.
  void attach(FrameReceiver& receiver) {
    require(!attached(), "queue pair: a second stack is attached", index_);
    require(machine::this_core() == index_, "queue pair: a stack is attached on another core than the pair's", index_);
    receiver_ = &receiver;
    log::watch(&traffic_);
    // This hook runs after all other end hooks, because those may queue frames. For example, a server's hook sends gathered replies.
    end_.emplace([this] { end_of_event(); }, EventEndHook::Place::last);
    idle_.emplace([this] { return check_before_sleep(); });
    receive_.on_buffers_wanted([](void* pair) noexcept { static_cast<QueuePairBase*>(pair)->end_->request(); }, this);
    repeat_.ask(index_);
  }
  /// Detaches the receiver. Returns false if an event of the pair is still queued; the caller MUST then try again in a later event.
  [[nodiscard]] bool detach() noexcept {
    require(machine::this_core() == index_, "queue pair: a stack is detached on another core than the pair's", index_);
    if (attached()) log::watch(nullptr);
    receiver_ = nullptr;
    receive_.on_buffers_wanted(nullptr, nullptr);
    end_.reset();
    idle_.reset();
    reaping_.cancel();
    watchdog_.cancel();
    return !repeat_.asked() && !link_call_.asked();
  }
  [[nodiscard]] bool attached() const noexcept { return receiver_ != nullptr; }

  /// Sets the link's state. MAY be called on any core. Without a link, `transmit` refuses frames, and waiting frames do not count as hung.
  void set_link(bool up) noexcept { link_up_.store(up, std::memory_order_relaxed); }
  /// Makes the pair's core read the link's state in a later event and report it to the stack. MUST be called by one core at a time.
  void announce_link() noexcept { link_call_.ask(index_); }
  /// Sets the number of receive descriptors that one event may take.
  void set_budget(std::uint32_t descriptors) noexcept { budget_ = descriptors; }

  /// `call(context)` runs on the pair's core whenever the driver finds that the card fails to serve the pair. MUST be set before `attach`.
  void on_failure(void (*call)(void*) noexcept, void* context) noexcept {
    require(!attached(), "queue pair: the callback for failures is set after attach", index_);
    failure_call_ = call;
    failure_context_ = context;
  }

  // Overrides FrameSender.
  [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept final {
    return transmit_.transmit_alike(pieces, offload, token) ? TransmitResult{} : self().transmit_any(pieces, offload, token);
  }
  void reap() noexcept final {
    if (attached()) transmit_.reap(*receiver_);
  }

  /// Runs as the event of this pair's vector.
  void interrupt() noexcept {
    require(machine::this_core() == index_, "queue pair: an interrupt on another core than the pair's", index_);
    log::interrupt();
    counters_.interrupts.add();
    if (!work()) counters_.empty_interrupts.add();
  }

  /// True if the card has written back receive descriptors that were not processed yet.
  [[nodiscard]] bool frames_pending() const noexcept { return receive_.ready(); }

  [[nodiscard]] unsigned core() const noexcept { return index_; }
  /// False for a core without a receive queue.
  [[nodiscard]] bool receives() const noexcept { return true; }
  [[nodiscard]] ReceiveQueue& receive_queue() noexcept { return receive_; }
  [[nodiscard]] TransmitQueue& transmit_queue() noexcept { return transmit_; }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  /// Returns the traffic counters of both queues. The core's log reads these counters while a stack is attached.
  [[nodiscard]] const log::Traffic& traffic() const noexcept { return traffic_; }

  /// A transmit queue with frames in flight hangs if it makes no progress for this long.
  static constexpr std::chrono::seconds hang_period{2};
  /// The time after which completions are reaped if no event has reaped them, while the ring is short of room.
  static constexpr std::chrono::microseconds reap_period{100};

 protected:
  /// `index` is the number of the pair and of the core. Both queues are made of `arguments` and the traffic counters.
  template <class... Arguments>
  explicit QueuePairBase(unsigned index, Arguments... arguments) noexcept
      : receive_(arguments..., traffic_), transmit_(arguments..., traffic_), index_(index) {}

  // Hooks. A driver MAY declare functions of the same names and types in `Pair`, which MUST have this class as a friend.
  /// True while the queues must not be touched.
  [[nodiscard]] bool held() const noexcept { return false; }
  /// Runs before the last check of the rings, behind which the core sleeps.
  void prepare_sleep() noexcept {}
  /// Runs in events that found no frames, and at the end of events that posted buffers or frames.
  void check_faults() noexcept {}
  /// Runs in each watchdog period in which the card made no progress.
  void handle_hang() noexcept {}
  /// Takes a frame that does not continue a run (transmit_queue.hpp).
  [[nodiscard]] TransmitResult transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
    return transmit_checked(pieces, offload, token);
  }

  // Functions for the driver.
  /// Queues a frame outside of a run. Only here the link's state is checked.
  [[nodiscard, gnu::noinline]] TransmitResult transmit_checked(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
    if (!attached() || !link_up()) [[unlikely]]
      return std::unexpected(ErrorCode::closed);
    end_->request();  // also if the frame is refused, because there may be tokens to deliver
    if (pieces.size() == 1) {
      transmit_.begin_run();
      if (transmit_.transmit_alike(pieces, offload, token)) [[likely]]
        return {};
    }
    return transmit_.transmit(pieces, offload, token);
  }
  void end_of_event() noexcept {
    if (self().held()) [[unlikely]]
      return;
    receive_.refill();
    transmit_.flush();
    self().check_faults();
    if (!watchdog_.pending() && transmit_.pending() != 0) [[unlikely]] {
      progress_seen_ = transmit_.progress();
      watchdog_.arm(hang_period, [this] { watch(); });
    }
    if (!transmit_.crowded()) [[likely]]
      return;
    reap_soon();
    // If `transmit` reclaims, tokens may be left. They are delivered in a later event. The stack may reply to each token with a new frame,
    // so a loop here might not end.
    if constexpr (requires { transmit_.deliverable(); }) {
      if (transmit_.deliverable()) repeat_.ask(index_);
    }
  }
  [[nodiscard]] bool link_up() const noexcept { return link_up_.load(std::memory_order_relaxed); }
  void report_failure() noexcept {
    if (failure_call_ != nullptr) failure_call_(failure_context_);
  }

  log::Traffic traffic_;
  ReceiveQueue receive_;
  TransmitQueue transmit_;
  FrameReceiver* receiver_ = nullptr;
  std::atomic<bool> link_up_ = false;
  unsigned index_;
  std::uint32_t budget_ = 64;
  CoalescedCall repeat_{[](void* pair) noexcept { static_cast<QueuePairBase*>(pair)->poll(); }, this};
  std::optional<EventEndHook> end_;
  Counters counters_;

 private:
  [[nodiscard]] Pair& self() noexcept { return static_cast<Pair&>(*this); }
  /// Runs the pair's event without an interrupt. If it finds frames, it writes a log record.
  void poll() noexcept {
    if (frames_pending()) log::poll();
    static_cast<void>(work());
  }
  /// Returns true if the card had written back descriptors.
  [[nodiscard, gnu::always_inline]] bool work() noexcept {
    if (!attached()) [[unlikely]]
      return frames_pending();  // frames wait in the ring for `attach`
    const std::uint32_t progress = transmit_.progress();
    transmit_.reap(*receiver_);
    const unsigned taken = receive_.receive(*receiver_, budget_);
    if (taken == 0) {
      self().check_faults();
      return transmit_.progress() != progress;
    }
    end_->request();
    if (taken == budget_ && receive_.ready()) {
      counters_.budget_exits.add();
      repeat_.ask(index_);
    }
    return true;
  }
  // Completions alone are no work, and the next event reaps them at the same cost, unless their room is needed soon. If they make room for
  // the stack, its hooks run when this function returns.
  [[nodiscard]] bool check_before_sleep() noexcept {
    self().prepare_sleep();
    if (frames_pending()) {
      counters_.idle_finds.add();
      poll();
      return true;
    }
    if (transmit_.crowded()) reap();
    return false;
  }
  void report_link() noexcept {
    if (!attached()) return;
    end_->request();  // frames that waited for the link are in flight again, so their completions may be needed soon
    receiver_->link_changed(link_up());
  }
  // A ring in which no room is needed soon needs no timer. Without a link the card completes nothing.
  void reap_soon() noexcept {
    if (!transmit_.crowded() || reaping_.pending() || self().held() || !link_up()) return;
    reaping_.arm(reap_period, [this] {
      reap();
      reap_soon();
    });
  }
  // The watchdog stays armed when the last frame is sent, because arming it for each request costs more than one check each two seconds. So
  // it also runs with nothing in flight, once, and then stays off until the next frame.
  void watch() noexcept {
    reap();
    if (transmit_.pending() == 0 || self().held()) return;
    // Without a link, the card may keep frames for ever; that is no hang.
    if (transmit_.progress() == progress_seen_ && link_up()) {
      transmit_.count_hang();
      if (transmit_.counters().hangs.value() == 1)
        print(Pair::driver, ": transmit queue ", index_, " makes no progress, ", transmit_.pending(), " descriptors or frames wait");
      self().handle_hang();
    }
    progress_seen_ = transmit_.progress();
    watchdog_.arm(hang_period, [this] { watch(); });
  }

  CoalescedCall link_call_{[](void* pair) noexcept { static_cast<QueuePairBase*>(pair)->report_link(); }, this};
  std::optional<IdleHook> idle_;
  Timer reaping_;
  Timer watchdog_;
  std::uint32_t progress_seen_ = 0;
  void (*failure_call_)(void*) noexcept = nullptr;
  void* failure_context_ = nullptr;
};

}  // namespace neap
