// SPDX-License-Identifier: BSL-1.0
// Neighbours: the states of RFC 4861, 7.3, and the bounds that hold against floods.
#include "net/ipv6/neighbours.hpp"

#include "net/testing/ipv6_world.hpp"

namespace neap::net::ipv6::testing {
namespace {

using State = Neighbours::State;

Packet echo_request(const Address& from, const Address& to, std::size_t bytes = 8) {
  Packet message;
  append(message, 0x8000'0000, 4);
  append(message, 0x1234'0001, 4);
  message.resize(8 + bytes);
  return icmp_packet(from, to, message, 64);
}

// A packet waits while its neighbour is asked for, and leaves when the answer arrives.
TEST(Neighbours, AreAskedForWhenAPacketNeedsThem) {
  World world;
  world.start();
  world.input(echo_request(World::peer, World::own));
  ASSERT_EQ(world.sent.size(), 1U);
  EXPECT_EQ(world.sent[0].type(), icmp::neighbour_solicitation);
  EXPECT_EQ(world.sent[0].header().to, World::peer.solicited_node());
  EXPECT_EQ(world.sent[0].header().hops, 255);
  EXPECT_EQ(world.sent[0].to, mac_of_group(World::peer.solicited_node()));
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::incomplete);
  world.sent.clear();
  world.input(advertisement(World::peer, World::own, &World::peer_mac));
  ASSERT_EQ(world.sent.size(), 1U);
  EXPECT_EQ(world.sent[0].type(), icmp::echo_reply);
  EXPECT_EQ(world.sent[0].to, World::peer_mac);
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::reachable);
  EXPECT_EQ(world.engine.due_ms(), never);
}

TEST(Neighbours, WithoutAnAnswerAreGivenUpAfterThreeQuestions) {
  World world;
  world.start();
  world.input(echo_request(World::peer, World::own));
  world.advance(10'000);
  EXPECT_EQ(world.count(icmp::neighbour_solicitation), 3U);
  EXPECT_EQ(world.engine.neighbours().used(), 0U);
  EXPECT_EQ(world.engine.neighbours().counters().waiting_dropped.value(), 1U);
  EXPECT_EQ(world.engine.due_ms(), never);
}

// REACHABLE becomes STALE by age alone, without a timer; a packet then begins the check, and an answer ends it.
TEST(Neighbours, AreCheckedWhileTheyAreUsed) {
  World world;
  world.start();
  world.introduce(World::peer);
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::stale);
  EXPECT_EQ(world.engine.due_ms(), never);
  EXPECT_EQ(world.engine.resolve(World::peer), World::peer_mac);
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::delay);
  world.advance(6'000);
  auto probes = world.take(icmp::neighbour_solicitation);
  ASSERT_EQ(probes.size(), 2U);  // at 5 s and at 6 s
  EXPECT_EQ(probes[0].header().to, World::peer);
  EXPECT_EQ(probes[0].to, World::peer_mac);
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::probe);
  world.input(advertisement(World::peer, World::own, nullptr));
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::reachable);
  EXPECT_EQ(world.engine.due_ms(), never);
  world.advance(60'000);
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::stale);
  EXPECT_TRUE(world.sent.empty());
  EXPECT_FALSE(world.shared.neighbours.find(World::peer, world.now)->fresh);
  EXPECT_TRUE(world.engine.resolve(World::peer).has_value());
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::delay);
  world.engine.confirm(World::peer);
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::reachable);
  EXPECT_TRUE(world.shared.neighbours.find(World::peer, world.now)->fresh);
  world.advance(60'000);
  EXPECT_TRUE(world.engine.resolve(World::peer).has_value());
  world.advance(20'000);
  EXPECT_EQ(world.take(icmp::neighbour_solicitation).size(), 3U);
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::unused);
  EXPECT_FALSE(world.shared.neighbours.find(World::peer, world.now).has_value());
}

// RFC 4861, 7.2.5 and appendix C.
TEST(Neighbours, AdvertisementsChangeStatesByTheirFlags) {
  constexpr std::uint32_t solicited = 0x4000'0000, override = 0x2000'0000;
  World world;
  world.start();
  world.introduce(World::peer);
  world.input(advertisement(World::peer, World::own, &World::peer_mac, solicited));
  ASSERT_EQ(world.engine.neighbours().state_of(World::peer), State::reachable);
  const MacAddress other{2, 0, 0, 0, 0, 9};
  world.input(advertisement(World::peer, all_nodes, &other, 0));
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::stale);
  EXPECT_EQ(world.shared.neighbours.find(World::peer, world.now)->mac, World::peer_mac);
  world.input(advertisement(World::peer, World::own, &other, solicited));
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::stale);
  world.input(advertisement(World::peer, all_nodes, &other, override));
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::stale);
  EXPECT_EQ(world.shared.neighbours.find(World::peer, world.now)->mac, other);
  world.input(advertisement(World::peer, World::own, &World::peer_mac, solicited | override));
  EXPECT_EQ(world.engine.neighbours().state_of(World::peer), State::reachable);
  EXPECT_EQ(world.shared.neighbours.find(World::peer, world.now)->mac, World::peer_mac);
  // An advertisement makes no entry.
  world.input(advertisement(of("fe80::77"), all_nodes, &other, override));
  EXPECT_EQ(world.engine.neighbours().state_of(of("fe80::77")), State::unused);
}

// Each message has another sender. The table stays bounded, the known neighbour stays, and one MAC address gets a few entries only.
TEST(Neighbours, AFloodOfSolicitationsStaysBounded) {
  World world;
  world.start();
  world.introduce(World::peer);
  EXPECT_TRUE(world.engine.resolve(World::peer).has_value());
  world.input(advertisement(World::peer, World::own, &World::peer_mac));
  for (unsigned i = 0; i < 20'000; ++i) {
    const Address from{0xFE80'0000'0000'0000, 0x1'0000 + i};
    const MacAddress mac = i < 10'000 ? MacAddress{2, 0, 0, 0, 9, 9} : mac_number(i);
    world.input(solicitation(from, World::own.solicited_node(), World::own, &mac), mac);
    ++world.now;
    if (i == 9'999) {
      EXPECT_LE(world.engine.neighbours().used(), Neighbours::entries_of_mac_max + 1);
    }
  }
  EXPECT_LE(world.engine.neighbours().used(), Neighbours::entries_max);
  EXPECT_GT(world.engine.neighbours().counters().refused.value(), 10'000U);
  EXPECT_TRUE(world.shared.neighbours.find(World::peer, world.now).has_value());
  EXPECT_EQ(world.count(icmp::neighbour_advertisement), 20'000U);  // every one is answered
}

// Addresses without an answer displace no neighbour. There are enough of them to fill the set of any neighbour many times.
TEST(Neighbours, AFloodOfQuestionsDisplacesNoNeighbour) {
  World world;
  world.start();
  constexpr unsigned known = 32;
  const auto neighbour = [](unsigned number) { return Address{0xFE80'0000'0000'0000, 0x100 + number}; };
  unsigned resolved = 0;
  for (unsigned i = 0; i < known; ++i) {
    const MacAddress mac = mac_number(i);
    world.input(echo_request(neighbour(i), World::own));
    world.input(advertisement(neighbour(i), World::own, &mac));
    resolved += world.shared.neighbours.find(neighbour(i), world.now).has_value();
  }
  const std::uint64_t recycled = world.engine.neighbours().counters().recycled.value();  // more than four of the known are in one set
  EXPECT_EQ(resolved, known);
  for (unsigned i = 0; i < 20'000; ++i) {
    world.input(echo_request({0xFE80'0000'0000'0000, 0x5'0000 + i}, World::own));
    world.advance(10);
  }
  EXPECT_GT(world.engine.neighbours().counters().unresolved.value(), 1'000U);
  EXPECT_EQ(world.engine.neighbours().counters().recycled.value(), recycled);
  for (unsigned i = 0; i < known; ++i) resolved -= world.shared.neighbours.find(neighbour(i), world.now).has_value();
  EXPECT_EQ(resolved, recycled);
}

// A scan through a router makes the machine answer thousands of addresses of its own link.
TEST(Neighbours, QuestionsAndWaitingPacketsStayBounded) {
  World world;
  world.start();
  world.introduce(World::peer);
  for (unsigned i = 0; i < 5'000; ++i) {
    world.input(echo_request({0xFE80'0000'0000'0000, 0x5'0000 + i / 2}, World::own, 1'000));
    EXPECT_LE(world.engine.neighbours().incomplete(), Neighbours::incomplete_max);
    EXPECT_LE(world.engine.neighbours().waiting(), Neighbours::waiting_max);
    if (i % 10 == 0) world.advance(1);
  }
  EXPECT_TRUE(world.shared.neighbours.find(World::peer, world.now).has_value());
  EXPECT_GT(world.engine.neighbours().counters().refused.value(), 100U);
  world.advance(60'000);
  EXPECT_EQ(world.engine.neighbours().waiting(), 0U);
  EXPECT_EQ(world.engine.neighbours().incomplete(), 0U);
}

}  // namespace
}  // namespace neap::net::ipv6::testing
