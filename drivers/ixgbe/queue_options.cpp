// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/queue_options.hpp"

namespace neap::ixgbe {

const char* QueueOptions::why_refused(std::uint32_t itr_us) const noexcept {
  constexpr std::uint32_t thresholds_max = 40;  // descriptors that the card holds for a queue
  if (prefetch_threshold + write_back_threshold > thresholds_max) return "the card takes no more than 40 of PTHRESH and WTHRESH together";
  if (write_back_threshold != 0 && head_write_back != 0) return "the card takes head write-back with WTHRESH 0 alone";
  if (write_back_threshold > 1 && itr_us == 0) return "WTHRESH above 1 needs an itr, after which fewer are written back";
  if (write_back_threshold > 1 && transmit_interrupt == 0)
    return "WTHRESH above 1 needs tx_interrupt=on, after whose itr fewer are written back";
  if (coalescing != 0 && itr_us < coalescing_itr_us_min) return "RSC needs an itr of 6us or more: frames wait for each other 4us";
  return nullptr;
}

}  // namespace neap::ixgbe
