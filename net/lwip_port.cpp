// SPDX-License-Identifier: BSL-1.0
// Functions that lwIP calls: random numbers, failed assertions, counters of DHCP answers.
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "lwip/dhcp.h"
#include "lwip/opt.h"
#include "net/lwip/lwip_hooks.h"
#include "net/stack.hpp"

extern "C" {

void neap_lwip_assertion_failed(const char* message, const char*, int line) { neap::panic(message, static_cast<std::uint64_t>(line)); }
uint32_t neap_lwip_random(void) { return static_cast<uint32_t>(neap::machine::random_bits()); }

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
}
