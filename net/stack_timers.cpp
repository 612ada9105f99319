// SPDX-License-Identifier: BSL-1.0
// lwIP's time-outs, by one timer of the kernel's, armed only while somebody needs it: an idle core takes no periodic interrupt.
#include <algorithm>
#include <chrono>

#include "lwip/dhcp.h"
#include "lwip/etharp.h"
#include "lwip/ip4_frag.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/prot/dhcp.h"
#include "net/stack.hpp"

namespace neap::net {

namespace {

constexpr std::uint64_t arp_waiting_ms = ARP_TMR_INTERVAL;
constexpr std::uint64_t arp_ageing_ms = 30 * ARP_TMR_INTERVAL;  // entries live 300 s: so coarse is fine enough

std::uint64_t now_ms() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(BootClock::now().time_since_epoch()).count());
}

/// Starts or stops a periodic moment.
void want(std::uint64_t& due, bool wanted, std::uint64_t now, std::uint64_t period_ms) noexcept {
  if (!wanted) {
    due = StackTimes::never;
  } else if (due == StackTimes::never) {
    due = now + period_ms;
  }
}

}  // namespace

// Runs at the end of every event of the stack, so it looks at little: the ARP table only when it was used.
void Stack::update_timers() noexcept {
  const bool tcp = tcp_active_pcbs != nullptr || tcp_tw_pcbs != nullptr;
  const dhcp* const lease = primary() ? netif_dhcp_data(&netif_) : nullptr;
  const bool dhcp_waits = lease != nullptr && lease->request_timeout > 0;
  const bool dhcp_holds = lease != nullptr && lease->state != DHCP_STATE_OFF;
  const bool changed = tcp != (times_.tcp != StackTimes::never) || dhcp_waits != (times_.dhcp_fine != StackTimes::never) ||
                       dhcp_holds != (times_.dhcp_coarse != StackTimes::never) || arp_dirty_ ||
                       (times_.reassembly_until != 0 && times_.reassembly == StackTimes::never);
  if (!changed) return;

  const std::uint64_t now = now_ms();
  want(times_.tcp, tcp, now, TCP_TMR_INTERVAL);
  want(times_.dhcp_fine, dhcp_waits, now, DHCP_FINE_TIMER_MSECS);
  want(times_.dhcp_coarse, dhcp_holds, now, DHCP_COARSE_TIMER_MSECS);
  want(times_.reassembly, times_.reassembly_until != 0, now, IP_TMR_INTERVAL);
  if (arp_dirty_) {
    arp_dirty_ = false;
    const unsigned activity = etharp_activity();
    const std::uint64_t period = activity == 2 ? arp_waiting_ms : arp_ageing_ms;
    if (activity == 0) {
      times_.arp = StackTimes::never;
      times_.arp_last = 0;
    } else {
      if (times_.arp_last == 0) times_.arp_last = now;
      times_.arp = std::min(times_.arp, now + period);
    }
  }

  const std::uint64_t due = std::min({times_.tcp, times_.arp, times_.reassembly, times_.dhcp_fine, times_.dhcp_coarse});
  if (due == timer_due_ms_) return;
  timer_due_ms_ = due;
  if (due == StackTimes::never) {
    timer_.cancel();
  } else {
    timer_.arm(std::chrono::milliseconds(due > now ? due - now : 0), [this] { timer_fired(); });
  }
}

void Stack::timer_fired() noexcept {
  const std::uint64_t now = now_ms();
  timer_due_ms_ = StackTimes::never;
  arp_dirty_ = true;  // so that the end of the event arms the timer anew
  want_event_end();
  if (times_.tcp <= now) {
    times_.tcp = now + TCP_TMR_INTERVAL;
    tcp_tmr();
    if (!blocked_.empty()) retry_blocked_ = true;
  }
  if (times_.arp <= now) {
    times_.arp = StackTimes::never;
    const std::uint64_t last = times_.arp_last;
    // A core that slept through several periods makes up for them, so that entries age by the clock.
    const std::uint64_t ticks = std::min<std::uint64_t>((now - last) / ARP_TMR_INTERVAL, ARP_MAXAGE + 1);
    for (std::uint64_t tick = 0; tick < ticks; ++tick) etharp_tmr();
    times_.arp_last = now - (now - last) % ARP_TMR_INTERVAL;
  }
  if (times_.reassembly <= now) {
    ip_reass_tmr();
    times_.reassembly = now + IP_TMR_INTERVAL;
    if (now >= times_.reassembly_until) {
      times_.reassembly_until = 0;
      times_.reassembly = StackTimes::never;
    }
  }
  if (times_.dhcp_fine <= now) {
    times_.dhcp_fine = now + DHCP_FINE_TIMER_MSECS;
    dhcp_fine_tmr();
  }
  if (times_.dhcp_coarse <= now) {
    times_.dhcp_coarse = now + DHCP_COARSE_TIMER_MSECS;
    dhcp_coarse_tmr();
  }
}

}  // namespace neap::net

// --- What lwIP asks of its port
// ------------------------------------------------------------------------------------------------------------

extern "C" {

u32_t sys_now(void) { return static_cast<u32_t>(neap::net::now_ms()); }

void sys_init(void) {}

void tcp_timer_needed(void) {
  if (neap::net::Stack* const stack = neap::net::Stack::here(); stack != nullptr) stack->want_event_end();
}
}
