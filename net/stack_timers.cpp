// SPDX-License-Identifier: BSL-1.0
// lwIP's time-outs. One kernel timer serves all of them and is armed only while needed, so an idle core takes no periodic interrupt.
#include <algorithm>
#include <chrono>
#include <utility>

#include "kernel/panic.hpp"
#include "lwip/dhcp.h"
#include "lwip/etharp.h"
#include "lwip/igmp.h"
#include "lwip/ip4_frag.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/prot/dhcp.h"
#include "net/stack.hpp"

namespace neap::net {

namespace {

constexpr std::uint64_t arp_ageing_ms = 30 * ARP_TMR_INTERVAL;  // 30 s; entries expire after 300 s
/// Time-outs that may be late are delayed to a multiple of this, so that several time-outs share one wake-up.
constexpr std::uint64_t coarse_ms = 15'000;

std::uint64_t now_ms() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(BootClock::now().time_since_epoch()).count());
}

/// Starts or stops a periodic time-out.
void want(std::uint64_t& due, bool wanted, std::uint64_t now, std::uint64_t period_ms) noexcept {
  if (!wanted) {
    due = StackTimes::never;
  } else if (due == StackTimes::never) {
    due = now + period_ms;
  }
}

}  // namespace

// --- TCP's ticks -------------------------------------------------------------------------------------------------------------------------
//
// lwIP counts its time in calls of tcp_tmr(), one every 50 ms. Each call handles delayed acknowledgements. Every second call (a "slow" tick
// of 100 ms) handles everything else. These ticks start when TCP has work pending and stop when no connection needs them. While they are
// stopped, `tcp_ticks` (lwIP's count of slow ticks) does not change. So the next event first adds the missed slow ticks to `tcp_ticks`.
// Round trips are measured only while ticks run.

namespace {

constexpr std::uint64_t slow_tick_ms = TCP_SLOW_INTERVAL;

/// True if a time-out of the connection may become due within seconds, even if no frame arrives and the application does nothing.
bool needs_ticks(const tcp_pcb& pcb) noexcept {
  const bool waits_long = pcb.state == ESTABLISHED || pcb.state == CLOSE_WAIT || (pcb.state == FIN_WAIT_2 && pcb.pollinterval == 0);
  return !waits_long || pcb.unacked != nullptr || pcb.unsent != nullptr || pcb.ooseq != nullptr || pcb.persist_backoff > 0 ||
         (pcb.flags & (TF_ACK_DELAY | TF_ACK_NOW | TF_CLOSEPEND | TF_NAGLEMEMERR)) != 0;
}

/// Returns the number of slow ticks until tcp_slowtmr() regards `pcb` as idle for longer than `limit_ms`.
std::uint64_t ticks_until(const tcp_pcb& pcb, std::uint64_t limit_ms) noexcept {
  const std::uint64_t limit = limit_ms / slow_tick_ms + 1;
  const std::uint32_t idle = tcp_ticks - pcb.tmr;
  return limit > idle ? limit - idle : 1;
}

/// Returns the number of slow ticks until the next time-out of an idle connection; `never` if there is none. All connections MUST be idle.
std::uint64_t ticks_until_due() noexcept {
  std::uint64_t ticks = StackTimes::never;
  for (const tcp_pcb* pcb = tcp_active_pcbs; pcb != nullptr; pcb = pcb->next) {
    if (!ip_get_option(pcb, SOF_KEEPALIVE) || (pcb->state != ESTABLISHED && pcb->state != CLOSE_WAIT)) continue;
    const std::uint64_t probes = pcb->keep_cnt_sent * std::uint64_t{TCP_KEEPINTVL_DEFAULT};
    ticks = std::min(ticks, ticks_until(*pcb, TCP_KEEPIDLE_DEFAULT + probes));
  }
  for (const tcp_pcb* pcb = tcp_tw_pcbs; pcb != nullptr; pcb = pcb->next) ticks = std::min(ticks, ticks_until(*pcb, 2 * TCP_MSL));
  return ticks;
}

}  // namespace

/// Adds the slow ticks that have passed since `tcp_counted`. Called for times in which the periodic ticks were stopped or late.
void Stack::make_up_ticks(std::uint64_t now) noexcept {
  if (now <= times_.tcp_counted) return;
  const std::uint64_t ticks = (now - times_.tcp_counted) / slow_tick_ms;
  tcp_ticks += static_cast<u32_t>(ticks);
  times_.tcp_counted += ticks * slow_tick_ms;
}

void Stack::end_pause(bool for_tcp) noexcept {
  const std::uint64_t now = now_ms();
  make_up_ticks(now);
  age_neighbours(now);
  if (!for_tcp) return;
  times_.tcp_ticking = true;
  times_.tcp = now + TCP_TMR_INTERVAL;
  want_checks();
}

void Stack::tcp_tick(std::uint64_t now) noexcept {
  note_lwip_use();
  if (frames_in_flight_ != 0) sender_->reap();  // lwIP does not retransmit a segment that the card holds
  if (times_.tcp_ticking) {
    make_up_ticks(now - TCP_TMR_INTERVAL);  // adds the ticks that a late call missed, so that ages follow the clock
    times_.tcp_counted += TCP_TMR_INTERVAL;
    tcp_tmr();
  } else {
    make_up_ticks(now);
    times_.tcp_counted += slow_tick_ms;  // tcp_slowtmr() adds this tick to `tcp_ticks`
    tcp_slowtmr();
  }
  if (!blocked_.empty()) retry_blocked_ = true;

  bool ticks = !blocked_.empty();
  for (const tcp_pcb* pcb = tcp_active_pcbs; pcb != nullptr && !ticks; pcb = pcb->next) ticks = needs_ticks(*pcb);
  times_.tcp_ticking = ticks;
  if (ticks) {
    times_.tcp = now + TCP_TMR_INTERVAL;
    return;
  }
  const std::uint64_t due = ticks_until_due();
  times_.tcp = due == StackTimes::never ? due : (now + due * slow_tick_ms + coarse_ms - 1) / coarse_ms * coarse_ms;
}

// --- Neighbours --------------------------------------------------------------------------------------------------------------------------
/// Calls the ARP timer once for each period that the core has slept through, so that entries age by the clock.
void Stack::age_neighbours(std::uint64_t now) noexcept {
  if (times_.arp_last == 0 || (times_.arp > now && now - times_.arp_last < arp_ageing_ms)) return;
  const std::uint64_t passed = (now - times_.arp_last) / ARP_TMR_INTERVAL;
  const std::uint64_t ticks = std::min<std::uint64_t>(passed, ARP_MAXAGE + 1);
  for (std::uint64_t tick = 0; tick < ticks; ++tick) etharp_tmr();
  times_.arp = StackTimes::never;
  times_.arp_last += passed * ARP_TMR_INTERVAL;
  arp_dirty_ = true;
  want_checks();
}

// --- The lease ---------------------------------------------------------------------------------------------------------------------------
//
// lwIP counts a lease's time in calls of dhcp_coarse_tmr(), one a second. Nearly all of these calls only change counters. Here one addition
// replaces them. The addition precedes each call that also sends a request or ends the lease, and each function that sets the counters.

namespace {

/// Returns the seconds until dhcp_coarse_tmr() sends a request or ends the lease; `never` without a lease.
std::uint64_t seconds_until_lease_acts(const dhcp& lease) noexcept {
  std::uint64_t seconds = StackTimes::never;
  if (lease.t0_timeout > lease.lease_used) seconds = lease.t0_timeout - lease.lease_used;
  if (lease.t1_renew_time > 0) seconds = std::min<std::uint64_t>(seconds, lease.t1_renew_time);
  if (lease.t2_rebind_time > 0) seconds = std::min<std::uint64_t>(seconds, lease.t2_rebind_time);
  return seconds;
}

/// Replaces `seconds` calls of dhcp_coarse_tmr() that only change counters. `seconds` MUST be less than `seconds_until_lease_acts`.
void count_lease(dhcp& lease, std::uint64_t seconds) noexcept {
  require(seconds < seconds_until_lease_acts(lease), "counting a lease's time does not skip a time-out", seconds);
  const auto count = static_cast<dhcp_timeout_t>(seconds);
  if (lease.t0_timeout > 0) lease.lease_used += count;
  if (lease.t1_renew_time > 0) lease.t1_renew_time -= count;
  if (lease.t2_rebind_time > 0) lease.t2_rebind_time -= count;
}

}  // namespace

void Stack::count_lease_seconds(std::uint64_t now) noexcept {
  if (times_.dhcp_state == DHCP_STATE_OFF || now < times_.dhcp_counted) return;
  std::uint64_t seconds = (now - times_.dhcp_counted) / DHCP_COARSE_TIMER_MSECS;
  times_.dhcp_counted += seconds * DHCP_COARSE_TIMER_MSECS;
  // At most a few dozen iterations: each one halves the time to T2 or to the lease's end, or is the last iteration.
  while (seconds > 0) {
    dhcp* const lease = netif_dhcp_data(&netif_);
    if (lease == nullptr) return;
    const std::uint64_t until = seconds_until_lease_acts(*lease);
    if (seconds < until) {
      if (until != StackTimes::never) count_lease(*lease, seconds);
      return;
    }
    count_lease(*lease, until - 1);
    dhcp_coarse_tmr();
    seconds -= until;
  }
}

void Stack::wake_lease_clock() noexcept { count_lease_seconds(now_ms()); }

// --- The one timer -----------------------------------------------------------------------------------------------------------------------

// Runs at the end of every event in which lwIP may have run, so it makes few checks: the ARP table is checked only after it was used.
void Stack::update_timers() noexcept {
  const dhcp* const lease = primary() ? netif_dhcp_data(&netif_) : nullptr;
  const bool dhcp_waits = lease != nullptr && lease->request_timeout > 0;
  const std::uint8_t dhcp_state = lease != nullptr ? lease->state : std::uint8_t{DHCP_STATE_OFF};
  const bool changed = times_.tcp < timer_due_ms_ || dhcp_waits != (times_.dhcp_fine != StackTimes::never) ||
                       dhcp_state != times_.dhcp_state || arp_dirty_ || groups_dirty_ || ipv6_.due_ms() != times_.ipv6 ||
                       (times_.reassembly_until != 0 && times_.reassembly == StackTimes::never);
  if (!changed) return;

  const std::uint64_t now = now_ms();
  times_.ipv6 = ipv6_.due_ms();
  want(times_.dhcp_fine, dhcp_waits, now, DHCP_FINE_TIMER_MSECS);
  if (times_.dhcp_state == DHCP_STATE_OFF) times_.dhcp_counted = now;
  times_.dhcp_state = dhcp_state;
  const std::uint64_t seconds = dhcp_state == DHCP_STATE_OFF ? StackTimes::never : seconds_until_lease_acts(*lease);
  times_.dhcp_coarse = seconds == StackTimes::never ? seconds : times_.dhcp_counted + seconds * DHCP_COARSE_TIMER_MSECS;
  want(times_.reassembly, times_.reassembly_until != 0, now, IP_TMR_INTERVAL);
  if (std::exchange(groups_dirty_, false)) want(times_.groups, reports_wait(), now, IGMP_TMR_INTERVAL);
  if (arp_dirty_) {
    arp_dirty_ = false;
    const unsigned activity = etharp_activity();
    if (activity == 0) {
      times_.arp_last = 0;
    } else if (times_.arp_last == 0) {
      times_.arp_last = now;
    }
    // Entries without an open request need no wake-up; `end_pause` ages them before their next use.
    times_.arp = activity == 2 ? std::min<std::uint64_t>(times_.arp, now + ARP_TMR_INTERVAL) : StackTimes::never;
  }

  const std::uint64_t due =
      std::min({times_.tcp, times_.arp, times_.reassembly, times_.groups, times_.ipv6, times_.dhcp_fine, times_.dhcp_coarse});
  if (due == timer_due_ms_) return;
  timer_due_ms_ = due;
  if (due == StackTimes::never) {
    timer_.cancel();
  } else {
    timer_.arm(std::chrono::milliseconds(due > now ? due - now : 0), [this] { timer_fired(); });
  }
}

void Stack::timer_fired() noexcept {
  require(this_core() == core_, "a stack's timer fires on its own core", core_);
  const std::uint64_t now = now_ms();
  timer_due_ms_ = StackTimes::never;
  arp_dirty_ = true;  // makes `update_timers` arm the timer again at the end of the event
  want_checks();
  age_neighbours(now);
  if (times_.tcp <= now) tcp_tick(now);
  if (times_.reassembly <= now) {
    // Ticks that were missed are run too: no tick runs after `reassembly_until`, so a datagram that is not freed here is never freed.
    const std::uint64_t passed = (now - times_.reassembly) / IP_TMR_INTERVAL + 1;
    for (std::uint64_t tick = std::min<std::uint64_t>(passed, IP_REASS_MAXAGE + 1); tick > 0; --tick) ip_reass_tmr();
    times_.reassembly += passed * IP_TMR_INTERVAL;
    if (now >= times_.reassembly_until) {
      times_.reassembly_until = 0;
      times_.reassembly = StackTimes::never;
    }
  }
  if (times_.groups <= now) {
    igmp_tmr();
    times_.groups = StackTimes::never;
    groups_dirty_ = true;
  }
  if (times_.ipv6 <= now) ipv6_.run_timers();
  if (std::min(times_.dhcp_fine, times_.dhcp_coarse) <= now) count_lease_seconds(now);
  if (times_.dhcp_fine <= now) {
    times_.dhcp_fine = now + DHCP_FINE_TIMER_MSECS;
    dhcp_fine_tmr();
  }
}

Waits Stack::waits() const noexcept {
  const std::uint64_t now = now_ms();
  const auto left = [now](std::uint64_t due) -> std::uint64_t { return due == StackTimes::never ? 0 : due > now ? due - now : 1; };
  return {.tcp_ms = times_.tcp_ticking ? left(times_.tcp) : 0,
          .connections_ms = times_.tcp_ticking ? 0 : left(times_.tcp),
          .neighbours_ms = left(times_.arp),
          .reassembly_ms = left(times_.reassembly),
          .groups_ms = left(times_.groups),
          .dhcp_ms = left(times_.dhcp_fine),
          .lease_ms = left(times_.dhcp_coarse),
          .ipv6_ms = left(ipv6_.due_ms())};
}

Waits waits() noexcept { return Stack::here() != nullptr ? Stack::here()->waits() : Waits{}; }

}  // namespace neap::net

// --- Functions that lwIP expects from its port -------------------------------------------------------------------------------------------
extern "C" {

u32_t sys_now(void) { return static_cast<u32_t>(neap::net::now_ms()); }
void sys_init(void) {}

void tcp_timer_needed(void) {
  if (neap::net::Stack* const stack = neap::net::Stack::here(); stack != nullptr) stack->want_checks();
}
}
