// SPDX-License-Identifier: BSL-1.0
// The card's own counters.
//
// The card's counters clear themselves when read and saturate at all ones, so `collect` adds them to totals of 64 bits. Reading costs a
// register access for each counter, so the driver reads them only on request, never while it handles frames.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "drivers/ixgbe/register_access.hpp"
#include "kernel/counter.hpp"

namespace neap::ixgbe {

/// The counts of one core's queues. Numbers of bytes exclude the FCS.
struct QueueStatistics {
  std::uint64_t received = 0;        ///< QPRC
  std::uint64_t received_bytes = 0;  ///< QBRC
  std::uint64_t sent = 0;            ///< QPTC
  std::uint64_t sent_bytes = 0;      ///< QBTC
  std::uint64_t no_descriptor = 0;   ///< QPRDC: dropped because the queue's ring was empty or the queue off
};

/// The counts of the port. The members count frames unless stated otherwise. Numbers of bytes are for good frames, with headers and FCS.
struct PortStatistics {
  std::uint64_t received = 0, received_bytes = 0, sent = 0, sent_bytes = 0;
  std::uint64_t missed = 0;  ///< RXMPC, all buffers: dropped because the packet buffer was full
  std::uint64_t crc_errors = 0;
  std::uint64_t illegal_bytes = 0;  ///< frames with an illegal symbol
  std::uint64_t length_errors = 0, undersize = 0, fragments = 0, oversize = 0, jabbers = 0;
  std::uint64_t local_faults = 0;   ///< faults of the link that this end detected
  std::uint64_t remote_faults = 0;  ///< faults of the link that the other end reported
  // Numbers of pause frames: XOFF received (also counted while `flow_control` ignores them), XOFF sent, XON sent.
  std::uint64_t pauses = 0, pauses_sent = 0, resumes_sent = 0;
};

/// Totals since start (82599 datasheet 8.2.3.23).
struct Statistics {
  PortStatistics port;
  std::array<QueueStatistics, 16> queues{};  ///< by core

  /// Adds the card's counts since the last call. MUST have one caller at a time. Errors: `closed` (card gone); then nothing has changed.
  Result<void> collect(Registers registers) noexcept;
  /// Adds and returns the frames that one queue dropped since the last call (QPRDC).
  std::uint64_t collect_dropped(Registers registers, unsigned queue) noexcept;
  /// Emits the counts of the queues of `core`; without `core`, those of the port and the sums over all queues.
  void report(std::optional<unsigned> core, const Emit& emit) const;
};

}  // namespace neap::ixgbe
