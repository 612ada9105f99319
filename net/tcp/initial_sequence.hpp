// SPDX-License-Identifier: BSL-1.0
// Initial sequence numbers and timestamp offsets that a third party cannot predict.
//
// A forger with a connection's sequence numbers can send bytes into it. RFC 6528: the number is a clock of 4 us plus a keyed hash of
// the addresses and ports. A connection that is opened again continues above its old numbers, and the numbers of one connection do not
// reveal those of another. Timestamps (RFC 7323) use a clock of 1 ms plus an offset from the same hash. The offset hides the machine's
// uptime. It is the same for each connection with these addresses and ports, so a later connection has later timestamps (RFC 6191).
#pragma once

#include <cstdint>

#include "net/tcp/connection_table.hpp"

namespace neap::net::tcp {

struct InitialNumbers {
  std::uint32_t sequence = 0;          ///< the number of the SYN
  std::uint32_t timestamp_offset = 0;  ///< `timestamp_ms` of the connection is the clock plus this
};

/// `key`: as in a received segment. `now_us`: the boot clock.
[[nodiscard, gnu::noinline]] InitialNumbers initial_numbers(const SegmentAddresses& key, std::uint64_t now_us) noexcept;
[[nodiscard, gnu::noinline]] InitialNumbers initial_numbers(const SegmentAddresses6& key, std::uint64_t now_us) noexcept;

/// The timestamp of a segment that is sent at `now_us`. The clock of 1 ms wraps after 49 days.
[[nodiscard]] constexpr std::uint32_t timestamp_ms(std::uint64_t now_us, std::uint32_t offset) noexcept {
  return static_cast<std::uint32_t>(now_us / 1000) + offset;
}

}  // namespace neap::net::tcp
