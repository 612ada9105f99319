// SPDX-License-Identifier: BSL-1.0
// Time-outs of the stack. One kernel timer serves all connections, and another one lwIP. Both are armed only while needed, so an idle core
// takes no periodic interrupt.
#include <algorithm>
#include <chrono>
#include <utility>

#include "kernel/panic.hpp"
#include "lwip/dhcp.h"
#include "lwip/etharp.h"
#include "lwip/igmp.h"
#include "lwip/ip4_frag.h"
#include "lwip/prot/dhcp.h"
#include "net/stack.hpp"

namespace neap::net {

namespace {

constexpr std::uint64_t arp_ageing_ms = 30 * ARP_TMR_INTERVAL;  // 30 s; entries expire after 300 s
/// Time-outs that may be late are delayed to a multiple of this, so that several time-outs share one wake-up.
constexpr std::uint64_t coarse_ms = 15'000;

std::uint64_t boot_ms() noexcept {
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

// --- TCP ---------------------------------------------------------------------------------------------------------------------------------
void Stack::read_clock() noexcept {
  now_us_ = static_cast<std::uint64_t>(BootClock::now().time_since_epoch().count()) / 1000;
  const std::uint64_t now = now_us_ / 1000;
  now_ms_ = static_cast<std::uint32_t>(now);
  end_of_event_.request();  // `end_of_event` forgets the time
  if (times_.arp_ages <= now) [[unlikely]]
    age_neighbours(now);
}

void Stack::note_neighbours_age() noexcept {
  times_.arp_ages = times_.arp_last == 0 ? StackTimes::never : std::min(times_.arp, times_.arp_last + arp_ageing_ms);
}

void Stack::arm_earlier(ConnectionState& connection, std::uint64_t due_us) noexcept {
  timers_.arm(connection, due_us);
  if (due_us < tcp_timer_due_us_) arm_tcp_timer();
}

void Stack::arm_tcp_timer() noexcept {
  const std::uint64_t due_us = timers_.due_us();
  if (due_us == tcp::TimerHeap::never) return;
  tcp_timer_due_us_ = due_us;
  const std::uint64_t now = now_us();
  tcp_timer_.arm(std::chrono::microseconds(due_us > now ? due_us - now : 0), [this] { tcp_timer_fired(); });
}

void Stack::tcp_timer_fired() noexcept {
  require(this_core() == core_, "a stack's timer fires on its own core", core_);
  tcp_timer_due_us_ = tcp::TimerHeap::never;
  const std::uint64_t now = now_us();
  while (tcp::TimerNode* const node = timers_.first()) {
    if (node->due_us > now) break;
    timers_.cancel(*node);
    ConnectionState::of(*node).on_timer(now);
  }
  arm_tcp_timer();
}

void Stack::enter_time_wait(const ConnectionKey& key, const tcp::TimeWaitNumbers& numbers) noexcept {
  const auto add = [&](const auto& own) {
    auto& table = time_wait_of(own);
    const std::uint64_t replaced = table.counters().replaced;
    static_cast<void>(table.add(own, numbers, now_us()));
    counters_.time_waits_replaced.add(table.counters().replaced - replaced);
  };
  std::visit(add, key);
  if (times_.time_wait == StackTimes::never) note_time_wait();
}

void Stack::note_time_wait() noexcept {
  // 0: the table is empty.
  std::uint64_t due_us = time_wait_.due_us(now_us());
  if (const std::uint64_t due6_us = time_wait6_.due_us(now_us()); due6_us != 0) due_us = due_us == 0 ? due6_us : std::min(due_us, due6_us);
  if (due_us == 0) return;
  times_.time_wait = (due_us / 1000 + coarse_ms) / coarse_ms * coarse_ms;
  want_checks();
}

// --- Neighbours --------------------------------------------------------------------------------------------------------------------------
/// Calls the ARP timer once for each period that the core has slept through, so that entries age by the clock.
void Stack::age_neighbours(std::uint64_t now) noexcept {
  if (times_.arp_ages > now) return;
  const std::uint64_t passed = (now - times_.arp_last) / ARP_TMR_INTERVAL;
  const std::uint64_t ticks = std::min<std::uint64_t>(passed, ARP_MAXAGE + 1);
  for (std::uint64_t tick = 0; tick < ticks; ++tick) etharp_tmr();
  times_.arp = StackTimes::never;
  times_.arp_last += passed * ARP_TMR_INTERVAL;
  note_neighbours_age();
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

void Stack::wake_lease_clock() noexcept { count_lease_seconds(boot_ms()); }

// --- The one timer -----------------------------------------------------------------------------------------------------------------------

// Runs at the end of every event in which lwIP may have run, so it makes few checks: the ARP table is checked only after it was used.
void Stack::update_timers() noexcept {
  const dhcp* const lease = primary() ? netif_dhcp_data(&netif_) : nullptr;
  const bool dhcp_waits = lease != nullptr && lease->request_timeout > 0;
  const std::uint8_t dhcp_state = lease != nullptr ? lease->state : std::uint8_t{DHCP_STATE_OFF};
  const bool changed = times_.time_wait < timer_due_ms_ || dhcp_waits != (times_.dhcp_fine != StackTimes::never) ||
                       dhcp_state != times_.dhcp_state || arp_dirty_ || groups_dirty_ || ipv6_.due_ms() != times_.ipv6 ||
                       (times_.reassembly_until != 0 && times_.reassembly == StackTimes::never);
  if (!changed) return;

  const std::uint64_t now = boot_ms();
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
    // Entries without an open request need no wake-up; `read_clock` ages them before their next use.
    times_.arp = activity == 2 ? std::min<std::uint64_t>(times_.arp, now + ARP_TMR_INTERVAL) : StackTimes::never;
    note_neighbours_age();
  }

  const std::uint64_t due =
      std::min({times_.time_wait, times_.arp, times_.reassembly, times_.groups, times_.ipv6, times_.dhcp_fine, times_.dhcp_coarse});
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
  const std::uint64_t now = boot_ms();
  timer_due_ms_ = StackTimes::never;
  arp_dirty_ = true;  // makes `update_timers` arm the timer again at the end of the event
  want_checks();
  age_neighbours(now);
  if (times_.time_wait <= now) {
    time_wait_.expire(now_us(), ~0U);
    time_wait6_.expire(now_us(), ~0U);
    times_.time_wait = StackTimes::never;
    note_time_wait();
  }
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

Waits Stack::waits() noexcept {
  const std::uint64_t now = boot_ms();
  const auto left = [now](std::uint64_t due) -> std::uint64_t { return due == StackTimes::never ? 0 : due > now ? due - now : 1; };
  std::uint64_t tcp_ms = 0, connections_ms = left(times_.time_wait);
  if (tcp::TimerNode* const first = timers_.first(); first != nullptr) {
    const std::uint64_t first_ms = left((first->due_us + 999) / 1000);
    if (ConnectionState::of(*first).has_work()) {
      tcp_ms = first_ms;
    } else {
      connections_ms = connections_ms == 0 ? first_ms : std::min(connections_ms, first_ms);
    }
  }
  return {.tcp_ms = tcp_ms,
          .connections_ms = connections_ms,
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

u32_t sys_now(void) { return static_cast<u32_t>(neap::net::boot_ms()); }
void sys_init(void) {}
}
