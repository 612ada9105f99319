// SPDX-License-Identifier: BSL-1.0
// The engine of IPv6 on a link that the test plays, in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/ipv6/engine.hpp"

namespace neap::net::ipv6::testing {

using Packet = std::vector<std::byte>;

inline Address of(const char* text) { return *Address::parse(text); }

struct Sent {
  MacAddress to{};
  Packet packet{};
  [[nodiscard]] Header header() const { return Header::read(packet); }
  /// The ICMPv6 message behind at most one extension header; empty if there is none.
  [[nodiscard]] Octets icmp() const {
    const Extensions at = parse_extensions(packet);
    return at.result == Extensions::Result::upper && at.next == next_header::icmp ? Octets(packet).subspan(at.offset) : Octets();
  }
  [[nodiscard]] unsigned type() const { return icmp().empty() ? 0 : octet(icmp(), 0); }
};

inline void append(Packet& packet, std::uint64_t value, unsigned bytes) {
  while (bytes-- > 0) packet.push_back(static_cast<std::byte>(value >> 8 * bytes));
}
inline void append(Packet& packet, const Address& address) {
  append(packet, address.high(), 8);
  append(packet, address.low(), 8);
}
inline void append(Packet& packet, const MacAddress& mac) {
  for (const std::uint8_t byte : mac) append(packet, byte, 1);
}
inline Packet packet_of(Header header, const Packet& payload) {
  header.payload_bytes = static_cast<std::uint16_t>(payload.size());
  Packet packet(header_bytes);
  header.write(packet.data());
  packet.insert(packet.end(), payload.begin(), payload.end());
  return packet;
}
/// An ICMPv6 message with its checksum.
inline Packet icmp_packet(const Address& from, const Address& to, Packet message, std::uint8_t hops = 255) {
  write_16(message.data() + 2, 0);
  write_16(message.data() + 2, static_cast<std::uint16_t>(~transport_sum(from, to, next_header::icmp, message)));
  return packet_of({.next = next_header::icmp, .hops = hops, .from = from, .to = to}, message);
}
inline MacAddress mac_number(unsigned number) {
  return {2, 0, 1, static_cast<std::uint8_t>(number >> 16), static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)};
}
/// `source`: with the option of the sender's MAC address.
inline Packet solicitation(const Address& from, const Address& to, const Address& target, const MacAddress* source = nullptr,
                           std::uint8_t hops = 255) {
  Packet message;
  append(message, 0x8700'0000, 4);
  append(message, 0, 4);
  append(message, target);
  if (source != nullptr) append(message, 0x0101, 2), append(message, *source);
  return icmp_packet(from, to, message, hops);
}
inline Packet advertisement(const Address& from, const Address& to, const MacAddress* mac, std::uint32_t flags = 0x6000'0000,
                            std::uint8_t hops = 255) {
  Packet message;
  append(message, 0x8800'0000, 4);
  append(message, flags, 4);
  append(message, from);
  if (mac != nullptr) append(message, 0x0201, 2), append(message, *mac);
  return icmp_packet(from, to, message, hops);
}
struct Prefix {
  Address address;
  unsigned bits = 64, flags = 0xC0;
  std::uint32_t valid_s = 86'400, preferred_s = 14'400;
};
inline Packet router_advertisement(const Address& router, const MacAddress& mac, const std::vector<Prefix>& prefixes,
                                   unsigned lifetime_s = 1'800, std::uint32_t mtu = 0, std::uint8_t hops = 255) {
  Packet message;
  append(message, 0x8600'0000, 4);
  append(message, 64 << 8, 2);
  append(message, lifetime_s, 2);
  append(message, 0, 8);
  append(message, 0x0101, 2);
  append(message, mac);
  if (mtu != 0) append(message, 0x0501'0000, 4), append(message, mtu, 4);
  for (const Prefix& prefix : prefixes) {
    append(message, 0x0304, 2);
    append(message, prefix.bits << 8 | prefix.flags, 2);
    append(message, prefix.valid_s, 4);
    append(message, prefix.preferred_s, 4);
    append(message, 0, 4);
    append(message, prefix.address);
  }
  return icmp_packet(router, all_nodes, message, hops);
}

class World final : public Link, public Upper {
 public:
  explicit World(Ipv6Setting setting = {.mode = Ipv6Setting::Mode::automatic}) : engine(*this, *this, shared, own_mac, setting) {}

  void transmit(const MacAddress& to, Octets head, Octets body) noexcept override {
    Packet packet(head.begin(), head.end());
    packet.insert(packet.end(), body.begin(), body.end());
    // Every packet of ICMPv6 has a right checksum.
    const Sent one{.to = to, .packet = packet};
    if (!one.icmp().empty()) {
      EXPECT_EQ(transport_sum(one.header().from, one.header().to, next_header::icmp, one.icmp()), 0xFFFF);
    }
    sent.push_back(one);
  }
  [[nodiscard]] std::uint64_t now_ms() const noexcept override { return now; }
  [[nodiscard]] std::uint64_t random_bits() noexcept override { return random = random * 6364136223846793005U + 1442695040888963407U; }
  void transport(Octets packet, std::size_t offset, std::uint8_t protocol) noexcept override {
    received.push_back({.protocol = protocol, .data = Packet(packet.begin() + static_cast<std::ptrdiff_t>(offset), packet.end())});
  }
  [[nodiscard]] std::optional<bool> icmp_error(const IcmpError& error) noexcept override {
    errors.push_back(error.type);
    return believes;
  }
  void address_removed(const Address& address) noexcept override { removed.push_back(address); }
  void addresses_changed() noexcept override {}
  void groups_changed() noexcept override {}
  void report(const char*, const Address&) noexcept override {}

  void input(const Packet& packet, const MacAddress& from = peer_mac) { engine.input(packet, from); }
  /// Moves the clock to each due time in turn.
  void advance(std::uint64_t ms) {
    const std::uint64_t end = now + ms;
    while (engine.due_ms() <= end) {
      now = std::max(now, engine.due_ms());
      engine.run_timers();
    }
    now = end;
  }
  /// Brings the link up, and waits until nothing is timed.
  void start() {
    engine.begin();
    advance(20'000);
    ASSERT_EQ(engine.due_ms(), never);
    sent.clear();
  }
  std::vector<Sent> take(unsigned type) {
    std::vector<Sent> found;
    for (const Sent& one : sent) {
      if (one.type() == type) found.push_back(one);
    }
    sent.clear();
    return found;
  }
  std::size_t count(unsigned type) const {
    return static_cast<std::size_t>(std::ranges::count_if(sent, [&](const Sent& one) { return one.type() == type; }));
  }
  /// Lets the machine learn the peer's MAC address.
  void introduce(const Address& peer_address) {
    input(solicitation(peer_address, own.solicited_node(), own, &peer_mac));
    sent.clear();
  }

  static constexpr MacAddress own_mac{2, 0, 0, 0, 0, 1}, peer_mac{2, 0, 0, 0, 0, 2};
  static constexpr Address own{0xFE80'0000'0000'0000, 0x0000'00FF'FE00'0001}, peer{0xFE80'0000'0000'0000, 2};
  struct Received {
    std::uint8_t protocol;
    Packet data;
  };
  std::uint64_t now = 1'000, random = 1;
  Shared shared{{.low = 1, .high = 2}};
  std::vector<Sent> sent{};
  std::vector<Received> received{};
  std::vector<unsigned> errors{};
  std::vector<Address> removed{};
  bool believes = true;
  Engine engine;
};

}  // namespace neap::net::ipv6::testing
