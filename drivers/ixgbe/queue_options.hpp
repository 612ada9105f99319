// SPDX-License-Identifier: BSL-1.0
// How the queues of all cores are set up, and which of it may change while frames flow.
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

  static constexpr std::uint32_t write_back_threshold_max = 8;
  /// Coalesced frames wait for the interval's end; one not longer than the card's own delay of 4 us (GPIE.RSC_DELAY) is not allowed.
  static constexpr std::uint32_t coalescing_itr_us_min = 6;

  /// Null if the card takes this together with an interval of `itr_us` on some queue; otherwise why it does not.
  [[nodiscard]] const char* wrong(std::uint32_t itr_us) const noexcept;
};

/// A setting of the policy that is one of these numbers.
struct QueueSetting {
  policy::Setting setting;
  std::uint32_t QueueOptions::* value;
  bool while_running;  ///< needs no queue stopped
};
constexpr QueueSetting queue_settings[] = {
    {policy::Setting::rx_ring, &QueueOptions::receive_descriptors, false},
    {policy::Setting::tx_ring, &QueueOptions::transmit_descriptors, false},
    {policy::Setting::rx_budget, &QueueOptions::budget_descriptors, true},
    {policy::Setting::prefetch_threshold, &QueueOptions::prefetch_threshold, false},
    {policy::Setting::host_threshold, &QueueOptions::host_threshold, false},
    {policy::Setting::write_back_threshold, &QueueOptions::write_back_threshold, false},
    {policy::Setting::head_write_back, &QueueOptions::head_write_back, false},
    {policy::Setting::rsc, &QueueOptions::coalescing, false},
};

}  // namespace neap::ixgbe
