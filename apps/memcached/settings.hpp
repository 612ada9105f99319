// SPDX-License-Identifier: BSL-1.0
// What the command line says about the service, and constants that the server reports. options.cpp reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace neap::memcached {

/// The protocol of new connections. `automatic`: the first byte decides.
enum class Binding : std::uint8_t { automatic, text, binary };

/// The names in `stats settings` are those of memcached (protocol.txt, "Settings statistics").
struct Settings {
  std::string version;  ///< as the `version` command reports it; without spaces or line ends
  std::string address;
  std::uint16_t port = 11211;
  std::uint16_t udp_port = 0;  ///< 0: no UDP

  // Limits (limits.hpp).
  unsigned connections_max = 16384;    ///< `maxconns`
  unsigned peer_connections_max = 0;   ///< open connections of one address; 0: no limit
  unsigned idle_timeout_s = 0;         ///< 0: none
  unsigned requests_per_event = 1000;  ///< `reqs_per_event`

  Binding binding = Binding::automatic;
  bool evictions = true;
  bool crawler = true;  ///< at the start; `Service::crawler_on` is the present state
  bool flush_enabled = true, dump_enabled = true, watch_enabled = true, shutdown_enabled = false;
  bool detail_enabled = false;          ///< `stats detail` counts from the start
  char key_prefix_end = ':';            ///< `stat_key_prefix`: ends the part of a key by which `stats detail` counts
  std::uint32_t connection_secret = 0;  ///< MUST be random: hides the addresses from which ids of connections are made
  std::uint32_t watcher_buffer_bytes = 256 << 10;
};

}  // namespace neap::memcached
