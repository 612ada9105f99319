// SPDX-License-Identifier: BSL-1.0
// The smallest DHCP server that a client accepts (RFC 2131): one address to offer, at the other end of a card's wire. It can be hostile.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "net/network.hpp"
#include "net/testing/wire.hpp"

namespace neap::net::testing {

/// The content of offers and acknowledgements; an option that is not set is left out.
struct DhcpTerms {
  std::optional<Ipv4Address> server;  ///< as option 54; at first the server's own address
  std::optional<std::uint32_t> lease_s = 3600, renew_s, rebind_s;
  std::optional<std::uint32_t> mask = 0xFFFFFF00;
  std::optional<Ipv4Address> router;        ///< at first the server's own address
  std::optional<Ipv4Address> address;       ///< instead of the one to offer
  std::optional<Ipv4Address> acknowledged;  ///< in acknowledgements alone
  bool refuse = false;                      ///< NAK in place of an acknowledgement
  std::uint8_t unknown_option_bytes = 0;    ///< of an option that no client knows, in front of the others; 0: none
  std::size_t fragment_bytes = 0;           ///< a multiple of 8: answers come in fragments of so much payload; 0: whole
};

class DhcpServer {
 public:
  DhcpServer(WireCard& card, Ipv4Address offered, Ipv4Address own);

  /// From now on.
  void set_terms(const DhcpTerms& terms);
  [[nodiscard]] DhcpTerms terms() const;
  [[nodiscard]] int requests() const noexcept { return requests_; }    ///< answered, whatever the answer
  [[nodiscard]] int discovers() const noexcept { return discovers_; }  ///< the same
  std::atomic<int> ignore_first{0};                                    ///< packets that get lost
  std::atomic<bool> answers_arp{false};                                ///< so that a renewal, which is not broadcast, can reach it

 private:
  void take(const Bytes& frame);
  void answer_arp(const Bytes& frame);
  void send_fragments(const Bytes& frame, std::size_t bytes);

  WireCard& card_;
  Ipv4Address offered_, own_;
  std::uint16_t identification_ = 0;
  mutable std::mutex lock_;
  DhcpTerms terms_;
  std::atomic<int> requests_{0}, discovers_{0};
};

}  // namespace neap::net::testing
