// SPDX-License-Identifier: BSL-1.0
// Addresses of machines and of connections, for both versions of IP.
//
// Applications, limits and lists compare addresses and use them as keys, whichever version a peer uses. One type for both versions saves
// each of them a second path. `Address` has the 16 bytes of an IPv6 address; an IPv4 address is stored in the mapped form
// ::ffff:a.b.c.d (RFC 4291, 2.5.5.2), which never appears on the wire. The machine has one interface, so a link-local address needs no
// zone (RFC 4007).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel/panic.hpp"

namespace neap::net {

/// An IPv4 address in host byte order.
struct Ipv4Address {
  std::uint32_t value = 0;
  /// Parses "A.B.C.D"; no other characters are accepted.
  [[nodiscard]] static std::optional<Ipv4Address> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Ipv4Address, Ipv4Address) = default;
};

/// An IPv4 or IPv6 address. The default is the unspecified address `::`.
class Address {
 public:
  using Bytes = std::array<std::uint8_t, 16>;

  constexpr Address() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): an IPv4 address is an address
  constexpr Address(Ipv4Address v4) noexcept : low_(mapped | v4.value) {}
  /// `high` and `low`: the two halves as numbers, so fe80::1 is {0xFE80'0000'0000'0000, 1}.
  constexpr Address(std::uint64_t high, std::uint64_t low) noexcept : high_(high), low_(low) {}
  /// Reads the 16 bytes of an IPv6 address in network byte order.
  [[nodiscard]] static constexpr Address read(const std::byte* at) noexcept { return {read_half(at), read_half(at + 8)}; }
  constexpr void write(std::byte* at) const noexcept {
    write_half(at, high_);
    write_half(at + 8, low_);
  }

  /// Parses "A.B.C.D" or an IPv6 address in any form of RFC 4291, 2.2. A zone and a prefix length are refused.
  [[nodiscard]] static std::optional<Address> parse(std::string_view text);
  static constexpr std::size_t text_bytes_max = 39;
  /// Writes the canonical text of RFC 5952 into `text` and returns the used part. Allocates nothing.
  std::string_view put_text(std::span<char, text_bytes_max> text) const noexcept;
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] constexpr bool is_v4() const noexcept { return high_ == 0 && low_ >> 32 == mapped >> 32; }
  /// MUST be called for an IPv4 address only.
  [[nodiscard]] constexpr Ipv4Address v4() const noexcept {
    require(is_v4(), "an IPv4 address is read from an IPv4 address");
    return {static_cast<std::uint32_t>(low_)};
  }
  [[nodiscard]] constexpr std::uint64_t high() const noexcept { return high_; }
  [[nodiscard]] constexpr std::uint64_t low() const noexcept { return low_; }

  /// True for `::` and 0.0.0.0.
  [[nodiscard]] constexpr bool is_unspecified() const noexcept { return high_ == 0 && (low_ == 0 || low_ == mapped); }
  /// True for ::1 and 127.0.0.0/8.
  [[nodiscard]] constexpr bool is_loopback() const noexcept { return high_ == 0 && (low_ == 1 || (is_v4() && (low_ >> 24 & 0xFF) == 127)); }
  /// True for ff00::/8 and 224.0.0.0/4.
  [[nodiscard]] constexpr bool is_multicast() const noexcept { return high_ >> 56 == 0xFF || (is_v4() && (low_ >> 28 & 0xF) == 0xE); }
  /// True for fe80::/10 and 169.254.0.0/16.
  [[nodiscard]] constexpr bool is_link_local() const noexcept {
    return high_ >> 54 == 0xFE80 >> 6 || (is_v4() && (low_ >> 16 & 0xFFFF) == 0xA9FE);
  }
  /// True for fc00::/7 (RFC 4193).
  [[nodiscard]] constexpr bool is_unique_local() const noexcept { return high_ >> 57 == 0xFC >> 1; }
  /// The scope of an IPv6 multicast address (RFC 4291, 2.7); for a unicast address 2 (link-local) or 14 (global).
  [[nodiscard]] constexpr unsigned scope() const noexcept {
    if (high_ >> 56 == 0xFF) return static_cast<unsigned>(high_ >> 48 & 0xF);
    return is_link_local() || is_loopback() ? 2 : 14;
  }
  /// The group ff02::1:ffXX:XXXX to which neighbour solicitations for an IPv6 address are sent (RFC 4291, 2.7.1).
  [[nodiscard]] constexpr Address solicited_node() const noexcept {
    return {0xFF02'0000'0000'0000, 0x0000'0001'FF00'0000 | (low_ & 0xFF'FFFF)};
  }
  [[nodiscard]] constexpr bool is_solicited_node() const noexcept {
    return high_ == 0xFF02'0000'0000'0000 && low_ >> 24 == 0x0000'0001'FF00'0000 >> 24;
  }
  /// True if the first `bits` bits are those of `prefix`. An IPv4 address has 96 bits in front of its own.
  [[nodiscard]] constexpr bool is_in(const Address& prefix, unsigned bits) const noexcept { return common_bits(prefix) >= bits; }
  [[nodiscard]] constexpr unsigned common_bits(const Address& other) const noexcept {
    if (high_ != other.high_) return static_cast<unsigned>(__builtin_clzll(high_ ^ other.high_));
    return low_ == other.low_ ? 128 : 64 + static_cast<unsigned>(__builtin_clzll(low_ ^ other.low_));
  }
  /// The address with all bits behind the first `bits` set to zero.
  [[nodiscard]] constexpr Address network(unsigned bits) const noexcept {
    return {high_ & ones(bits), low_ & ones(bits < 64 ? 0 : bits - 64)};
  }
  /// A key for limits of a peer: the IPv4 address, or the /64 network of the IPv6 address, because a host of such a network can use any
  /// address in it.
  [[nodiscard]] constexpr std::uint64_t peer_key() const noexcept { return is_v4() ? low_ : high_; }

  friend constexpr bool operator==(const Address&, const Address&) = default;
  friend constexpr auto operator<=>(const Address&, const Address&) = default;

 private:
  static constexpr std::uint64_t mapped = 0x0000'FFFF'0000'0000;
  static constexpr std::uint64_t ones(unsigned bits) noexcept {
    return bits == 0 ? 0 : bits >= 64 ? ~std::uint64_t{0} : ~std::uint64_t{0} << (64 - bits);
  }
  static constexpr std::uint64_t read_half(const std::byte* at) noexcept {
    std::uint64_t half = 0;
    for (int i = 0; i < 8; ++i) half = half << 8 | std::to_integer<std::uint64_t>(at[i]);
    return half;
  }
  static constexpr void write_half(std::byte* at, std::uint64_t half) noexcept {
    for (int i = 0; i < 8; ++i) at[i] = static_cast<std::byte>(half >> (56 - 8 * i));
  }

  std::uint64_t high_ = 0, low_ = 0;
};
static_assert(sizeof(Address) == 16);

struct Endpoint {
  Address address;
  std::uint16_t port = 0;
  /// Parses "A.B.C.D:PORT" or "[IPV6]:PORT"; neither part may be zero.
  [[nodiscard]] static std::optional<Endpoint> parse(std::string_view text);
  /// Returns the text that `parse` accepts.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace neap::net
