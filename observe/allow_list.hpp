// SPDX-License-Identifier: BSL-1.0
// The addresses that may use the control port.
//
// An address does not authenticate a client (docs/threat-model.md), but the list refuses clients outside the machine's network. By default
// it allows that network, and link-local IPv6 addresses, which are of the same link; the command line can set another list.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "net/network.hpp"

namespace neap::observe {

class AllowList {
 public:
  /// Allows the interface's current network. If that network is larger than /16, or its mask is missing or has gaps, only the /24 around
  /// the machine's address is allowed. Such a mask is more often a default (RFC 791's class A) than intended.
  AllowList() = default;
  /// Parses a text like "10.1.2.3,192.168.0.0/16,2001:db8::/32", or "any". The error is the reason for a refusal.
  [[nodiscard]] static std::expected<AllowList, const char*> parse(std::string_view text);

  /// `own` and `netmask` are the machine's current address and netmask.
  [[nodiscard]] bool allows(const net::Address& peer, net::Ipv4Address own, net::Ipv4Address netmask) const noexcept;
  /// True if the default list refuses a part of the machine's network because the network is too large or its mask is not valid.
  [[nodiscard]] bool narrowed(net::Ipv4Address netmask) const noexcept;
  /// Returns the list as text, for example "10.0.2.0/24".
  [[nodiscard]] std::string to_string(net::Ipv4Address own, net::Ipv4Address netmask) const;

 private:
  struct Network {
    net::Address address;
    unsigned bits;  // of `net::Address`, so an IPv4 network has 96 bits more than its text shows; 0: any address
  };
  std::vector<Network> networks_;  // empty: the machine's network
};

}  // namespace neap::observe
