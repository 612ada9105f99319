// SPDX-License-Identifier: BSL-1.0
// Address configuration, routers, ICMPv6, groups and path MTUs, against a link that the test plays in virtual time.
#include "net/ipv6/engine.hpp"

#include "net/testing/ipv6_world.hpp"

namespace neap::net::ipv6::testing {
namespace {

const Address router = of("fe80::1"), network = of("2001:db8:1::");
const MacAddress router_mac{2, 0, 0, 0, 0, 0x11};

Packet echo_request(const Address& from, const Address& to, std::size_t bytes = 8) {
  Packet message;
  append(message, 0x8000'0000, 4);
  append(message, 0x1234'0001, 4);
  message.resize(8 + bytes);
  return icmp_packet(from, to, message, 64);
}

/// An ICMPv6 error that quotes a packet of the machine.
Packet error_about(std::uint8_t type, std::uint32_t parameter, const Header& quoted) {
  Packet message;
  append(message, std::uint64_t{type} << 24, 4);
  append(message, parameter, 4);
  Packet datagram;
  append(datagram, 0x1111'2222'0008'0000, 8);
  const Packet packet = packet_of(quoted, datagram);
  message.insert(message.end(), packet.begin(), packet.end());
  return icmp_packet(router, World::own, message, 64);
}

// --- Addresses ---------------------------------------------------------------------------------------------------------------------------
TEST(OwnAddress, OfTheLinkIsUsedAfterTheCheckForDuplicates) {
  World world;
  world.engine.begin();
  ASSERT_EQ(world.engine.link_local(), World::own);
  EXPECT_EQ(world.count(icmp::neighbour_solicitation), 1U);
  const auto probe = std::ranges::find_if(world.sent, [](const Sent& one) { return one.type() == icmp::neighbour_solicitation; });
  EXPECT_EQ(probe->header().from, Address());
  EXPECT_EQ(probe->header().to, World::own.solicited_node());
  EXPECT_EQ(probe->icmp().size(), 24U);  // without the option of the MAC address
  world.sent.clear();
  world.input(echo_request(World::peer, World::own));
  world.input(solicitation(World::peer, World::own.solicited_node(), World::own, &World::peer_mac));
  EXPECT_TRUE(world.sent.empty()) << "a tentative address answers nothing";
  EXPECT_FALSE(world.engine.ready());
  world.advance(1'000);
  EXPECT_TRUE(world.engine.ready());
  EXPECT_EQ(world.count(icmp::router_solicitation), 1U);
  world.input(solicitation(World::peer, World::own.solicited_node(), World::own, &World::peer_mac));
  EXPECT_EQ(world.count(icmp::neighbour_advertisement), 1U);
}

TEST(OwnAddress, IsNotUsedIfAnotherMachineHasOrChecksIt) {
  for (const bool has : {false, true}) {
    World world;
    world.engine.begin();
    if (has) {
      world.input(advertisement(World::own, all_nodes, &World::peer_mac, 0x2000'0000));
    } else {
      world.input(solicitation(Address(), World::own.solicited_node(), World::own));
    }
    world.advance(60'000);
    EXPECT_FALSE(world.engine.ready());
    EXPECT_EQ(world.engine.addresses().counters().duplicates.value(), 1U);
    EXPECT_EQ(world.engine.addresses().count(), 0U);
    EXPECT_TRUE(world.removed.empty());
    EXPECT_EQ(world.count(icmp::router_solicitation), 0U);
  }
}

// The machine's own solicitation may come back from the network.
TEST(OwnAddress, OwnFramesAreNoConflict) {
  World world;
  world.engine.begin();
  world.input(solicitation(Address(), World::own.solicited_node(), World::own), World::own_mac);
  world.advance(2'000);
  EXPECT_TRUE(world.engine.ready());
}

TEST(OwnAddress, InUseIsDefendedAndCounted) {
  World world;
  world.start();
  world.input(advertisement(World::own, all_nodes, &World::peer_mac, 0x2000'0000));
  EXPECT_TRUE(world.engine.ready());
  EXPECT_EQ(world.engine.counters().conflicts.value(), 1U);
  world.input(solicitation(Address(), World::own.solicited_node(), World::own));
  const auto answers = world.take(icmp::neighbour_advertisement);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].header().to, all_nodes);
}

TEST(OwnAddress, IsMadeFromAnAnnouncedPrefixAndExpires) {
  World world;
  world.start();
  world.input(router_advertisement(router, router_mac, {{.address = network, .valid_s = 20'000, .preferred_s = 10'000}}));
  const Address made = of("2001:db8:1::ff:fe00:1");
  EXPECT_FALSE(world.shared.addresses.contains(made));
  world.advance(3'000);
  EXPECT_TRUE(world.shared.addresses.contains(made));
  EXPECT_EQ(world.shared.addresses.source_for(of("2001:db8:2::1"), world.now), made);
  EXPECT_EQ(world.shared.addresses.source_for(World::peer, world.now), World::own);
  // RFC 4862, 5.5.3 (e): a forged end of life leaves two hours.
  world.input(router_advertisement(router, router_mac, {{.address = network, .valid_s = 1, .preferred_s = 0}}));
  world.advance(7'000'000);
  EXPECT_TRUE(world.shared.addresses.contains(made));
  world.advance(300'000);
  EXPECT_FALSE(world.shared.addresses.contains(made));
  EXPECT_EQ(world.removed, std::vector{made});
  EXPECT_EQ(world.engine.due_ms(), never);
}

TEST(OwnAddress, FixedOnesIgnoreRouters) {
  World world({.mode = Ipv6Setting::Mode::fixed, .address = of("2001:db8::5"), .gateway = of("2001:db8::1"), .prefix_bits = 64});
  world.start();
  EXPECT_TRUE(world.engine.ready());
  world.input(router_advertisement(router, router_mac, {{.address = network}}));
  world.advance(3'000);
  EXPECT_EQ(world.engine.addresses().count(), 2U);
  EXPECT_EQ(world.engine.routes().next_hop(of("2001:db8::9"), world.now), of("2001:db8::9"));
  EXPECT_EQ(world.engine.routes().next_hop(of("2001:db8:1::9"), world.now), of("2001:db8::1"));
  EXPECT_EQ(world.count(icmp::router_solicitation), 0U);
}

TEST(OwnAddress, SourceHasTheScopeOfTheDestination) {
  World world;
  world.start();
  EXPECT_EQ(world.shared.addresses.source_for(of("2001:db8::1"), world.now), std::nullopt);
  EXPECT_EQ(world.shared.addresses.source_for(of("ff02::1"), world.now), World::own);
  world.input(router_advertisement(router, router_mac, {{.address = of("fd00:1::")}, {.address = network}}));
  world.advance(3'000);
  EXPECT_EQ(world.shared.addresses.source_for(of("fd77::1"), world.now), of("fd00:1::ff:fe00:1"));
  EXPECT_EQ(world.shared.addresses.source_for(of("2a00::1"), world.now), of("2001:db8:1::ff:fe00:1"));
  EXPECT_EQ(world.shared.addresses.source_for(of("ff0e::1"), world.now)->scope(), 14U);
}

TEST(OwnAddress, IsLostWithTheLink) {
  World world;
  world.start();
  world.engine.end();
  EXPECT_EQ(world.removed, std::vector{World::own});
  EXPECT_EQ(world.engine.due_ms(), never);
  world.input(echo_request(World::peer, World::own));
  EXPECT_TRUE(world.sent.empty());
  world.engine.begin();
  world.advance(2'000);
  EXPECT_TRUE(world.engine.ready());
}

// --- Routers -----------------------------------------------------------------------------------------------------------------------------
TEST(Routers, TheAnnouncedOneIsUsedAndLeft) {
  World world;
  world.start();
  world.input(router_advertisement(router, router_mac, {{.address = network}}, 1'800, 1'400));
  world.advance(3'000);
  EXPECT_EQ(world.shared.mtus.of(of("2001:db8:9::1"), world.now), 1'400);
  world.sent.clear();
  world.input(echo_request(of("2001:db8:9::1"), of("2001:db8:1::ff:fe00:1")));
  ASSERT_EQ(world.count(icmp::echo_reply), 1U);
  EXPECT_EQ(world.sent[0].to, router_mac);
  world.sent.clear();
  world.input(router_advertisement(router, router_mac, {}, 0));
  world.input(echo_request(of("2001:db8:9::1"), of("2001:db8:1::ff:fe00:1")));
  EXPECT_TRUE(world.sent.empty());
  EXPECT_EQ(world.engine.counters().no_route.value(), 1U);
}

TEST(Routers, WithoutAnAnswerAnotherOneIsUsed) {
  World world;
  world.start();
  world.input(router_advertisement(router, router_mac, {{.address = network}}));
  world.input(router_advertisement(of("fe80::2:2"), World::peer_mac, {}));
  world.advance(3'000);
  ASSERT_EQ(world.engine.routes().default_router(world.now), router);
  EXPECT_TRUE(world.engine.resolve(of("2001:db8:9::1")).has_value());
  world.advance(20'000);
  EXPECT_EQ(world.engine.routes().default_router(world.now), of("fe80::2:2"));
  EXPECT_EQ(world.engine.resolve(of("2001:db8:9::1")), World::peer_mac);
}

// RFC 4861, 6.1.2 and 7.1: messages that a router has forwarded, or that are malformed, change nothing.
TEST(Routers, ForgedMessagesAreRefused) {
  World world;
  world.start();
  world.input(router_advertisement(router, router_mac, {{.address = network}}, 1'800, 0, 254));
  world.input(router_advertisement(of("2001:db8::1"), router_mac, {{.address = network}}));
  world.input(solicitation(World::peer, World::own.solicited_node(), World::own, &World::peer_mac, 64));
  world.input(advertisement(World::peer, World::own, &World::peer_mac, 0x6000'0000, 254));
  world.input(advertisement(World::peer, all_nodes, &World::peer_mac, 0x6000'0000));                // solicited, to a group
  world.input(solicitation(Address(), World::own.solicited_node(), World::own, &World::peer_mac));  // a check with a MAC address
  world.input(solicitation(Address(), World::own, World::own));                                     // a check to no group
  Packet message(24);
  message[0] = std::byte{icmp::neighbour_solicitation};
  World::own.write(message.data() + 8);
  append(message, 0x0100, 2);  // an option of length 0
  message.resize(32);
  world.input(icmp_packet(World::peer, World::own.solicited_node(), message));
  message.resize(20);
  world.input(icmp_packet(World::peer, World::own.solicited_node(), message));
  EXPECT_EQ(world.engine.counters().discovery_refused.value(), 9U);
  EXPECT_EQ(world.engine.neighbours().used(), 0U);
  EXPECT_EQ(world.engine.routes().routers(world.now), 0U);
  EXPECT_TRUE(world.sent.empty());
}

TEST(Routers, FragmentedAndRedirectMessagesChangeNothing) {
  World world;
  world.start();
  const Packet whole = router_advertisement(router, router_mac, {{.address = network}});
  Packet payload;
  append(payload, next_header::icmp << 8, 2);
  append(payload, 0, 6);
  payload.insert(payload.end(), whole.begin() + header_bytes, whole.end());
  world.input(packet_of({.next = next_header::fragment, .hops = 255, .from = router, .to = all_nodes}, payload));
  EXPECT_EQ(world.engine.counters().discovery_refused.value(), 1U);
  Packet redirect;
  append(redirect, 0x8900'0000, 4);
  append(redirect, 0, 4);
  append(redirect, World::peer);
  append(redirect, of("2001:db8:9::1"));
  world.input(icmp_packet(router, World::own, redirect));
  EXPECT_EQ(world.engine.counters().redirects_ignored.value(), 1U);
  EXPECT_EQ(world.engine.routes().routers(world.now), 0U);
}

// Thousands of routers and prefixes: the lists stay short, and what was there first stays in use.
TEST(Routers, FloodsOfAnnouncementsStayBounded) {
  World world;
  world.start();
  world.input(router_advertisement(router, router_mac, {{.address = network}}));
  world.advance(3'000);
  for (unsigned i = 0; i < 5'000; ++i) {
    std::vector<Prefix> prefixes;
    for (unsigned k = 0; k < 40; ++k) prefixes.push_back({.address = {0x2001'0DB9'0000'0000U + i * 64 + k, 0}});
    world.input(router_advertisement({0xFE80'0000'0000'0000, 0x1000 + i}, mac_number(i), prefixes));
    world.advance(i % 2 == 0 ? 100 : 0);
    world.sent.clear();
  }
  EXPECT_EQ(world.engine.routes().routers(world.now), Routes::routers_max);
  EXPECT_EQ(world.engine.routes().prefixes(world.now), Routes::prefixes_max);
  EXPECT_EQ(world.engine.addresses().count(), OwnAddresses::entries_max);
  EXPECT_EQ(world.engine.routes().default_router(world.now), router);
  EXPECT_TRUE(world.shared.addresses.contains(of("2001:db8:1::ff:fe00:1")));
  EXPECT_GT(world.engine.counters().routers_refused.value(), 1'000U);
  EXPECT_GT(world.engine.counters().advertisements_limited.value(), 1'000U);
  EXPECT_LE(world.engine.neighbours().used(), Neighbours::entries_max);
}

// --- ICMPv6 ------------------------------------------------------------------------------------------------------------------------------
TEST(Icmp, EchoesComeBackWhole) {
  World world;
  world.start();
  world.introduce(World::peer);
  world.input(echo_request(World::peer, World::own, 100));
  const auto replies = world.take(icmp::echo_reply);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].icmp().size(), 108U);
  EXPECT_EQ(read_32(replies[0].icmp(), 4), 0x1234'0001U);
  world.input(echo_request(World::peer, all_nodes, 8));
  ASSERT_EQ(world.sent.size(), 1U);
  EXPECT_EQ(world.sent[0].header().from, World::own);
  Packet wrong = echo_request(World::peer, World::own);
  wrong.back() ^= std::byte{1};
  world.input(wrong);
  EXPECT_EQ(world.engine.counters().bad_checksum.value(), 1U);
  EXPECT_EQ(world.sent.size(), 1U);
}

TEST(Icmp, LongRepliesAreSentInFragments) {
  World world;
  world.start();
  world.introduce(World::peer);
  Packet body(3'000);
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i);
  const std::array<std::byte, 8> head{};
  ASSERT_TRUE(world.engine.send(World::own, World::peer, next_header::udp, head, body));
  ASSERT_EQ(world.sent.size(), 3U);
  Reassembly reassembly;
  Reassembly::Result result;
  for (const Sent& one : world.sent) {
    EXPECT_LE(one.packet.size(), mtu_link);
    result = reassembly.add(one.packet, parse_extensions(one.packet), 0);
  }
  ASSERT_EQ(result.packet.size(), header_bytes + 8 + body.size());
  EXPECT_TRUE(std::equal(body.begin(), body.end(), result.packet.begin() + header_bytes + 8));
}

// RFC 4443, 2.4: a limited rate, and no error about errors, groups, or packets without a sender.
TEST(Icmp, ErrorsAreLimited) {
  World world;
  world.start();
  world.introduce(World::peer);
  const Packet unknown = packet_of({.next = 253, .from = World::peer, .to = World::own}, Packet(8));
  for (int i = 0; i < 1'000; ++i) world.input(unknown);
  EXPECT_LE(world.count(icmp::parameter_problem), 30U);
  EXPECT_GE(world.count(icmp::parameter_problem), 10U);
  EXPECT_GT(world.engine.counters().errors_limited.value(), 900U);
  world.advance(5'000);
  world.sent.clear();
  world.input(packet_of({.next = 253, .from = World::peer, .to = all_nodes}, Packet(8)));
  world.input(packet_of({.next = 253, .from = Address(), .to = World::own}, Packet(8)));
  world.engine.send_error(error_about(icmp::too_big, 1'280, {.next = next_header::udp, .from = World::own, .to = World::peer}),
                          icmp::unreachable, 0, 0);
  EXPECT_EQ(world.count(icmp::parameter_problem) + world.count(icmp::unreachable), 0U);
  world.input(Packet(unknown));
  EXPECT_EQ(world.count(icmp::parameter_problem), 1U);
}

TEST(Icmp, ImpossibleSourcesAndDestinationsAreDropped) {
  World world;
  world.start();
  for (const char* source : {"ff02::1", "::1", "::ffff:10.0.0.1"}) {
    world.input(packet_of({.next = 253, .from = of(source), .to = World::own}, Packet(8)));
  }
  for (const char* destination : {"::1", "::ffff:10.0.0.1", "::"}) {
    world.input(packet_of({.next = 253, .from = World::peer, .to = of(destination)}, Packet(8)));
  }
  EXPECT_EQ(world.engine.counters().malformed.value(), 6U);
  world.input(packet_of({.next = 253, .from = World::peer, .to = of("fe80::99")}, Packet(8)));
  world.input(packet_of({.next = 253, .from = World::peer, .to = of("ff02::99")}, Packet(8)));
  EXPECT_EQ(world.engine.counters().not_for_us.value(), 2U);
  EXPECT_TRUE(world.sent.empty());
}

// RFC 4861, 4.6.4 and 6.3.4: not below 1280 bytes, and not above the interface's MTU.
TEST(PathMtu, RoutersMayAnnounceTheLinksMtu) {
  PathMtus mtus({.low = 1, .high = 2}, 9000);
  const Address far = of("2001:db8:9::1");
  EXPECT_EQ(mtus.of(far, 0), 9000);
  for (const std::uint32_t ignored : {0U, 1279U, 9001U, 65536U + 1500U}) {
    mtus.set_link_mtu(ignored);
    EXPECT_EQ(mtus.link_mtu(), 9000) << ignored;
  }
  EXPECT_TRUE(mtus.reduce(far, 8000, 0));
  mtus.set_link_mtu(1500);
  EXPECT_EQ(mtus.of(of("2001:db8:9::2"), 0), 1500);
  EXPECT_EQ(mtus.of(far, 0), 1500) << "no path has a larger MTU than its first link";
  mtus.set_link_mtu(9000);
  EXPECT_EQ(mtus.of(far, 0), 8000);
}

TEST(PathMtu, IsReducedByBelievedReportsAndComesBack) {
  World world;
  world.start();
  const Address far = of("2001:db8:9::1");
  const Header quoted{.next = next_header::udp, .from = World::own, .to = far};
  world.believes = false;
  world.input(error_about(icmp::too_big, 1'300, quoted));
  EXPECT_EQ(world.shared.mtus.of(far, world.now), mtu_link);
  EXPECT_EQ(world.engine.counters().too_big_refused.value(), 1U);
  world.believes = true;
  const std::uint32_t generation = world.shared.generation.load();
  world.input(error_about(icmp::too_big, 1'400, quoted));
  EXPECT_EQ(world.shared.mtus.of(far, world.now), 1'400);
  EXPECT_NE(world.shared.generation.load(), generation);
  world.input(error_about(icmp::too_big, 1'450, quoted));  // never larger
  EXPECT_EQ(world.shared.mtus.of(far, world.now), 1'400);
  world.input(error_about(icmp::too_big, 68, quoted));
  EXPECT_EQ(world.shared.mtus.of(far, world.now), mtu_min);
  EXPECT_EQ(world.shared.mtus.of(of("2001:db8:9::2"), world.now), mtu_link);
  world.advance(600'000);
  EXPECT_EQ(world.shared.mtus.of(far, world.now), mtu_link);
  // The quoted packet is not from this machine.
  world.errors.clear();
  world.input(error_about(icmp::too_big, 1'280, {.next = next_header::udp, .from = World::peer, .to = far}));
  EXPECT_TRUE(world.errors.empty());
}

// --- Groups ------------------------------------------------------------------------------------------------------------------------------
Packet query(const Address& group, unsigned delay_ms, bool version_1, std::uint8_t hops = 1, bool alert = true) {
  Packet message;
  append(message, 0x8200'0000, 4);
  append(message, std::uint64_t{delay_ms} << 16, 4);
  append(message, group);
  if (!version_1) append(message, 0, 4);
  const Address to = group.is_unspecified() ? all_nodes : group;
  const Packet inner = icmp_packet(router, to, message, hops);
  if (!alert) return inner;
  Packet payload;
  append(payload, 0x3A00'0502'0000'0100, 8);
  payload.insert(payload.end(), inner.begin() + header_bytes, inner.end());
  return packet_of({.next = next_header::hop_by_hop, .hops = hops, .from = router, .to = to}, payload);
}

TEST(Groups, ChangesAreReportedTwice) {
  World world;
  world.start();
  const Address group = of("ff05::1234");
  ASSERT_TRUE(world.engine.listener().join(group, 0).has_value());
  EXPECT_FALSE(world.engine.listener().join(group, 0).has_value());
  ASSERT_TRUE(world.engine.listener().join(group, 1).has_value());
  world.advance(2'000);
  auto reports = world.take(icmp::listener_report_2);
  ASSERT_EQ(reports.size(), 2U);
  const Octets report = reports[0].icmp();
  EXPECT_EQ(reports[0].header().to, all_listeners_2);
  EXPECT_EQ(reports[0].header().hops, 1);
  EXPECT_EQ(reports[0].header().next, next_header::hop_by_hop);
  EXPECT_EQ(read_16(report, 6), 1U);
  EXPECT_EQ(octet(report, 8), 4U);  // CHANGE_TO_EXCLUDE_MODE
  EXPECT_EQ(Address::read(report.data() + 12), group);
  ASSERT_TRUE(world.engine.listener().leave(group, 0).has_value());
  EXPECT_TRUE(world.engine.listener().receives(group));
  ASSERT_TRUE(world.engine.listener().leave(group, 1).has_value());
  EXPECT_FALSE(world.engine.listener().receives(group));
  world.advance(2'000);
  reports = world.take(icmp::listener_report_2);
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(octet(reports[0].icmp(), 8), 3U);  // CHANGE_TO_INCLUDE_MODE
  EXPECT_EQ(world.engine.due_ms(), never);
}

TEST(Groups, QueriesAreAnsweredOnceWithinTheirTime) {
  World world;
  world.start();
  ASSERT_TRUE(world.engine.listener().join(of("ff05::1234"), 0).has_value());
  world.advance(2'000);
  world.sent.clear();
  for (int i = 0; i < 100; ++i) world.input(query({}, 5'000, false));
  EXPECT_TRUE(world.sent.empty());
  world.advance(5'000);
  const auto reports = world.take(icmp::listener_report_2);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(read_16(reports[0].icmp(), 6), 2U);  // also the group of the own address
  EXPECT_EQ(octet(reports[0].icmp(), 8), 2U);    // MODE_IS_EXCLUDE
  world.input(query(of("ff05::99"), 1'000, false));
  world.input(query({}, 1'000, false, 2));
  world.input(query({}, 1'000, false, 1, false));
  EXPECT_EQ(world.engine.due_ms(), never);
  EXPECT_EQ(world.engine.counters().discovery_refused.value(), 2U);
}

TEST(Groups, ARouterWithVersion1GetsItsReports) {
  World world;
  world.start();
  const Address group = of("ff05::1234");
  ASSERT_TRUE(world.engine.listener().join(group, 0).has_value());
  world.advance(2'000);
  world.sent.clear();
  world.input(query(group, 1'000, true));
  world.advance(1'000);
  auto reports = world.take(icmp::listener_report_1);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].header().to, group);
  ASSERT_TRUE(world.engine.listener().leave(group, 0).has_value());
  EXPECT_EQ(world.take(icmp::listener_done_1).size(), 1U);
  world.advance(Listener::version_1_ms);
  ASSERT_TRUE(world.engine.listener().join(group, 0).has_value());
  EXPECT_EQ(world.take(icmp::listener_report_2).size(), 1U);
}

TEST(Groups, AreBounded) {
  World world;
  world.start();
  unsigned joined = 0;
  for (unsigned i = 0; i < 200; ++i) joined += world.engine.listener().join({0xFF05'0000'0000'0000, 0x100 + i}, 0).has_value() ? 1 : 0;
  EXPECT_EQ(joined, Listener::joined_groups_max);
  std::vector<MacAddress> addresses;
  world.engine.listener().put_addresses(addresses);
  EXPECT_EQ(addresses.size(), Listener::joined_groups_max + 2U);
  world.advance(2'000);
  world.sent.clear();
  world.input(query({}, 1'000, false));
  world.advance(1'000);
  const auto reports = world.take(icmp::listener_report_2);
  ASSERT_EQ(reports.size(), 2U);
  for (const Sent& report : reports) EXPECT_LE(report.packet.size(), mtu_min);
}

}  // namespace
}  // namespace neap::net::ipv6::testing
