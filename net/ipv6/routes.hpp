// SPDX-License-Identifier: BSL-1.0
// Where a packet goes first: on-link prefixes and default routers (RFC 4861, 5.2).
//
// Any machine on the link can claim to be a router and can announce any number of routers and prefixes. Both lists are short. A full list
// refuses newcomers, so that a flood of announcements does not replace the router that is in use; expired entries make room. Redirects are
// ignored (docs/network.md). The first core owns the lists and publishes them. Internal to net/.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernel/counter.hpp"
#include "net/ipv6/packet.hpp"

namespace neap::net::ipv6 {

class Routes {
 public:
  static constexpr unsigned prefixes_max = 16, routers_max = 8;

  struct Prefix {
    Address address{};
    std::uint64_t bits = 0;
    std::uint64_t until_ms = 0;  ///< 0: unused
  };
  struct Router {
    Address address{};
    std::uint64_t until_ms = 0;   ///< 0: unused
    std::int32_t preference = 0;  ///< RFC 4191: -1, 0 or 1
    std::uint32_t unreachable = 0;
  };

  /// Adds or changes a prefix; `until_ms` 0 or in the past removes it. Returns false if the list is full.
  bool set_prefix(const Address& prefix, unsigned bits, std::uint64_t until_ms, std::uint64_t now_ms) noexcept;
  bool set_router(const Address& router, int preference, std::uint64_t until_ms, std::uint64_t now_ms) noexcept;
  void clear() noexcept { *this = {}; }
  /// The router does not answer, or answers again. An unreachable router is used only if there is no other one (RFC 4861, 6.3.6).
  void set_reachable(const Address& router, bool reachable) noexcept;
  [[nodiscard]] bool has_router(const Address& router, std::uint64_t now_ms) const noexcept;
  [[nodiscard]] bool on_link(const Address& destination, std::uint64_t now_ms) const noexcept;
  /// Returns the neighbour to which a packet for the unicast address `destination` is sent; nothing without a route (RFC 4861, 5.2).
  [[nodiscard]] std::optional<Address> next_hop(const Address& destination, std::uint64_t now_ms) const noexcept;
  [[nodiscard]] std::optional<Address> default_router(std::uint64_t now_ms) const noexcept;
  [[nodiscard]] unsigned prefixes(std::uint64_t now_ms) const noexcept;
  [[nodiscard]] unsigned routers(std::uint64_t now_ms) const noexcept;

 private:
  std::array<Prefix, prefixes_max> prefixes_{};
  std::array<Router, routers_max> routers_{};
};

}  // namespace neap::net::ipv6
