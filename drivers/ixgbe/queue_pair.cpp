// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/queue_pair.hpp"

#include "kernel/console.hpp"
#include "kernel/panic.hpp"

namespace neap::ixgbe {

QueuePair::~QueuePair() {
  if (attached()) log::watch(nullptr);
}

Result<void> QueuePair::prepare(const QueueOptions& options) {
  if (auto done = receives() ? receive_.prepare(options) : Result<void>{}; !done) return done;
  auto done = transmit_.prepare(options);
  if (!done) discard_prepared();
  return done;
}

void QueuePair::discard_prepared() noexcept {
  receive_.discard_prepared();
  transmit_.discard_prepared();
}

task<Result<void>> prepare_all(std::span<const std::unique_ptr<QueuePair>> pairs, const QueueOptions& options) {
  for (const auto& pair : pairs) {
    const auto done = co_await on_core(pair->core(), [&] { return pair->prepare(options); });
    if (done) continue;
    for (const auto& each : pairs) co_await on_core(each->core(), [&] { each->discard_prepared(); });
    co_return done;
  }
  co_return Result<void>{};
}

void QueuePair::program(const QueueOptions& options) noexcept {
  follow(options);
  if (receives()) receive_.program(options);
  transmit_.program(options);
}

void QueuePair::hold() noexcept {
  require(machine::this_core() == index_, "ixgbe: a queue pair is held on another core", index_);
  end_of_event();
  held_ = true;
  transmit_.hold(true);
}

task<Result<void>> QueuePair::enable_receive(bool on) const {
  if (!receives()) co_return Result<void>{};
  co_return co_await receive_.enable(on);
}

bool QueuePair::drained() noexcept {
  transmit_.reclaim();
  return transmit_.pending() == 0;
}

std::uint32_t QueuePair::empty() noexcept {
  require(held_ || receiver_ == nullptr, "ixgbe: a queue pair is emptied that is not held", index_);
  const std::uint32_t unsent = transmit_.empty();
  if (receiver_ != nullptr) {
    static_cast<void>(receive_.receive(*receiver_, DescriptorRing::descriptors_max));
    transmit_.deliver(*receiver_);
  }
  receive_.empty();
  return unsent;
}

void QueuePair::resume() noexcept {
  require(machine::this_core() == index_, "ixgbe: a queue pair is resumed on another core", index_);
  held_ = false;
  transmit_.hold(false);
  if (receives()) receive_.refill();
  repeat_.ask(index_);
}

void QueuePair::attach(FrameReceiver& receiver) {
  require(receiver_ == nullptr, "ixgbe: second stack attached to a queue pair", index_);
  require(machine::this_core() == index_, "ixgbe: a stack is attached on another core than the queue pair's", index_);
  receiver_ = &receiver;
  log::watch(&traffic_);
  // This hook runs after all other end hooks, because those may queue frames. For example, a server's hook sends gathered replies.
  end_.emplace([this] { end_of_event(); }, EventEndHook::Place::last);
  idle_.emplace([this] { return check_before_sleep(); });
  receive_.on_buffers_wanted([](void* pair) noexcept { static_cast<QueuePair*>(pair)->end_->request(); }, this);
  repeat_.ask(index_);
}

bool QueuePair::detach() noexcept {
  require(machine::this_core() == index_, "ixgbe: a stack is detached on another core than the queue pair's", index_);
  if (attached()) log::watch(nullptr);
  receiver_ = nullptr;
  transmit_.hold(held_);  // ends the run of alike frames, so that the next frame is checked and refused
  receive_.on_buffers_wanted(nullptr, nullptr);
  end_.reset();
  idle_.reset();
  reaping_.cancel();
  watchdog_.cancel();
  return !repeat_.asked();
}

void QueuePair::report_link() noexcept {
  if (!attached()) return;
  end_->request();  // frames that waited for the link are in flight again, so their completions may be needed soon
  receiver_->link_changed(link_up_.load(std::memory_order_relaxed));
}

// Called for the first frame of an event and after the end of a run (transmit_queue.hpp). Only here the link's state is checked. Most
// events continue the run of the last event, which takes half of the instructions of `transmit_checked`.
TransmitResult QueuePair::transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  if (pieces.size() == 1 && receiver_ != nullptr && link_up_.load(std::memory_order_relaxed)) [[likely]] {
    transmit_.reopen_run();
    if (transmit_.transmit_alike(pieces, offload, token)) [[likely]] {
      end_->request();
      return {};
    }
  }
  return transmit_checked(pieces, offload, token);
}

[[gnu::noinline]] TransmitResult QueuePair::transmit_checked(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  if (receiver_ == nullptr || !link_up_.load(std::memory_order_relaxed)) return std::unexpected(ErrorCode::closed);
  end_->request();  // also if the frame is refused, because `reclaim` may find tokens to deliver
  if (pieces.size() == 1) {
    transmit_.begin_run();
    if (transmit_.transmit_alike(pieces, offload, token)) return {};
  }
  return transmit_.transmit(pieces, offload, token);
}

[[gnu::always_inline]] inline bool QueuePair::work() noexcept {
  if (receiver_ == nullptr) [[unlikely]]
    return frames_pending();  // frames wait in the ring for `attach`
  const std::uint32_t progress = transmit_.progress();
  transmit_.reap(*receiver_);
  const unsigned taken = receive_.receive(*receiver_, budget_);
  if (taken == 0) return transmit_.progress() != progress;
  end_->request();
  if (taken == budget_ && receive_.ready()) {
    counters_.budget_exits.add();
    repeat_.ask(index_);
  }
  return true;
}

void QueuePair::interrupt() noexcept {
  require(machine::this_core() == index_, "ixgbe: an interrupt of a queue pair on another core", index_);
  log::interrupt();
  counters_.interrupts.add();
  if (!work()) counters_.empty_interrupts.add();
}

void QueuePair::poll() noexcept {
  if (frames_pending()) log::poll();
  static_cast<void>(work());
}

// Completions alone are no work, and the next event reaps them at the same cost, unless their room is needed soon. If they make room for
// the stack, its hooks run when this function returns.
bool QueuePair::check_before_sleep() noexcept {
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

// A ring in which no room is needed soon needs no timer. Without a link the card completes nothing.
void QueuePair::reap_soon() noexcept {
  if (!transmit_.crowded() || reaping_.pending() || held_ || !link_up_.load(std::memory_order_relaxed)) return;
  reaping_.arm(reap_period, [this] {
    reap();
    reap_soon();
  });
}

void QueuePair::end_of_event() noexcept {
  if (held_) [[unlikely]]
    return;
  receive_.refill();
  transmit_.flush();
  if (!watchdog_.pending() && transmit_.pending() != 0) [[unlikely]] {
    progress_seen_ = transmit_.progress();
    watchdog_.arm(hang_period, [this] { watch(); });
  }
  if (!transmit_.crowded()) [[likely]]
    return;
  reap_soon();
  // The remaining tokens are delivered in a later event. The stack may reply to each token with a new frame, so a loop here might not end.
  if (transmit_.deliverable()) repeat_.ask(index_);
}

// The watchdog stays armed when the last frame is sent, because arming it for each request costs more than one check each two seconds. So
// it also runs with nothing in flight, once, and then stays off until the next frame.
void QueuePair::watch() noexcept {
  reap();
  if (transmit_.pending() == 0 || held_) return;
  // Without a link, the card may keep frames for ever; that is no hang.
  if (transmit_.progress() == progress_seen_ && link_up_.load(std::memory_order_relaxed)) {
    transmit_.count_hang();
    hung_ = true;
    if (transmit_.counters().hangs.value() == 1)
      print("ixgbe: transmit queue ", index_, " makes no progress, ", transmit_.pending(), " descriptors wait");
    if (hang_call_ != nullptr) hang_call_(hang_context_);
  }
  progress_seen_ = transmit_.progress();
  watchdog_.arm(hang_period, [this] { watch(); });
}

}  // namespace neap::ixgbe
