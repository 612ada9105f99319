// SPDX-License-Identifier: BSL-1.0
// IPv6 of the whole machine, on its first core: neighbour discovery (RFC 4861), address configuration (RFC 4862), ICMPv6 (RFC 4443),
// groups, path MTUs and reassembly.
//
// lwIP's IPv6 is not used (docs/network.md has the reasons). This engine knows no core, no card and no lwIP: it gets packets, sends
// packets through `Link`, passes transport data to `Upper`, and is told when a time has come. So tests drive it in virtual time. The stacks
// of other cores read what it publishes in `Shared`. Internal to net/.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernel/counter.hpp"
#include "net/ipv6/extensions.hpp"
#include "net/ipv6/listener.hpp"
#include "net/ipv6/neighbours.hpp"
#include "net/ipv6/own_addresses.hpp"
#include "net/ipv6/packet.hpp"
#include "net/ipv6/path_mtu.hpp"
#include "net/ipv6/published.hpp"
#include "net/ipv6/reassembly.hpp"
#include "net/ipv6/routes.hpp"
#include "net/network.hpp"

namespace neap::net::ipv6 {

/// The state of IPv6 that any core may read.
struct Shared {
  explicit Shared(SipKey key, std::uint16_t interface_mtu = mtu_link) noexcept : mtus(key, interface_mtu) {}
  PublishedNeighbours neighbours;
  PublishedAddresses addresses;
  PathMtus mtus;
  Published<Routes> routes;
  std::atomic<std::uint8_t> hops{64};        ///< of packets to other networks (RFC 4861, 6.3.2)
  std::atomic<std::uint32_t> generation{1};  ///< changes with any MAC address, route or path MTU that a packet may have used
  void note_change() noexcept { generation.fetch_add(1, std::memory_order_release); }
};

/// An ICMPv6 error about a packet of this machine.
struct IcmpError {
  std::uint8_t type = 0, code = 0;
  std::uint8_t protocol = 0;    ///< of the packet
  std::uint32_t parameter = 0;  ///< the MTU of `too_big`, the pointer of `parameter_problem`
  Address from{}, to{};         ///< of the packet: `from` is this machine's address
  Octets transport{};           ///< the packet's first bytes from its transport header on, at least 8
};

/// The protocols above.
class Upper {
 public:
  virtual ~Upper() = default;
  /// A packet with a segment of TCP or a datagram of UDP at `offset`, for this machine. Headers between the fixed header and `offset` were
  /// handled. Checksums are not checked.
  virtual void transport(Octets packet, std::size_t offset, std::uint8_t protocol) noexcept = 0;
  /// Returns true if a connection or port of this machine has sent the packet; only then is a path MTU believed. Nothing: another core
  /// decides, and calls `believe_mtu` or `refuse_mtu` later.
  [[nodiscard]] virtual std::optional<bool> icmp_error(const IcmpError& error) noexcept = 0;
  virtual void address_removed(const Address& address) noexcept = 0;
  virtual void addresses_changed() noexcept = 0;
  /// The groups for the card's filter have changed.
  virtual void groups_changed() noexcept = 0;
  /// Prints a line for the operator.
  virtual void report(const char* text, const Address& address) noexcept = 0;
};

struct EngineCounters {
  Counter packets{};  ///< packets for this machine
  Counter malformed{};
  Counter not_for_us{};
  Counter bad_checksum{};
  Counter discovery_refused{};  ///< neighbour discovery messages that RFC 4861's checks refuse, such as a hop limit below 255
  Counter redirects_ignored{};
  Counter routers_refused{};  ///< routers and prefixes beyond the lists' sizes
  Counter advertisements{};   ///< router advertisements that were used
  Counter advertisements_limited{};
  Counter echoes{};
  Counter errors_sent{}, errors_limited{}, errors_received{};
  Counter too_big_believed{}, too_big_refused{};
  Counter no_route{};
  Counter fragments_sent{};
  Counter conflicts{};  ///< messages of other machines with an address of this machine
};

class Engine final : Neighbours::User, OwnAddresses::User, Listener::User {
 public:
  Engine(Link& link, Upper& upper, Shared& shared, const MacAddress& mac, const Ipv6Setting& setting) noexcept;
  Engine& operator=(Engine&&) = delete;

  /// The link came up: makes the link-local address and asks for routers.
  void begin() noexcept;
  /// The link went down: forgets neighbours, routes and announced addresses.
  void end() noexcept;
  /// Handles a packet; the frame's padding behind it is ignored. `from_mac`: the frame's sender.
  void input(Octets packet, const MacAddress& from_mac) noexcept;
  /// Sends a packet of `protocol` whose data are `head` and `body` put together, in fragments if it is longer than the path's MTU. `head`
  /// MUST fit into a packet. `hops` 0: the default. Returns false without a route, which is counted. There is no route to
  /// the machine itself.
  bool send(const Address& from, const Address& to, std::uint8_t protocol, Octets head, Octets body, std::uint8_t hops = 0,
            std::uint32_t flow = 0) noexcept;
  [[nodiscard]] std::optional<MacAddress> resolve(const Address& destination) noexcept;
  /// Reports an error about a received packet to its sender (RFC 4443, 2.4).
  void send_error(Octets packet, std::uint8_t type, std::uint8_t code, std::uint32_t parameter, bool even_to_groups = false) noexcept;
  void confirm(const Address& destination) noexcept;
  /// A transport protocol has checked a packet too big message.
  void believe_mtu(const Address& destination, std::uint32_t mtu) noexcept;
  void refuse_mtu() noexcept { counters_.too_big_refused.add(); }

  void run_timers() noexcept;
  /// The time at which `run_timers` MUST be called; `never` if nothing is timed.
  [[nodiscard]] std::uint64_t due_ms() const noexcept;

  [[nodiscard]] Listener& listener() noexcept { return listener_; }
  [[nodiscard]] const Listener& listener() const noexcept { return listener_; }
  [[nodiscard]] const Neighbours& neighbours() const noexcept { return neighbours_; }
  [[nodiscard]] const OwnAddresses& addresses() const noexcept { return addresses_; }
  [[nodiscard]] const Reassembly& reassembly() const noexcept { return reassembly_; }
  [[nodiscard]] const Routes& routes() const noexcept { return routes_; }
  [[nodiscard]] const EngineCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] Address link_local() const noexcept { return link_local_; }
  /// True if the link-local address and, if one is set, the set address passed duplicate address detection.
  [[nodiscard]] bool ready() const noexcept;

 private:
  // Neighbours::User
  void solicit(const Address& target, const MacAddress* mac) noexcept override;
  void resolved(const Address& address) noexcept override;
  void unreachable(const Address& address, Octets packet) noexcept override;
  // OwnAddresses::User
  void probe(const Address& tentative) noexcept override;
  void use_group(const Address& solicited_node, bool use) noexcept override;
  void confirmed(const Address& address) noexcept override;
  void removed(const Address& address, bool was_usable, bool duplicate) noexcept override;
  // Listener::User
  void send_report(const Address& to, std::span<std::byte> report) noexcept override;
  void groups_changed() noexcept override { upper_.groups_changed(); }

  void input_checked(Octets packet, const Header& header, const MacAddress& from_mac) noexcept;
  void input_upper(Octets packet, const Header& header, const Extensions& at, const MacAddress& from_mac) noexcept;
  void input_fragment(Octets packet, const Extensions& at, const MacAddress& from_mac) noexcept;
  void input_icmp(Octets packet, const Header& header, const Extensions& at, const MacAddress& from_mac) noexcept;
  void input_echo(const Header& header, Octets message) noexcept;
  void input_error(const Header& header, Octets message) noexcept;
  // engine_discovery.cpp
  void input_discovery(const Header& header, const Extensions& at, Octets message, const MacAddress& from_mac) noexcept;
  void input_solicitation(const Header& header, Octets message, const MacAddress& from_mac) noexcept;
  void input_advertisement(Octets message, const MacAddress& from_mac) noexcept;
  void input_router(const Header& header, Octets message) noexcept;
  void take_prefix(Octets option) noexcept;
  void solicit_routers() noexcept;
  void publish_routes() noexcept;

  /// Completes `message`'s checksum and sends it.
  void send_icmp(const Address& from, const Address& to, std::uint8_t hops, std::span<std::byte> message, Octets body = {}) noexcept;
  /// Sends a whole packet to its next hop.
  bool route(const Address& to, Octets head, Octets body) noexcept;

  Link& link_;
  Upper& upper_;
  Shared& shared_;
  const MacAddress mac_;
  const Ipv6Setting setting_;
  const Address link_local_;
  bool up_ = false, disabled_ = false;
  Listener listener_;
  Neighbours neighbours_;
  OwnAddresses addresses_;
  Reassembly reassembly_;
  Routes routes_;
  std::uint32_t fragment_id_;
  unsigned router_solicitations_ = 0;
  std::uint64_t router_solicitation_ms_ = never;
  RateLimit errors_{20, 10};  ///< RFC 4443, 2.4 (f)
  RateLimit group_echoes_{10, 100};
  RateLimit advertisements_{16, 100};  ///< router advertisements
  EngineCounters counters_;
};

}  // namespace neap::net::ipv6
