// SPDX-License-Identifier: BSL-1.0
// The card's own counts.
//
// They clear themselves when read and stop at all ones, so whoever reads them must keep them: `collect` adds them to totals of 64 bits. It
// costs a register read for each counter, so it is done when somebody asks, never with traffic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "drivers/ixgbe/register_access.hpp"
#include "kernel/counter.hpp"

namespace neap::ixgbe {

/// What one core's queues were counted as. Bytes are those of frames without FCS.
struct QueueStatistics {
  std::uint64_t received = 0;        ///< QPRC
  std::uint64_t received_bytes = 0;  ///< QBRC
  std::uint64_t sent = 0;            ///< QPTC
  std::uint64_t sent_bytes = 0;      ///< QBTC
  std::uint64_t no_descriptor = 0;   ///< QPRDC: dropped, as the queue's ring was empty, or the queue off
};

/// What passed the port, and what did not. Frames unless said otherwise; bytes are those of good frames, headers and FCS included.
struct PortStatistics {
  std::uint64_t received = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t missed = 0;  ///< RXMPC, all buffers: dropped, as the packet buffer was full
  std::uint64_t crc_errors = 0;
  std::uint64_t illegal_bytes = 0;  ///< frames with an illegal symbol
  std::uint64_t length_errors = 0;
  std::uint64_t undersize = 0;
  std::uint64_t fragments = 0;
  std::uint64_t oversize = 0;
  std::uint64_t jabbers = 0;
  std::uint64_t local_faults = 0;   ///< of the link, as this end saw it
  std::uint64_t remote_faults = 0;  ///< and as the other end said
  // Pause frames: XOFF received, which are counted and obeyed only if `flow_control` says so; XOFF and XON sent.
  std::uint64_t pauses = 0;
  std::uint64_t pauses_sent = 0;
  std::uint64_t resumes_sent = 0;
};

/// Totals since start (82599 datasheet 8.2.3.23).
struct Statistics {
  PortStatistics port;
  std::array<QueueStatistics, 16> queues{};  ///< by core

  /// Adds what the card counted since the last time. One caller at a time. Errors: `closed` (card gone); then nothing has changed.
  Result<void> collect(Registers registers) noexcept;
  /// Adds frames that one queue dropped since the last time (QPRDC), and returns them.
  std::uint64_t collect_dropped(Registers registers, unsigned queue) noexcept;
  /// One core's queues, or the port and all queues together.
  void tell(std::optional<unsigned> core, const Emit& emit) const;
};

}  // namespace neap::ixgbe
