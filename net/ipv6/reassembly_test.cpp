// SPDX-License-Identifier: BSL-1.0
// Fragments and extension headers of received packets.
#include "net/ipv6/reassembly.hpp"

#include "net/testing/ipv6_world.hpp"

namespace neap::net::ipv6::testing {
namespace {

constexpr std::size_t udp_bytes = 1'000;

Packet udp(std::size_t bytes) {
  Packet datagram;
  append(datagram, 0x1111'2222, 4);
  append(datagram, bytes, 2);
  append(datagram, 0, 2);
  for (std::size_t i = 8; i < bytes; ++i) append(datagram, i, 1);
  return datagram;
}

/// A fragment with the bytes from `from` up to `to` of `datagram`.
Packet fragment(const Packet& datagram, std::size_t from, std::size_t to, std::uint32_t id = 1, bool more = true,
                const Address& source = World::peer, std::uint8_t protocol = next_header::udp) {
  Packet payload;
  append(payload, protocol << 8, 2);
  append(payload, from | (more ? 1 : 0), 2);
  append(payload, id, 4);
  payload.insert(payload.end(), datagram.begin() + static_cast<std::ptrdiff_t>(from), datagram.begin() + static_cast<std::ptrdiff_t>(to));
  return packet_of({.next = next_header::fragment, .from = source, .to = World::own}, payload);
}

struct Fragments : ::testing::Test {
  void SetUp() override {
    world.start();
    world.introduce(World::peer);
  }
  const Reassembly& reassembly() { return world.engine.reassembly(); }
  World world;
  Packet whole = udp(udp_bytes);
};

TEST_F(Fragments, InAnyOrderBecomeTheDatagram) {
  world.input(fragment(whole, 496, 1'000, 1, false));
  world.input(fragment(whole, 248, 496));
  EXPECT_TRUE(world.received.empty());
  world.input(fragment(whole, 0, 248));
  ASSERT_EQ(world.received.size(), 1U);
  EXPECT_EQ(world.received[0].data, whole);
  EXPECT_EQ(reassembly().packets(), 0U);
  EXPECT_EQ(reassembly().bytes(), 0U);
}

TEST_F(Fragments, ARepeatedFragmentIsHarmless) {
  for (int i = 0; i < 2; ++i) world.input(fragment(whole, 0, 496));
  world.input(fragment(whole, 496, 1'000, 1, false));
  ASSERT_EQ(world.received.size(), 1U);
  EXPECT_EQ(world.received[0].data, whole);
}

// RFC 5722: the fragments that come after the overlap are dropped too.
TEST_F(Fragments, AnOverlapEndsTheDatagram) {
  world.input(fragment(whole, 0, 496));
  world.input(fragment(whole, 488, 744));
  world.input(fragment(whole, 496, 1'000, 1, false));
  world.input(fragment(whole, 0, 496));
  EXPECT_TRUE(world.received.empty());
  EXPECT_EQ(reassembly().counters().overlaps.value(), 1U);
  world.advance(61'000);
  EXPECT_EQ(world.count(icmp::time_exceeded), 0U);
  EXPECT_EQ(reassembly().packets(), 0U);
}

// RFC 8200, 4.5: a fragment beyond the last one's end.
TEST_F(Fragments, BehindTheEndEndTheDatagram) {
  world.input(fragment(whole, 248, 496, 1, false));
  world.input(fragment(whole, 496, 744));
  world.input(fragment(whole, 0, 248));
  EXPECT_TRUE(world.received.empty());
  EXPECT_EQ(reassembly().counters().malformed.value(), 1U);
}

TEST_F(Fragments, ThatStayIncompleteAreReported) {
  world.input(fragment(whole, 0, 496));
  world.input(fragment(whole, 496, 744, 2));
  world.advance(61'000);
  const auto reports = world.take(icmp::time_exceeded);
  ASSERT_EQ(reports.size(), 1U);  // only with the first fragment
  EXPECT_EQ(octet(reports[0].icmp(), 1), icmp::code_reassembly);
  EXPECT_EQ(reassembly().packets(), 0U);
}

TEST_F(Fragments, MalformedOnesAreReported) {
  world.input(fragment(whole, 0, 100));  // not a multiple of 8
  world.input(fragment(whole, 0, 8, 2, true, World::peer, next_header::tcp));
  Packet beyond = fragment(whole, 0, 496, 3);
  write_16(beyond.data() + 42, 0xFFF8 | 1);
  world.input(beyond);
  const auto reports = world.take(icmp::parameter_problem);
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_EQ(octet(reports[0].icmp(), 1), icmp::code_field);
  EXPECT_EQ(read_32(reports[0].icmp(), 4), 4U);
  EXPECT_EQ(octet(reports[1].icmp(), 1), icmp::code_first_fragment);
  EXPECT_EQ(octet(reports[2].icmp(), 1), icmp::code_field);
  EXPECT_EQ(read_32(reports[2].icmp(), 4), 42U);
  EXPECT_EQ(reassembly().packets(), 0U);
}

// One source gets a few places; many sources get the rest, and memory stays below the limit.
TEST_F(Fragments, FloodsStayBounded) {
  const Packet large = udp(60'000);
  for (std::uint32_t id = 0; id < 100; ++id) world.input(fragment(large, 0, 1'200, id));
  EXPECT_EQ(reassembly().packets(), Reassembly::packets_of_source_max);
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    world.input(fragment(large, 58'400, 59'600, i, true, {0xFE80'0000'0000'0000, 0x100 + i}));
    EXPECT_LE(reassembly().bytes(), Reassembly::bytes_max + 64 * 1024);
  }
  EXPECT_EQ(reassembly().packets(), Reassembly::packets_max);
  EXPECT_GT(reassembly().counters().refused.value(), 1'000U);
  for (std::size_t at = 0; at + 8 <= 8 * 200; at += 8) world.input(fragment(large, at, at + 8, 0));
  world.advance(61'000);
  EXPECT_EQ(reassembly().packets(), 0U);
  EXPECT_EQ(reassembly().bytes(), 0U);
  world.input(fragment(whole, 0, 496));
  world.input(fragment(whole, 496, 1'000, 1, false));
  EXPECT_EQ(world.received.size(), 1U);
}

// RFC 6946: a fragment header without fragments does not mix with fragments of the same number.
TEST_F(Fragments, AtomicFragmentsAreDatagrams) {
  world.input(fragment(whole, 0, 496));
  world.input(fragment(whole, 0, 1'000, 1, false));
  ASSERT_EQ(world.received.size(), 1U);
  EXPECT_EQ(world.received[0].data, whole);
  EXPECT_EQ(reassembly().packets(), 1U);
}

// --- Extension headers -------------------------------------------------------------------------------------------------------------------
struct ExtensionHeaders : Fragments {
  /// Sends a datagram behind one extension header with `content` behind its two first bytes.
  void send(std::uint8_t type, Packet content, std::uint8_t protocol = next_header::udp) {
    content.resize((content.size() + 2 + 7) / 8 * 8 - 2);
    Packet payload;
    append(payload, protocol, 1);
    append(payload, (content.size() + 2) / 8 - 1, 1);
    payload.insert(payload.end(), content.begin(), content.end());
    payload.insert(payload.end(), whole.begin(), whole.end());
    world.input(packet_of({.next = type, .from = World::peer, .to = World::own}, payload));
  }
  static Packet option(unsigned type) {
    return {static_cast<std::byte>(type), std::byte{2}, std::byte{0}, std::byte{0}, std::byte{1}, std::byte{0}};
  }
};

// RFC 8200, 4.2: the two highest bits say what happens to a packet with an option that is not known.
TEST_F(ExtensionHeaders, UnknownOptionsAreSkippedDroppedOrReported) {
  for (const std::uint8_t header : {next_header::hop_by_hop, next_header::destination_options}) {
    world.received.clear();
    send(header, option(0x1E));
    EXPECT_EQ(world.received.size(), 1U);
    send(header, option(0x5E));
    EXPECT_EQ(world.received.size(), 1U);
    EXPECT_EQ(world.count(icmp::parameter_problem), 0U);
    send(header, option(0x9E));
    send(header, option(0xDE));
    EXPECT_EQ(world.received.size(), 1U);
    const auto reports = world.take(icmp::parameter_problem);
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_EQ(octet(reports[0].icmp(), 1), icmp::code_option);
    EXPECT_EQ(read_32(reports[0].icmp(), 4), 42U);
  }
}

TEST_F(ExtensionHeaders, RoutingHeadersWithSegmentsLeftAreRefused) {
  send(next_header::routing, {std::byte{0}, std::byte{1}});
  EXPECT_TRUE(world.received.empty());
  const auto reports = world.take(icmp::parameter_problem);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(read_32(reports[0].icmp(), 4), 42U);
  send(next_header::routing, {std::byte{0}, std::byte{0}});
  EXPECT_EQ(world.received.size(), 1U);
}

TEST_F(ExtensionHeaders, UnknownOnesAreReported) {
  send(253, {});
  auto reports = world.take(icmp::parameter_problem);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(octet(reports[0].icmp(), 1), icmp::code_next_header);
  EXPECT_EQ(read_32(reports[0].icmp(), 4), 6U);
  send(next_header::destination_options, {}, next_header::hop_by_hop);  // hop-by-hop options in the wrong place
  reports = world.take(icmp::parameter_problem);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(read_32(reports[0].icmp(), 4), 40U);
}

TEST_F(ExtensionHeaders, LongChainsAreDropped) {
  const auto chain = [](unsigned headers) {
    Packet payload;
    for (unsigned i = 0; i < headers; ++i)
      append(payload, std::uint64_t{i + 1 < headers ? next_header::destination_options : next_header::udp} << 56, 8);
    append(payload, 0, 8);
    return packet_of({.next = next_header::destination_options, .from = World::peer, .to = World::own}, payload);
  };
  world.input(chain(extension_headers_max));
  EXPECT_EQ(world.received.size(), 1U);
  world.input(chain(extension_headers_max + 1));
  EXPECT_EQ(world.received.size(), 1U);
  EXPECT_TRUE(world.sent.empty());
}

TEST_F(ExtensionHeaders, CutOnesAreDropped) {
  Packet packet = fragment(whole, 0, 496);
  for (std::size_t bytes = 0; bytes < packet.size(); ++bytes) {
    Packet cut(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(bytes));
    if (bytes >= header_bytes) write_16(cut.data() + 4, static_cast<unsigned>(bytes - header_bytes));
    world.input(cut);
    if (bytes < 48) {
      EXPECT_EQ(reassembly().packets(), 0U) << bytes;
    }
  }
  EXPECT_TRUE(world.received.empty());
}

}  // namespace
}  // namespace neap::net::ipv6::testing
