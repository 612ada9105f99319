// SPDX-License-Identifier: BSL-1.0
// The largest segment that a path carries (RFC 1191, RFC 4821, RFC 5927).
//
// A router that cannot forward a packet with DF reports the size that it can (ICMP type 3, code 4). Such a message may be forged, to make a
// connection send tiny segments. So it counts only if it quotes a sequence number in flight, if its size is smaller than that of the
// segments sent, and not below 552 bytes. If segments of that size were acknowledged before, it counts only after a time-out (RFC
// 5927, 7.2). A router may also drop long packets in silence. After three time-outs of full segments in a row (six, if the peer's MSS
// makes them short), the size is lowered until segments get through. Ten minutes later the connection tries the larger size again.
#pragma once

#include <array>
#include <cstdint>

#include "kernel/siphash.hpp"
#include "net/tcp/sequence.hpp"

namespace neap::net::tcp {

constexpr std::uint16_t mtu_min_4 = 552;   ///< smaller reports are taken as this (as Linux, which names it min_pmtu)
constexpr std::uint16_t mtu_min_6 = 1280;  ///< RFC 8200, 5

/// The state of a connection. Sizes are those of IP packets, in bytes. 16 bytes of each connection.
class PathMtu {
 public:
  /// `mtu`: the largest packet that the link and the peer's MSS permit. `cached`: a size known for the destination, or 0.
  void start(std::uint16_t mtu, std::uint16_t cached, std::uint16_t mtu_min, std::uint32_t now_s) noexcept;
  /// The largest packet that the connection sends.
  [[nodiscard]] std::uint16_t mtu() const noexcept { return mtu_; }

  /// An ICMP message quotes a packet of this connection with the sequence number `sequence`. `reported`: the next hop's MTU, or 0 from a
  /// router that predates RFC 1191; `quoted_bytes` is then the length of the quoted packet. `first_unacknowledged` and `send_next`: the
  /// numbers in flight. Returns true if `mtu()` is lower now: the segments in flight that are longer are then sent again, which is no sign
  /// of congestion.
  [[nodiscard]] bool reported_too_big(std::uint16_t reported, std::uint16_t quoted_bytes, std::uint32_t sequence,
                                      std::uint32_t first_unacknowledged, std::uint32_t send_next, std::uint32_t now_s) noexcept;
  /// The retransmission time-out of a segment in a packet of `bytes` bytes. Returns true if `mtu()` is lower now.
  [[nodiscard]] bool timed_out(std::uint32_t bytes, std::uint32_t now_s) noexcept;
  /// A segment in a packet of `bytes` bytes was acknowledged. A segment that the card cuts up counts as a full one. 4 instructions nearly
  /// always.
  void acknowledged(std::uint32_t bytes) noexcept {
    if (bytes > acknowledged_ || timeouts_ != 0) [[unlikely]]
      acknowledged_more(bytes);
  }
  /// True if the connection may try its larger size again: `raise` then does so.
  [[nodiscard]] bool raise_due(std::uint32_t now_s) const noexcept {
    return mtu_ < mtu_max_ && static_cast<std::int32_t>(now_s - raise_s_) >= 0;
  }
  void raise(std::uint32_t now_s) noexcept;

 private:
  /// True for a packet that is not much shorter than `mtu_`: its loss may be due to its length.
  [[nodiscard]] bool is_full(std::uint32_t bytes) const noexcept { return bytes >= std::uint32_t{mtu_} - mtu_ / 8U; }
  void acknowledged_more(std::uint32_t bytes) noexcept;
  void lower(std::uint16_t mtu, std::uint32_t now_s) noexcept;

  std::uint16_t mtu_ = 0, mtu_max_ = 0, mtu_min_ = 0;
  std::uint16_t acknowledged_ = 0;  // the longest packet that got through with the current `mtu_`
  std::uint16_t pending_ = 0;       // a reported size that counts after a time-out; 0: none
  std::uint8_t timeouts_ = 0;       // successive time-outs of full packets
  std::uint32_t raise_s_ = 0;
};
static_assert(sizeof(PathMtu) == 16);

/// The sizes known for destinations, so that a new connection need not find them again. One for each core. A destination replaces the
/// oldest of the four entries that it may use, so an attacker that causes many entries makes others forget theirs, and no more.
class PathMtuCache {
 public:
  static constexpr std::uint32_t lifetime_s = 600;

  PathMtuCache() noexcept;
  /// Returns 0 if no size is known. `destination`: an IPv4 address, or a hash of an IPv6 address.
  [[nodiscard]] std::uint16_t find(std::uint64_t destination, std::uint32_t now_s) const noexcept;
  void set(std::uint64_t destination, std::uint16_t mtu, std::uint32_t now_s) noexcept;
  void forget(std::uint64_t destination) noexcept;
  [[nodiscard]] std::uint64_t replaced() const noexcept { return replaced_; }

 private:
  struct Entry {
    std::uint64_t destination = 0;
    std::uint32_t set_s = 0;
    std::uint16_t mtu = 0;  // 0: unused
  };
  static constexpr std::size_t ways = 4, sets = 32;

  [[nodiscard]] std::size_t set_of(std::uint64_t destination) const noexcept;

  SipKey key_;
  std::array<std::array<Entry, ways>, sets> entries_{};
  std::uint64_t replaced_ = 0;
};

}  // namespace neap::net::tcp
