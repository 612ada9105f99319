// SPDX-License-Identifier: BSL-1.0
// The settings of TCP, which apply to connections that begin after a change.
#pragma once

#include <cstdint>

namespace neap::net::tcp {

enum class CongestionControl : std::uint8_t {
  cubic,  ///< RFC 9438
  reno,   ///< RFC 5681
  dctcp,  ///< RFC 8257; needs ECN, and is Reno without it
};

struct Settings {
  CongestionControl congestion = CongestionControl::cubic;
  bool ecn = false;                           ///< use explicit congestion notification if the peer does, RFC 3168
  bool pacing = false;                        ///< spread a window's segments over the round trip
  bool sack = true;                           ///< selective acknowledgements, RFC 2018
  bool timestamps = true;                     ///< RFC 7323
  std::uint32_t rto_min_us = 200'000;         ///< RFC 6298 says 1 s; Linux has 200 ms; at least 5 ms
  std::uint32_t keep_alive_s = 7200;          ///< silence before the first keep-alive probe; 0: no probes
  std::uint32_t zero_window_end_s = 0;        ///< a connection whose peer's window is closed for so long is reset; 0: never
  std::uint32_t receive_bytes_max = 8 << 20;  ///< bound of the autotuned receive window; fills 50 ms at 1 Gbit/s
  std::uint32_t send_bytes_max = 8 << 20;     ///< bound of the bytes that are sent and not acknowledged
};

/// This core's copy of the settings, which are the same on all cores.
inline constinit thread_local Settings settings{};

/// Copies the values of policy's table (kernel/policy.hpp) to this core's `settings`. Called when a core's stack starts, and on each core
/// after a change.
void load_settings() noexcept;

}  // namespace neap::net::tcp
