// SPDX-License-Identifier: BSL-1.0
// SYN cookies (RFC 4987, 3.6).
//
// Each half-open connection holds memory. A flood of SYNs from addresses that do not exist therefore fills any backlog. While the backlog
// is full, the machine answers SYNs without making half-open connections. The SYN-ACK's sequence number, the cookie, consists of one bit of
// coarse time, an index of the peer's MSS and a keyed hash of 28 bits. The hash covers the addresses and ports, the peer's sequence number,
// the time and the index. The peer's ACK returns the cookie.
//
// If the peer uses timestamps, the lowest six bits of the SYN-ACK's timestamp carry the peer's window scale, SACK-permitted and ECN, and
// the ACK's echo returns them. Without timestamps the connection has none of them. A peer that forges these bits only chooses its own
// options.
#pragma once

#include <cstdint>
#include <optional>

#include "net/tcp/connection_table.hpp"
#include "net/tcp/options.hpp"

namespace neap::net::tcp {

/// A cookie is valid in the time step in which it was made, and in the next one.
constexpr std::uint64_t cookie_step_us = 64'000'000;

/// Returns the sequence number of the SYN-ACK. `key`: as in the SYN. `mss`: the peer's, at least 1.
[[nodiscard]] std::uint32_t make_cookie(const SegmentAddresses& key, std::uint32_t peer_sequence, std::uint16_t mss,
                                        std::uint64_t now_us) noexcept;
[[nodiscard]] std::uint32_t make_cookie(const SegmentAddresses6& key, std::uint32_t peer_sequence, std::uint16_t mss,
                                        std::uint64_t now_us) noexcept;
/// Checks the ACK of a SYN-ACK: `cookie` is its acknowledgement number minus 1, `peer_sequence` its sequence number minus 1. Returns the
/// peer's MSS, rounded down to a value of the table.
[[nodiscard]] std::optional<std::uint16_t> check_cookie(const SegmentAddresses& key, std::uint32_t peer_sequence, std::uint32_t cookie,
                                                        std::uint64_t now_us) noexcept;
[[nodiscard]] std::optional<std::uint16_t> check_cookie(const SegmentAddresses6& key, std::uint32_t peer_sequence, std::uint32_t cookie,
                                                        std::uint64_t now_us) noexcept;

/// Options that a timestamp carries.
struct CookieOptions {
  std::uint8_t window_shift = 0;
  bool window_scale = false, sack_permitted = false, ecn = false;
  friend bool operator==(const CookieOptions&, const CookieOptions&) = default;
};

/// Returns the latest timestamp that is not later than `timestamp` and carries `options`. It is at most 63 ms earlier.
[[nodiscard]] std::uint32_t cookie_timestamp(std::uint32_t timestamp, const CookieOptions& options) noexcept;
[[nodiscard]] CookieOptions cookie_options(std::uint32_t echo) noexcept;

/// The use of cookies by one listener on one core.
class CookieUse {
 public:
  /// The backlog is full, so a cookie answers a SYN.
  void overflowed(std::uint64_t now_us) noexcept { overflow_us_ = now_us + 1; }
  /// A cookie was sent.
  void sent(std::uint64_t now_us) noexcept { sent_us_ = now_us + 1; }
  /// True if every SYN has to be answered by a cookie: for 4 s after the backlog was last full. A repeated SYN must not make a half-open
  /// connection. The peer may have acknowledged the cookie already, and a SYN-ACK with another sequence number would cause a reset.
  [[nodiscard]] bool only_cookies(std::uint64_t now_us) const noexcept {
    return overflow_us_ != 0 && now_us - overflow_us_ + 1 < 4'000'000;
  }
  /// True if an ACK may return a valid cookie. An ACK costs no hash otherwise.
  [[nodiscard]] bool may_return(std::uint64_t now_us) const noexcept { return sent_us_ != 0 && now_us - sent_us_ + 1 < 2 * cookie_step_us; }

 private:
  std::uint64_t overflow_us_ = 0, sent_us_ = 0;  // 0: never; otherwise the time plus 1
};

}  // namespace neap::net::tcp
