// SPDX-License-Identifier: BSL-1.0
// SYN cookies (RFC 4987, 3.6).
//
// Each half-open connection holds memory for 20 s. A flood of SYNs from addresses that do not exist therefore fills any backlog. While the
// backlog is full, the machine answers SYNs without making half-open connections. The SYN-ACK's sequence number, the cookie, consists of a
// coarse time, an index of the peer's MSS and a keyed hash. The hash covers the connection's addresses and ports, the peer's sequence
// number, the time and the index. The peer's ACK returns the cookie. A connection made from a cookie has neither window scaling nor SACK.
#include <array>
#include <cstring>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/siphash.hpp"
#include "kernel/timer.hpp"
#include "lwip/ip.h"
#include "lwip/tcp.h"
#include "net/lwip/lwip_hooks.h"
#include "net/stack.hpp"

namespace neap::net {

namespace {

// A cookie, from the highest bit: 5 bits of time, 3 bits of MSS index, 24 bits of hash.
constexpr unsigned time_shift = 27, mss_shift = 24;
constexpr std::uint32_t time_mask = 31, mss_mask = 7, hash_mask = 0xFFFFFF;
/// A cookie is valid in the time step in which it was made, and in the next one.
constexpr std::uint64_t step_ms = 64'000;
/// During this time after the backlog was last full, every SYN is answered by a cookie. A repeated SYN must not make a half-open
/// connection: the peer may have acknowledged the cookie already, and a SYN-ACK with another sequence number would cause a reset.
constexpr std::uint64_t cookies_only_ms = 4'000;

/// The cookie holds the index of the largest value that is not above the peer's MSS. An MSS below 536 is rare; it also gets index 0.
constexpr std::array<std::uint16_t, mss_mask + 1> mss_values{536, 768, 1024, 1220, 1340, 1400, 1440, 1460};

std::uint64_t now_ms() noexcept { return static_cast<std::uint64_t>(BootClock::now().time_since_epoch() / std::chrono::milliseconds(1)); }

std::uint32_t make(std::uint16_t local_port, std::uint16_t peer_port, std::uint32_t peer_sequence, std::uint32_t time,
                   std::uint32_t mss) noexcept {
  static const SipKey key{.low = machine::random_bits(), .high = machine::random_bits()};
  const std::uint32_t top = (time & time_mask) << time_shift | mss << mss_shift;
  std::array<std::uint8_t, 20> input;
  std::memcpy(input.data(), &ip_current_src_addr()->addr, 4);
  std::memcpy(input.data() + 4, &ip_current_dest_addr()->addr, 4);
  std::memcpy(input.data() + 8, &local_port, 2);
  std::memcpy(input.data() + 10, &peer_port, 2);
  std::memcpy(input.data() + 12, &peer_sequence, 4);
  std::memcpy(input.data() + 16, &top, 4);
  return top | (static_cast<std::uint32_t>(siphash(key, input)) & hash_mask);
}

}  // namespace

struct CookieCallbacks {
  static Stack::Listener& of(const tcp_pcb_listen& listener) noexcept { return *static_cast<Stack::Listener*>(listener.callback_arg); }

  static bool make_cookie(const tcp_pcb_listen& listener, std::uint16_t peer_port, std::uint32_t peer_sequence, std::uint16_t mss,
                          std::uint32_t& cookie) noexcept {
    std::uint32_t index = mss_mask;
    while (index > 0 && mss_values[index] > mss) --index;
    require(listener.callback_arg != nullptr, "lwIP's listener belongs to a listener of the stack", listener.local_port);
    const std::uint64_t now = now_ms();
    of(listener).cookie_sent_ms = now;
    if (listener.accepts_pending >= listener.backlog) of(listener).overflow_ms = now;
    cookie = make(listener.local_port, peer_port, peer_sequence, static_cast<std::uint32_t>(now / step_ms), index);
    Stack::here()->counters().cookies_sent.add();
    return true;
  }

  static bool cookies_only(const tcp_pcb_listen& listener) noexcept {
    const std::uint64_t overflow = of(listener).overflow_ms;
    return overflow != 0 && now_ms() - overflow < cookies_only_ms;
  }

  static std::uint16_t check_cookie(const tcp_pcb_listen& listener, std::uint16_t peer_port, std::uint32_t peer_sequence,
                                    std::uint32_t cookie) noexcept {
    const std::uint64_t now = now_ms();
    const std::uint64_t sent = of(listener).cookie_sent_ms;
    if (sent == 0 || now - sent > 2 * step_ms) return 0;
    const std::uint32_t index = cookie >> mss_shift & mss_mask;
    const auto time = static_cast<std::uint32_t>(now / step_ms);
    for (const std::uint32_t made : {time, time - 1}) {
      if (cookie != make(listener.local_port, peer_port, peer_sequence, made, index)) continue;
      Stack::here()->counters().cookies_accepted.add();
      return mss_values[index];
    }
    Stack::here()->counters().cookies_rejected.add();
    return 0;
  }
};

}  // namespace neap::net

extern "C" {

int neap_lwip_make_cookie(const tcp_pcb_listen* listener, u16_t peer_port, u32_t peer_sequence, u16_t mss, u32_t* cookie) {
  return neap::net::CookieCallbacks::make_cookie(*listener, peer_port, peer_sequence, mss, *cookie) ? 1 : 0;
}

int neap_lwip_cookies_only(const tcp_pcb_listen* listener) { return neap::net::CookieCallbacks::cookies_only(*listener) ? 1 : 0; }

u16_t neap_lwip_check_cookie(const tcp_pcb_listen* listener, u16_t peer_port, u32_t peer_sequence, u32_t cookie) {
  return neap::net::CookieCallbacks::check_cookie(*listener, peer_port, peer_sequence, cookie);
}

void neap_lwip_half_open(int change) { neap::net::Stack::here()->count_half_open(change); }
}
