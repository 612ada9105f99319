// SPDX-License-Identifier: BSL-1.0
// The control queue: commands to the device, one at a time (5.1.6.5).
//
// A command is rare, so its end is found by polling, and the queue has no interrupt. After a command without an answer the queue is not
// used again, because a late answer would be taken for that of the next command.
#pragma once

#include "drivers/virtio/counters.hpp"
#include "drivers/virtio/specification.hpp"
#include "drivers/virtio_bus/ring.hpp"
#include "kernel/async_mutex.hpp"
#include "kernel/message_bytes.hpp"
#include "kernel/task.hpp"

namespace neap::virtio {

/// A command and its data, as the device reads them.
using CommandBytes = MessageBytes<512>;

class ControlQueue {
 public:
  /// Commands are counted in `counters`, which MUST outlive the queue.
  explicit ControlQueue(CardCounters& counters) noexcept : counters_(counters) {}

  /// Errors: as those of `Ring::allocate`.
  [[nodiscard]] Result<void> prepare(std::uint32_t descriptors);
  /// Sends one command and waits for its end. MUST be called on the core that opened the device. Errors: `device` (refused), `timeout`,
  /// `closed` (an earlier command had no answer).
  [[nodiscard]] task<Result<void>> send(CommandBytes command);
  [[nodiscard]] Ring& ring() noexcept { return ring_; }
  /// The device is gone or was reset. Commands in progress end within 100 us.
  void close() noexcept { closed_ = true; }
  /// True while a task is in `send`. The queue MUST NOT be destroyed then.
  [[nodiscard]] bool busy() noexcept { return in_use_.held(); }

 private:
  Ring ring_;
  DmaMemory memory_;
  AsyncMutex in_use_;
  std::uint16_t next_ = 0;
  bool closed_ = false;
  CardCounters& counters_;
};

}  // namespace neap::virtio
