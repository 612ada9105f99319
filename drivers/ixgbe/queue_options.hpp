// SPDX-License-Identifier: BSL-1.0
// Options of the card and of all its queues. settings.cpp has a setting for most of them, so that they can change while the machine runs.
//
// Most options take effect when a queue is enabled. To change one of these, the driver stops the queue for a moment. Meanwhile the card
// drops and counts arriving frames (Card::change).
#pragma once

#include <cstdint>

namespace neap::ixgbe {

/// The number of queues that RSS can name: an entry of its table has four bits.
constexpr unsigned receive_queues_max = 16;
/// A value of `QueueOptions::flow_control` is the sum of these: 1 if the card obeys pause frames, 2 if it sends them.
constexpr std::uint32_t flow_control_receive = 1;
constexpr std::uint32_t flow_control_transmit = 2;
/// A flow to steer is a destination port, plus `steer_udp` for UDP; 0 means no flow.
constexpr std::uint32_t steer_udp = 1U << 16;

struct QueueOptions {
  std::uint32_t receive_descriptors = 512, transmit_descriptors = 512;
  /// Buffers of 2 KiB for the ring and for frames in the stack; raised if the ring needs more. 0: `buffers_beyond_ring` more than the ring.
  std::uint32_t receive_buffers = 0;
  /// The stack holds at most 512 buffers and copies further payload (net::Stack::held_buffers_hard_max). The frames of one event and the
  /// pieces of coalesced ones come in addition.
  static constexpr std::uint32_t buffers_beyond_ring = 512 + 256;
  std::uint32_t frame_bytes_max = 1514;
  std::uint32_t budget_descriptors = 64;  ///< receive descriptors that one event may take
  // 8.2.3.9.10: the card fetches descriptors if it holds fewer than PTHRESH and at least HTHRESH wait in the ring. It writes descriptors
  // back if WTHRESH of them are done.
  std::uint32_t prefetch_threshold = 32, host_threshold = 8, write_back_threshold = 0;
  std::uint32_t head_write_back = 0;  ///< 1: the card writes the ring's head to one word, not DD to each descriptor (7.2.3.5.2)
  std::uint32_t coalescing = 1;       ///< 1: RSC (7.1.12)
  std::uint32_t vlan = 0;             ///< the VLAN tag of all frames; 0: none (7.4)
  // The following options take effect at any time.
  std::uint32_t promiscuous = 0;
  std::uint32_t flow_control = 0;        ///< 3.7.7
  std::uint32_t cache_hints = 0;         ///< 1: DCA (7.5)
  std::uint32_t transmit_interrupt = 0;  ///< 1: TX completions interrupt cores that receive, too

  static constexpr std::uint32_t write_back_threshold_max = 8;
  /// With RSC, frames wait for the end of the moderation interval, which MUST be longer than the card's own delay of 4 us (GPIE.RSC_DELAY).
  static constexpr std::uint32_t coalescing_itr_us_min = 6;

  /// True if the card drops a frame for which no descriptor is free. Otherwise that frame blocks other cores' frames in the packet buffer.
  [[nodiscard]] constexpr bool drops() const noexcept { return (flow_control & flow_control_transmit) == 0; }

  /// Returns null if the card accepts this combination of options with an interval of `itr_us` on a queue; otherwise the reason of the
  /// refusal. Ranges are not checked here, but by each option's row in the table of settings.
  [[nodiscard]] const char* why_refused(std::uint32_t itr_us) const noexcept;
};

}  // namespace neap::ixgbe
