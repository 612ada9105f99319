// SPDX-License-Identifier: BSL-1.0
// The card's own counts.
//
// They clear themselves when read and stop at all ones, so whoever reads them must keep them: `collect` adds them to totals of 64 bits. It
// costs a register read for each counter, so it is done when somebody asks, never with traffic.
#pragma once

#include <array>
#include <cstdint>

#include "drivers/ixgbe/register_access.hpp"

namespace neap::ixgbe {

/// What one core's queues were counted as. Bytes are those of frames without FCS.
struct QueueStatistics {
  std::uint64_t received = 0;               ///< QPRC
  std::uint64_t received_bytes = 0;         ///< QBRC
  std::uint64_t transmitted = 0;            ///< QPTC
  std::uint64_t transmitted_bytes = 0;      ///< QBTC
  std::uint64_t dropped_no_descriptor = 0;  ///< QPRDC
};

/// Totals since start (82599 datasheet 8.2.3.23). Frames unless said otherwise.
struct Statistics {
  std::uint64_t received_good = 0;
  std::uint64_t received_good_bytes = 0;  ///< headers and FCS included
  std::uint64_t received_broadcast = 0;
  std::uint64_t received_multicast = 0;
  std::uint64_t transmitted_good = 0;
  std::uint64_t transmitted_good_bytes = 0;
  std::uint64_t transmitted_broadcast = 0;
  std::uint64_t transmitted_multicast = 0;
  std::uint64_t crc_errors = 0;
  std::uint64_t illegal_byte_errors = 0;
  std::uint64_t error_bytes = 0;
  std::uint64_t length_errors = 0;
  std::uint64_t undersize = 0;
  std::uint64_t fragments = 0;
  std::uint64_t oversize = 0;
  std::uint64_t jabbers = 0;
  std::uint64_t mac_local_faults = 0;
  std::uint64_t mac_remote_faults = 0;
  std::uint64_t pause_received = 0;
  std::uint64_t pause_transmitted = 0;
  std::uint64_t missed_packet_buffer_full = 0;  ///< RXMPC, all buffers
  std::array<QueueStatistics, 16> queues{};     ///< by core

  /// Adds what the card counted since the last time. One caller at a time.
  void collect(Registers registers) noexcept;
};

}  // namespace neap::ixgbe
