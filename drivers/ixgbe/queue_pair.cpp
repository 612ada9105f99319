// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/queue_pair.hpp"

#include "kernel/panic.hpp"

namespace neap::ixgbe {

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
  require(held_ || !attached(), "ixgbe: a queue pair is emptied that is not held", index_);
  const std::uint32_t unsent = transmit_.empty();
  if (attached()) {
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

bool QueuePair::detach() noexcept {
  transmit_.hold(held_);  // ends the run of alike frames, so that the next frame is checked and refused
  return QueuePairBase::detach();
}

// Called for the first frame of an event and after the end of a run (transmit_queue.hpp). Only here the link's state is checked. Most
// events continue the run of the last event, which takes half of the instructions of `transmit_checked`.
TransmitResult QueuePair::transmit_any(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  if (pieces.size() == 1 && attached() && link_up()) [[likely]] {
    transmit_.reopen_run();
    if (transmit_.transmit_alike(pieces, offload, token)) [[likely]] {
      end_->request();
      return {};
    }
  }
  return transmit_checked(pieces, offload, token);
}

}  // namespace neap::ixgbe
