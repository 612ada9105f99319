// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/queue_pair.hpp"

namespace neap::virtio {

void QueuePair::abandon() noexcept {
  set_link(false);
  if (fault() == nullptr) fault_.store("virtio: the device is closed", std::memory_order_release);
  receive_.empty();
  transmit_.empty();
  if (attached()) transmit_.deliver(*receiver_);
}

void QueuePair::want_interrupts(bool on) noexcept {
  receive_.want_interrupts(on);
  // Frames that arrived meanwhile raised no interrupt.
  prepare_sleep();
  if (on && frames_pending()) repeat_.ask(index_);
}

void QueuePair::take_fault() noexcept {
  if (fault() != nullptr) return;
  counters_.wrong_entries.add();
  fault_.store(receive_.fault() != nullptr ? receive_.fault() : transmit_.fault(), std::memory_order_release);
  set_link(false);
  report_failure();
}

}  // namespace neap::virtio
