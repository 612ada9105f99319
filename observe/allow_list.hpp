// SPDX-License-Identifier: BSL-1.0
// Who may talk to the control port, by address.
//
// An address is no proof of who somebody is (docs/threat-model.md), but it keeps out whoever is merely further away than the machine's own
// network. So that is the default, and the command line can say otherwise.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "net/network.hpp"

namespace neap::observe {

class AllowList {
 public:
  /// The interface's own network, whatever it is at the time of asking. Of a network that is larger than /16, or whose mask is missing or
  /// has gaps, it is the /24 around the own address: such a mask is more often a default (RFC 791's class A) than a decision.
  AllowList() = default;
  /// "10.1.2.3,192.168.0.0/16", or "any". The error says what is wrong.
  [[nodiscard]] static std::expected<AllowList, const char*> parse(std::string_view text);

  /// `own` and `netmask`: the machine's address at this moment.
  [[nodiscard]] bool allows(net::Ipv4Address peer, net::Ipv4Address own, net::Ipv4Address netmask) const noexcept;
  /// Whether a machine of the own network is refused because of that rule.
  [[nodiscard]] bool narrowed(net::Ipv4Address netmask) const noexcept;
  /// For people: "10.0.2.0/24".
  [[nodiscard]] std::string to_string(net::Ipv4Address own, net::Ipv4Address netmask) const;

 private:
  struct Network {
    std::uint32_t address;
    std::uint32_t mask;
  };
  std::vector<Network> networks_;  // empty: our own
};

}  // namespace neap::observe
