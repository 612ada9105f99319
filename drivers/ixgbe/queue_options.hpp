// SPDX-License-Identifier: BSL-1.0
// How the queues of all cores, and the card around them, are set up, and which of it may change while frames flow.
//
// The card takes most of it over when a queue is enabled. To change that, the queue is stopped for a moment, in which the card drops (and
// counts) what arrives for it: see Card::change.
#pragma once

#include <cstdint>

#include "kernel/error.hpp"
#include "kernel/policy.hpp"

namespace neap::ixgbe {

struct QueueOptions {
  std::uint32_t receive_descriptors = 512;
  std::uint32_t transmit_descriptors = 512;
  std::uint32_t receive_buffers = 2048;  ///< ring and what the stack may hold, 2 KiB each; more if the ring needs them
  std::uint32_t frame_bytes_max = 1514;
  std::uint32_t budget_descriptors = 64;  ///< receive descriptors an event may take
  // 8.2.3.9.10: fetch when fewer than the first are on the card and the second are waiting; write back when the third are done.
  std::uint32_t prefetch_threshold = 32;
  std::uint32_t host_threshold = 8;
  std::uint32_t write_back_threshold = 0;
  std::uint32_t head_write_back = 0;  ///< 1: the ring's head is written to one place, not DD into each descriptor (7.2.3.5.2)
  std::uint32_t coalescing = 0;       ///< 1: RSC (7.1.12)
  std::uint32_t vlan = 0;             ///< of all frames; 0: they have no tag (7.4)
  // The card's, at any time.
  std::uint32_t promiscuous = 0;
  std::uint32_t flow_control = 0;  ///< as `policy::Setting::flow_control` counts (3.7.7)
  std::uint32_t cache_hints = 0;   ///< 1: DCA (7.5)

  static constexpr std::uint32_t write_back_threshold_max = 8;
  /// Coalesced frames wait for the interval's end; one not longer than the card's own delay of 4 us (GPIE.RSC_DELAY) is not allowed.
  static constexpr std::uint32_t coalescing_itr_us_min = 6;

  /// A frame that finds no descriptor is dropped, and does not wait for one in front of other cores' frames.
  [[nodiscard]] constexpr bool drops() const noexcept { return (flow_control & policy::flow_control_transmit) == 0; }

  /// Null if the card takes this together with an interval of `itr_us` on some queue; otherwise why it does not.
  [[nodiscard]] const char* wrong(std::uint32_t itr_us) const noexcept;
};

/// A setting of the policy that is one of these numbers.
struct QueueSetting {
  policy::Setting setting;
  std::uint32_t QueueOptions::* value;
  bool while_running;  ///< needs no queue stopped
  bool in_preset;      ///< not the network's own affair
};
constexpr QueueSetting queue_settings[] = {
    {policy::Setting::rx_ring, &QueueOptions::receive_descriptors, false, true},
    {policy::Setting::tx_ring, &QueueOptions::transmit_descriptors, false, true},
    {policy::Setting::rx_budget, &QueueOptions::budget_descriptors, true, true},
    {policy::Setting::prefetch_threshold, &QueueOptions::prefetch_threshold, false, true},
    {policy::Setting::host_threshold, &QueueOptions::host_threshold, false, true},
    {policy::Setting::write_back_threshold, &QueueOptions::write_back_threshold, false, true},
    {policy::Setting::head_write_back, &QueueOptions::head_write_back, false, true},
    {policy::Setting::rsc, &QueueOptions::coalescing, false, true},
    {policy::Setting::vlan, &QueueOptions::vlan, false, false},
    {policy::Setting::promiscuous, &QueueOptions::promiscuous, true, false},
    {policy::Setting::flow_control, &QueueOptions::flow_control, true, false},
    {policy::Setting::dca, &QueueOptions::cache_hints, true, true},
};

}  // namespace neap::ixgbe
