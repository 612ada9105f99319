// SPDX-License-Identifier: BSL-1.0
// Functions that lwIP calls: random numbers, initial sequence numbers, failed assertions, counters of refused segments and DHCP answers.
#include <array>
#include <cstring>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/siphash.hpp"
#include "kernel/timer.hpp"
#include "lwip/dhcp.h"
#include "lwip/opt.h"
#include "net/lwip/lwip_hooks.h"
#include "net/stack.hpp"

namespace {

/// Returns the machine's key, a random number that the first call makes.
const neap::SipKey& secret() {
  static const neap::SipKey key{.low = neap::machine::random_bits(), .high = neap::machine::random_bits()};
  return key;
}

}  // namespace

extern "C" {

void neap_lwip_assertion_failed(const char* message, const char*, int line) { neap::panic(message, static_cast<std::uint64_t>(line)); }
uint32_t neap_lwip_random(void) { return static_cast<uint32_t>(neap::machine::random_bits()); }
void neap_lwip_segment_refused(void) { neap::net::Stack::here()->counters().segments_refused.add(); }
void neap_lwip_challenged(void) { neap::net::Stack::here()->counters().challenge_acks.add(); }

void neap_lwip_dhcp_event(int event) {
  auto& counters = neap::net::Stack::here()->counters();
  switch (static_cast<lwip_dhcp_event>(event)) {
    case LWIP_DHCP_RENEWED:
      counters.dhcp_renewals.add();
      break;
    case LWIP_DHCP_NAK:
      counters.dhcp_naks.add();
      break;
    case LWIP_DHCP_REFUSED:
      counters.dhcp_refused.add();
      break;
  }
}

// RFC 6528: the number is a clock of 4 us plus a keyed hash of the connection's addresses and ports. If a connection is opened again, its
// sequence numbers continue above the old ones. The numbers of one connection do not reveal those of another.
u32_t neap_lwip_initial_sequence(const ip_addr_t* local, u16_t local_port, const ip_addr_t* remote, u16_t remote_port) {
  std::array<std::uint8_t, 12> names;
  std::memcpy(names.data(), &local->addr, 4);
  std::memcpy(names.data() + 4, &remote->addr, 4);
  std::memcpy(names.data() + 8, &local_port, 2);
  std::memcpy(names.data() + 10, &remote_port, 2);
  const auto clock = static_cast<std::uint64_t>(neap::BootClock::now().time_since_epoch() / std::chrono::microseconds(4));
  return static_cast<u32_t>(clock + neap::siphash(secret(), names));
}
}
