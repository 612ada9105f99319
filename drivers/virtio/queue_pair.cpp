// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/queue_pair.hpp"

#include "kernel/console.hpp"
#include "kernel/machine.hpp"

namespace neap::virtio {

QueuePair::~QueuePair() {
  if (attached()) log::watch(nullptr);
}

void QueuePair::attach(FrameReceiver& receiver) {
  require(receiver_ == nullptr, "virtio: second stack attached to a queue pair", index_);
  require(machine::this_core() == index_, "virtio: a stack is attached on another core than the queue pair's", index_);
  receiver_ = &receiver;
  log::watch(&traffic_);
  // This hook runs after all other end hooks, because those may queue frames.
  end_.emplace([this] { end_of_event(); }, EventEndHook::Place::last);
  idle_.emplace([this] { return check_before_sleep(); });
  receive_.on_buffers_wanted([](void* pair) noexcept { static_cast<QueuePair*>(pair)->end_->request(); }, this);
  repeat_.ask(index_);
}

bool QueuePair::detach() noexcept {
  require(machine::this_core() == index_, "virtio: a stack is detached on another core than the queue pair's", index_);
  if (attached()) log::watch(nullptr);
  receiver_ = nullptr;
  receive_.on_buffers_wanted(nullptr, nullptr);
  end_.reset();
  idle_.reset();
  reaping_.cancel();
  watchdog_.cancel();
  return !repeat_.asked() && !link_call_.asked();
}

void QueuePair::abandon() noexcept {
  if (fault() == nullptr) fault_.store("virtio: the device is closed", std::memory_order_release);
  receive_.empty();
  transmit_.empty();
  if (receiver_ != nullptr) transmit_.deliver(*receiver_);
}

void QueuePair::report_link() noexcept {
  if (attached()) receiver_->link_changed(link_up_.load(std::memory_order_relaxed));
}

void QueuePair::want_interrupts(bool on) noexcept {
  receive_.want_interrupts(on);
  // Frames that arrived meanwhile raised no interrupt.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (on && frames_pending()) repeat_.ask(index_);
}

// Called for the first frame of an event, and for frames that differ from the one before. Only here the link's state is checked.
TransmitResult QueuePair::transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  if (receiver_ == nullptr || !link_up_.load(std::memory_order_relaxed) || transmit_.fault() != nullptr) [[unlikely]]
    return std::unexpected(ErrorCode::closed);
  end_->request();
  transmit_.begin_run();
  if (transmit_.transmit_alike(pieces, offload, token)) [[likely]]
    return {};
  const TransmitResult result = transmit_.transmit(pieces, offload, token);
  transmit_.begin_run();
  return result;
}

[[gnu::always_inline]] inline bool QueuePair::work() noexcept {
  if (receiver_ == nullptr) [[unlikely]]
    return frames_pending();  // frames wait in the ring for `attach`
  const std::uint32_t progress = transmit_.progress();
  transmit_.reap(*receiver_);
  const unsigned taken = receive_.receive(*receiver_, budget_);
  if (taken == 0) {
    if (receive_.fault() != nullptr || transmit_.fault() != nullptr) [[unlikely]]
      check_faults();
    return transmit_.progress() != progress;
  }
  end_->request();
  if (taken == budget_ && receive_.ready()) {
    counters_.budget_exits.add();
    repeat_.ask(index_);
  }
  return true;
}

void QueuePair::interrupt() noexcept {
  require(machine::this_core() == index_, "virtio: an interrupt of a queue pair on another core", index_);
  log::interrupt();
  counters_.interrupts.add();
  if (!work()) counters_.empty_interrupts.add();
}

void QueuePair::poll() noexcept {
  if (frames_pending()) log::poll();
  static_cast<void>(work());
}

// `seen` has told the device from which entry on it raises an interrupt. An entry that it used before it could see that raises none.
bool QueuePair::check_before_sleep() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (frames_pending()) {
    counters_.idle_finds.add();
    poll();
    return true;
  }
  if (transmit_.crowded()) reap();
  return false;
}

void QueuePair::reap() noexcept {
  if (receiver_ != nullptr) transmit_.reap(*receiver_);
}

void QueuePair::reap_soon() noexcept {
  if (!transmit_.crowded() || reaping_.pending() || !link_up_.load(std::memory_order_relaxed)) return;
  reaping_.arm(reap_period, [this] {
    reap();
    reap_soon();
  });
}

void QueuePair::end_of_event() noexcept {
  receive_.refill();
  transmit_.flush();
  if (receive_.fault() != nullptr || transmit_.fault() != nullptr) [[unlikely]]
    check_faults();
  if (!watchdog_.pending() && transmit_.pending() != 0) [[unlikely]] {
    progress_seen_ = transmit_.progress();
    watchdog_.arm(hang_period, [this] { watch(); });
  }
  if (transmit_.crowded()) [[unlikely]]
    reap_soon();
}

void QueuePair::check_faults() noexcept {
  if (fault() != nullptr) return;
  counters_.wrong_entries.add();
  fault_.store(receive_.fault() != nullptr ? receive_.fault() : transmit_.fault(), std::memory_order_release);
  fail_(context_);
}

// A device may wait for its host for any time, so a queue without progress is only counted. The watchdog also reaps the last completions.
void QueuePair::watch() noexcept {
  reap();
  if (transmit_.pending() == 0) return;
  if (transmit_.progress() == progress_seen_ && link_up_.load(std::memory_order_relaxed)) {
    transmit_.count_hang();
    if (transmit_.counters().hangs.value() == 1)
      print("virtio: transmit queue ", index_, " makes no progress, ", transmit_.pending(), " frames wait");
  }
  progress_seen_ = transmit_.progress();
  watchdog_.arm(hang_period, [this] { watch(); });
}

}  // namespace neap::virtio
