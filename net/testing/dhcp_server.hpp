// SPDX-License-Identifier: BSL-1.0
// A minimal DHCP server (RFC 2131) at the other end of a simulated card's wire. It offers one address, and can send invalid answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "net/network.hpp"
#include "net/testing/wire.hpp"

namespace neap::net::testing {

/// The content of offers and acknowledgements. An unset option is omitted.
struct DhcpTerms {
  std::optional<Ipv4Address> server;  ///< option 54; initially the server's own address
  std::optional<std::uint32_t> lease_s = 3600, renew_s, rebind_s;
  std::optional<std::uint32_t> mask = 0xFFFFFF00;
  std::optional<Ipv4Address> router;        ///< initially the server's own address
  std::optional<Ipv4Address> address;       ///< replaces the offered address
  std::optional<Ipv4Address> acknowledged;  ///< replaces the address, but only in acknowledgements
  bool refuse = false;                      ///< answers requests by a NAK
  std::uint8_t unknown_option_bytes = 0;    ///< length of an unknown option before the other options; 0: no such option
  std::size_t fragment_bytes = 0;           ///< payload of each fragment of an answer, a multiple of 8; 0: no fragments
};

class DhcpServer {
 public:
  DhcpServer(WireCard& card, Ipv4Address offered, Ipv4Address own);

  /// These terms apply to later answers.
  void set_terms(const DhcpTerms& terms);
  [[nodiscard]] DhcpTerms terms() const;
  [[nodiscard]] int requests() const noexcept { return requests_; }    ///< received requests, including refused ones
  [[nodiscard]] int discovers() const noexcept { return discovers_; }  ///< received DISCOVER messages
  std::atomic<int> ignore_first{0};                                    ///< number of packets to ignore at the start
  std::atomic<bool> answers_arp{false};                                ///< true: answers ARP; a renewal needs that, because it is unicast

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
