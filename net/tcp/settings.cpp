// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/settings.hpp"

#include "kernel/core.hpp"
#include "kernel/policy.hpp"

namespace neap::net::tcp {

void load_settings() noexcept {
  using policy::Setting;
  constexpr std::uint32_t bytes_per_kib = 1024;
  const auto value_of = [](Setting setting) { return static_cast<std::uint32_t>(policy::value_of(setting, this_core())); };
  settings.congestion = static_cast<CongestionControl>(value_of(Setting::tcp_congestion));
  settings.ecn = value_of(Setting::tcp_ecn) != 0;
  settings.pacing = value_of(Setting::tcp_pacing) != 0;
  settings.rto_min_us = value_of(Setting::tcp_rto_min);
  settings.keep_alive_s = value_of(Setting::tcp_keep_alive);
  settings.zero_window_end_s = value_of(Setting::tcp_zero_window);
  settings.receive_bytes_max = value_of(Setting::tcp_receive) * bytes_per_kib;
  settings.send_bytes_max = value_of(Setting::tcp_send) * bytes_per_kib;
}

}  // namespace neap::net::tcp
