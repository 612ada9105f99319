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
  if (!done) forget_prepared();
  return done;
}

void QueuePair::forget_prepared() noexcept {
  receive_.forget_prepared();
  transmit_.forget_prepared();
}

task<Result<void>> prepare_all(std::span<const std::unique_ptr<QueuePair>> pairs, const QueueOptions& options) {
  for (const auto& pair : pairs) {
    const auto done = co_await on_core(pair->core(), [&] { return pair->prepare(options); });
    if (done) continue;
    for (const auto& each : pairs) co_await on_core(each->core(), [&] { each->forget_prepared(); });
    co_return done;
  }
  co_return Result<void>{};
}

void QueuePair::program(const QueueOptions& options) noexcept {
  budget_ = options.budget_descriptors;
  if (receives()) receive_.program(options);
  transmit_.program(options);
}

void QueuePair::hold() noexcept {
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
  const std::uint32_t unsent = transmit_.empty();
  if (receiver_ != nullptr) {
    static_cast<void>(receive_.receive(*receiver_, DescriptorRing::descriptors_max));
    transmit_.deliver(*receiver_);
  }
  receive_.empty();
  return unsent;
}

void QueuePair::resume() noexcept {
  held_ = false;
  transmit_.hold(false);
  if (receives()) receive_.refill();
  again_.ask(index_);
}

void QueuePair::attach(FrameReceiver& receiver) {
  require(receiver_ == nullptr, "ixgbe: second stack attached to a queue pair", index_);
  receiver_ = &receiver;
  log::watch(&traffic_);
  // Other hooks of an event may still queue frames: a server gathers its replies in one.
  end_.emplace([this] { end_of_event(); }, EventEndHook::Place::last);
  idle_.emplace([this] { return look_before_sleep(); });
  receive_.on_buffers_wanted([](void* pair) noexcept { static_cast<QueuePair*>(pair)->end_->request(); }, this);
  again_.ask(index_);
}

bool QueuePair::detach() noexcept {
  if (attached()) log::watch(nullptr);
  receiver_ = nullptr;
  transmit_.hold(held_);  // the next frame is looked at, and refused
  receive_.on_buffers_wanted(nullptr, nullptr);
  end_.reset();
  idle_.reset();
  watchdog_.cancel();
  return !again_.asked();
}

void QueuePair::tell_link() noexcept {
  if (attached()) receiver_->link_changed(link_up_.load(std::memory_order_relaxed));
}

// An event's first frame comes here, and where a run ends. A link that goes meanwhile is not seen before that.
TransmitResult QueuePair::transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  if (receiver_ == nullptr || !link_up_.load(std::memory_order_relaxed)) [[unlikely]]
    return std::unexpected(ErrorCode::closed);
  end_->request();  // before a refusal too: reclaim may find tokens to deliver
  transmit_.begin_run();
  if (transmit_.transmit_alike(pieces, offload, token)) return {};
  return transmit_.transmit(pieces, offload, token);
}

void QueuePair::interrupt() noexcept {
  log::interrupt();
  counters_.interrupts.add();
  if (!work_waits()) counters_.empty_interrupts.add();
  work();
}

void QueuePair::look() noexcept {
  if (work_waits()) log::poll();
  work();
}

void QueuePair::work() noexcept {
  if (receiver_ == nullptr) return;  // frames wait in the ring for `attach`
  transmit_.reclaim();
  if (transmit_.deliverable()) transmit_.deliver(*receiver_);
  const unsigned taken = receive_.receive(*receiver_, budget_);
  if (taken == 0) return;
  end_->request();
  if (taken == budget_ && receive_.ready()) {
    counters_.budget_exits.add();
    again_.ask(index_);
  }
}

bool QueuePair::look_before_sleep() noexcept {
  if (work_waits()) {
    counters_.idle_finds.add();
    log::poll();
    work();
    return true;
  }
  if (transmit_.pending() == 0) watchdog_.cancel();  // nothing is on its way: a sleeping core is not to be woken for that
  return false;
}

void QueuePair::end_of_event() noexcept {
  if (held_) [[unlikely]]
    return;
  receive_.refill();
  transmit_.flush();
  if (transmit_.pending() != 0 && !watchdog_.pending()) {
    progress_seen_ = transmit_.progress();
    watchdog_.arm(hang_period, [this] { watch(); });
  }
  // In an event of its own: the stack may answer a token with the next frame.
  if (transmit_.deliverable()) again_.ask(index_);
}

void QueuePair::watch() noexcept {
  transmit_.reclaim();
  if (transmit_.deliverable()) again_.ask(index_);
  if (transmit_.pending() == 0 || held_) return;
  // Without a link the card keeps frames for as long as that takes.
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
