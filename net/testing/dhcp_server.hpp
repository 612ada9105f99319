// SPDX-License-Identifier: BSL-1.0
// The smallest DHCP server that a client accepts (RFC 2131): one address to offer, at the other end of a card's wire.
#pragma once

#include <atomic>
#include <functional>

#include "net/network.hpp"
#include "net/testing/wire.hpp"

namespace neap::net::testing {

class DhcpServer {
 public:
  DhcpServer(WireCard& card, Ipv4Address offered, Ipv4Address own);

  [[nodiscard]] int requests() const noexcept { return requests_; }  ///< acknowledged
  std::atomic<int> ignore_first{0};                                  ///< packets that get lost

 private:
  void take(const Bytes& frame);

  WireCard& card_;
  Ipv4Address offered_, own_;
  std::atomic<int> requests_{0};
};

}  // namespace neap::net::testing
