// SPDX-License-Identifier: BSL-1.0
// The time-outs of a core's stack that do not belong to a connection (stack_timers.cpp). All of them share one timer of the kernel, so an
// idle core sleeps as long as possible. Internal to net/.
#pragma once

#include <cstdint>

namespace neap::net {

/// The times at which a stack wakes its core for each purpose (stack_timers.cpp), in milliseconds of the boot clock.
struct StackTimes {
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  std::uint64_t time_wait = never;   ///< the end of connections in TIME-WAIT, in coarse steps
  std::uint64_t arp = never;         ///< every 1 s while a request is unanswered
  std::uint64_t arp_last = 0;        ///< the ages of ARP entries are correct up to this time
  std::uint64_t arp_ages = never;    ///< an entry's age changes the next time; needs no wake-up
  std::uint64_t reassembly = never;  ///< every 1 s for 16 s after a fragment
  std::uint64_t reassembly_until = 0;
  std::uint64_t groups = never;       ///< every 100 ms while a report of a multicast group is delayed
  std::uint64_t ipv6 = never;         ///< what the engine of IPv6 waits for
  std::uint64_t dhcp_fine = never;    ///< every 500 ms while a request is unanswered
  std::uint64_t dhcp_coarse = never;  ///< the renewal or the end of the lease
  std::uint64_t dhcp_counted = 0;     ///< lwIP's count of the lease's seconds is correct up to this time
  std::uint8_t dhcp_state = 0;        ///< lwIP's DHCP state at the end of the last event
};

}  // namespace neap::net
