// SPDX-License-Identifier: BSL-1.0
// TCP over IPv6: what differs from TCP over IPv4. The rules of TCP itself are the same code (tcp_rules_test.cpp), and whole transfers are
// in connection_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "net/stack.hpp"
#include "net/tcp/receive_window.hpp"
#include "net/testing/hand_peer.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t full_payload = 1500 - 40 - 20;

Bytes mss_option(unsigned mss) {
  Bytes options;
  append(options, 0x0204'0000 | mss, 4);
  return options;
}

class TcpIpv6 : public ::testing::Test {
 protected:
  explicit TcpIpv6(const CardOptions& card = {}) : peer({.check_seed = 6, .close_when_sent = false}, true, card) {}

  /// Acknowledges all bytes of the application; returns the payloads' sizes.
  std::vector<std::size_t> drain() {
    std::vector<std::size_t> sizes;
    for (int round = 0; round < 100; ++round) {
      bool any = false;
      for (const Segment& segment : peer.take_segments()) {
        if (segment.payload.empty()) continue;
        any = true;
        EXPECT_EQ(segment.seq, peer.acknowledged);
        for (const std::byte byte : segment.payload) EXPECT_EQ(byte, pattern(received++, 5));
        sizes.push_back(segment.payload.size());
        peer.acknowledged += static_cast<std::uint32_t>(segment.payload.size());
      }
      if (!any) break;
      peer.acknowledge();
    }
    return sizes;
  }
  /// An error about the machine's segment with this sequence number.
  void report(std::uint8_t type, std::uint8_t code, std::uint32_t parameter, std::uint32_t sequence, std::uint16_t peer_port = 40000) {
    Bytes tcp;
    append(tcp, HandPeer::service_port, 2);
    append(tcp, peer_port, 2);
    append(tcp, sequence, 4);
    append(tcp, Bytes(12));
    Bytes message;
    append(message, std::uint32_t{type} << 24 | std::uint32_t{code} << 16, 4);
    append(message, parameter, 4);
    append(message, ipv6::testing::packet_of({.next = ipv6::next_header::tcp, .from = peer.own(), .to = peer.peer()}, tcp));
    const Address router{0xFE80'0000'0000'0000, 0xFE};
    peer.arrive_ipv6(ipv6::testing::icmp_packet(router, peer.own(), message, 64));
  }

  HandPeer peer;
  std::size_t received = 0;
};

TEST_F(TcpIpv6, BytesArriveInBothDirectionsAndBothSidesClose) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  EXPECT_EQ(peer.connection()->remote(), (Endpoint{.address = peer.peer(), .port = 40000}));
  EXPECT_EQ(peer.connection()->local(), (Endpoint{.address = peer.own(), .port = HandPeer::service_port}));
  Bytes data(3000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = pattern(i, 6);
  peer.send_data(Bytes(data.begin(), data.begin() + 1440));
  peer.send_data(Bytes(data.begin() + 1440, data.end()));
  EXPECT_EQ(peer.record().received, data.size());
  peer.application_sends(10'000);
  const std::vector<std::size_t> sizes = drain();
  EXPECT_EQ(received, 10'000U);
  EXPECT_EQ(*std::ranges::max_element(sizes), full_payload);
  peer.send({.seq = peer.seq++, .acknowledged = peer.acknowledged, .flags = tcp::fin | tcp::ack});
  const std::vector<Segment> ends = peer.take_segments();
  ASSERT_FALSE(ends.empty());
  EXPECT_NE(ends.back().flags & tcp::fin, 0) << "the handler closes when the peer has closed";
  EXPECT_EQ(ends.back().acknowledged, peer.seq);
  peer.send({.seq = peer.seq, .acknowledged = ++peer.acknowledged});
  EXPECT_EQ(peer.record().closed, 1);
  EXPECT_EQ(peer.counters().retransmissions, 0U);
}

TEST_F(TcpIpv6, TheHandshakeAnnouncesTheMssOfIpv6) {
  Segment answer;
  peer.begin_open_with_answer(40000, 0xFFFF, mss_option(1440), answer);
  ASSERT_GE(answer.options.size(), 4U);
  EXPECT_EQ(quad(answer.options, 0), 0x0204'0000U | full_payload);
  EXPECT_EQ(answer.hops, 64);
  EXPECT_NE(answer.flow, 0U) << "RFC 6437: packets of a flow have a label";
}

// RFC 9293, MUST-15: a peer that announces no MSS gets segments of at most 1,220 bytes.
TEST_F(TcpIpv6, WithoutAnMssOptionSegmentsHave1220Bytes) {
  peer.open();
  peer.application_sends(5'000);
  const std::vector<std::size_t> sizes = drain();
  EXPECT_EQ(received, 5'000U);
  EXPECT_EQ(*std::ranges::max_element(sizes), 1220U);
}

TEST_F(TcpIpv6, AllSegmentsOfAConnectionHaveOneFlowLabel) {
  Segment answer;
  peer.begin_open_with_answer(40000, 0xFFFF, mss_option(1440), answer);
  peer.send({.seq = peer.seq, .acknowledged = peer.acknowledged});
  peer.application_sends(5'000);
  peer.advance(400ms);  // with a retransmission
  for (const Segment& segment : peer.take_segments()) EXPECT_EQ(segment.flow, answer.flow);
  peer.send({.seq = peer.seq + 0x4000'0000, .acknowledged = peer.acknowledged, .flags = tcp::rst});  // a challenge ACK is possible
  peer.send({.seq = peer.seq, .acknowledged = peer.acknowledged, .flags = tcp::rst});
  EXPECT_EQ(peer.record().closed, 1);
  peer.take_segments();
  peer.send({.seq = peer.seq, .acknowledged = peer.acknowledged});
  const std::vector<Segment> resets = peer.take_segments();
  ASSERT_EQ(resets.size(), 1U);
  EXPECT_EQ(resets[0].flags, tcp::rst);
  EXPECT_EQ(resets[0].seq, peer.acknowledged);
  EXPECT_EQ(resets[0].flow, answer.flow);
}

TEST_F(TcpIpv6, AClosedPortAnswersByAReset) {
  peer.watch_port(40001);
  const Bytes frame = frame_of(
      {.from = {.address = peer.peer(), .port = 40001}, .to = {.address = peer.own(), .port = 99}, .sequence = 77, .flags = syn_flag},
      peer.card().mac());
  peer.card().arrive(frame, 0);
  peer.settle();
  const std::vector<Segment> answers = peer.take_segments();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].flags, tcp::rst | tcp::ack);
  EXPECT_EQ(answers[0].acknowledged, 78U);
}

TEST_F(TcpIpv6, SegmentsThatAreNotWholeOrNotForTheMachineAreDropped) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  const RawSegment good{.from = {.address = peer.peer(), .port = 40000},
                        .to = {.address = peer.own(), .port = HandPeer::service_port},
                        .sequence = peer.seq,
                        .acknowledged = peer.acknowledged,
                        .flags = ack_flag,
                        .payload = Bytes{pattern(0, 6)}};
  const auto dropped = [&](Bytes frame, std::uint64_t Counters::* counter, const char* what) {
    const std::uint64_t before = peer.counters().*counter;
    peer.card().arrive(std::move(frame), 0);
    peer.settle();
    EXPECT_EQ(peer.counters().*counter, before + 1) << what;
    EXPECT_EQ(peer.record().received, 0U) << what;
  };
  Bytes frame = frame_of(good, peer.card().mac());
  frame.back() ^= std::byte{1};
  dropped(frame, &Counters::dropped_checksum, "a wrong checksum");
  frame = frame_of(good, peer.card().mac());
  put_word(frame, 70, 0);
  dropped(frame, &Counters::dropped_checksum, "no checksum");
  frame = frame_of(good, peer.card().mac());
  frame[66] = std::byte{0x40};  // a header of 16 bytes
  fill_checksums(frame);
  dropped(frame, &Counters::dropped_malformed, "a short header");
  frame = frame_of(good, peer.card().mac());
  frame[66] = std::byte{0xF0};  // a header of 60 bytes
  fill_checksums(frame);
  dropped(frame, &Counters::dropped_malformed, "a header longer than the packet");
  frame = frame_of(good, peer.card().mac());
  put_word(frame, 18, 19);
  dropped(frame, &Counters::dropped_malformed, "a packet shorter than a header");
  frame = frame_of(good, {0x33, 0x33, 0, 0, 0, 1});
  dropped(frame, &Counters::dropped_protocol, "a frame to a group");
  for (const std::uint8_t hops : {0, 1, 255}) {  // any hop limit is right (RFC 8200, 3)
    RawSegment other = good;
    other.hops = hops;
    other.sequence = peer.seq++;
    other.payload = Bytes{pattern(peer.record().received, 6)};
    peer.card().arrive(frame_of(other, peer.card().mac()), 0);
    peer.settle();
  }
  EXPECT_EQ(peer.record().received, 3U);
  EXPECT_EQ(peer.record().mismatches, 0U);
}

// While the backlog is full, cookies answer SYNs, and the ACK of one opens a connection with the peer's MSS.
TEST_F(TcpIpv6, CookiesOpenConnectionsDuringAFlood) {
  for (unsigned i = 0; i < Listener::backlog_max + 100; ++i) {
    peer.card().arrive(frame_of({.from = {.address = Address(0xFE80'0000'0000'0000, 0x1'0000 + i), .port = 1},
                                 .to = {.address = peer.own(), .port = HandPeer::service_port},
                                 .sequence = i,
                                 .flags = syn_flag},
                                peer.card().mac()),
                       0);
    if (i % 16 == 0) peer.settle();  // so that the card has room for the frames
  }
  peer.settle();
  EXPECT_GE(peer.counters().cookies_sent, 100U);
  peer.open(40000, 0xFFFF, mss_option(1440));
  EXPECT_EQ(peer.counters().cookies_accepted, 1U);
  peer.application_sends(5'000);
  const std::vector<std::size_t> sizes = drain();
  EXPECT_EQ(received, 5'000U);
  EXPECT_EQ(*std::ranges::max_element(sizes), full_payload);
}

TEST_F(TcpIpv6, APacketTooBigShortensSegments) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  peer.application_sends(4'000);
  const std::vector<Segment> first = peer.take_segments();
  ASSERT_GE(first.size(), 2U);
  EXPECT_EQ(first[0].payload.size(), full_payload);
  report(ipv6::icmp::too_big, 0, 1279, first[0].seq);                // RFC 8201, 4: discarded
  report(ipv6::icmp::too_big, 0, 1300, first[0].seq + 0x1000'0000);  // RFC 5927: no number in flight
  report(ipv6::icmp::too_big, 0, 1300, first[0].seq, 40001);
  EXPECT_TRUE(peer.take_segments().empty());
  report(ipv6::icmp::too_big, 0, 1300, first[0].seq);
  const std::vector<Segment> again = peer.take_segments();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].seq, first[0].seq);
  EXPECT_EQ(again[0].payload.size(), 1300U - 60);
  // A new connection to the same peer begins with the known size.
  peer.open(40002, 0xFFFF, mss_option(1440));
  peer.application_sends(3'000);
  const std::vector<Segment> fresh = peer.take_segments();
  ASSERT_FALSE(fresh.empty());
  EXPECT_EQ(fresh[0].payload.size(), 1300U - 60);
}

// A route may recover, so no error ends an open connection (RFC 5927).
TEST_F(TcpIpv6, ErrorsDoNotEndAnOpenConnection) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  peer.application_sends(100);
  const std::vector<Segment> segments = peer.take_segments();
  ASSERT_EQ(segments.size(), 1U);
  for (const std::uint8_t code : {0, 1, 3, 4}) report(ipv6::icmp::unreachable, code, 0, segments[0].seq);
  report(ipv6::icmp::time_exceeded, 0, 0, segments[0].seq);
  EXPECT_EQ(peer.record().closed, 0);
  EXPECT_GE(peer.counters().icmp_errors, 5U);
}

TEST_F(TcpIpv6, ALostAddressEndsItsConnections) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  peer.begin_open(40001);  // half-open
  EXPECT_EQ(peer.counters().half_open, 1U);
  peer.card().set_link(false);
  for (int i = 0; i < 10; ++i) peer.settle();
  EXPECT_EQ(peer.record().closed, 1);
  const Counters counters = peer.counters();
  EXPECT_EQ(counters.half_open + counters.connections_open, 0U);
  EXPECT_EQ(counters.connections_reset, 1U);
}

// TIME-WAIT answers a repeated FIN, also over IPv6.
TEST_F(TcpIpv6, TimeWaitAnswersARepeatedFin) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  peer.close_by_application();
  const std::vector<Segment> fins = peer.take_segments();
  ASSERT_EQ(fins.size(), 1U);
  EXPECT_EQ(fins[0].flags, tcp::fin | tcp::ack);
  ++peer.acknowledged;
  const Segment fin{.seq = peer.seq++, .acknowledged = peer.acknowledged, .flags = tcp::fin | tcp::ack};
  peer.send(fin);
  EXPECT_EQ(peer.take_segments().size(), 1U);
  EXPECT_EQ(peer.record().closed, 1);
  peer.send(fin);
  const std::vector<Segment> again = peer.take_segments();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].flags, tcp::ack);
  EXPECT_EQ(again[0].acknowledged, peer.seq);
  peer.advance(60s);
  peer.send(fin);
  const std::vector<Segment> late = peer.take_segments();
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].flags, tcp::rst) << "after TIME-WAIT there is no such connection";
}

// RFC 4861, 7.3.1: a peer that acknowledges new bytes shows that its neighbour is reachable, so none is asked for.
TEST_F(TcpIpv6, ProgressConfirmsTheNeighbour) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  peer.answer_solicitations(false);
  for (unsigned second = 0; second < 60; ++second) {
    peer.application_sends(10);
    EXPECT_EQ(drain().size(), 1U) << second;
    peer.advance(1s);
  }
  EXPECT_EQ(peer.solicitations(), 0U);
  EXPECT_EQ(received, 600U);
}

// A neighbour that has gone is noticed, and is asked for again when a segment is due.
TEST_F(TcpIpv6, SegmentsWaitForANeighbourThatIsNotKnown) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  peer.advance(60s);
  EXPECT_GE(peer.solicitations(), 1U) << "the handshake alone confirms nothing";
  peer.answer_solicitations(false);
  peer.application_sends(100);
  EXPECT_EQ(drain().size(), 1U) << "a stale address is used";
  peer.advance(60s);  // no probe is answered
  peer.application_sends(100);
  peer.advance(15s);
  EXPECT_TRUE(peer.take_segments().empty());
  peer.answer_solicitations(true);
  peer.advance(60s);
  const std::vector<Segment> repeated = peer.take_segments();
  ASSERT_FALSE(repeated.empty());
  for (const Segment& segment : repeated) EXPECT_TRUE(segment.seq == peer.acknowledged && segment.payload.size() == 100);
}

class TcpIpv6WithoutOffloads : public TcpIpv6 {
 protected:
  TcpIpv6WithoutOffloads() : TcpIpv6({.receive_buffer_bytes = 64, .checksum_offload = false}) {}
};

// The card has found no checksum right or wrong, and the headers are in two small buffers.
TEST_F(TcpIpv6WithoutOffloads, ChecksumsAreMadeAndChecked) {
  peer.open(40000, 0xFFFF, mss_option(1440));
  Bytes data(1000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = pattern(i, 6);
  peer.send_data(data);
  EXPECT_EQ(peer.record().received, data.size());
  EXPECT_EQ(peer.record().mismatches, 0U);
  Bytes frame = frame_of({.from = {.address = peer.peer(), .port = 40000},
                          .to = {.address = peer.own(), .port = HandPeer::service_port},
                          .sequence = peer.seq,
                          .acknowledged = peer.acknowledged,
                          .flags = ack_flag,
                          .payload = Bytes(10)},
                         peer.card().mac());
  frame.back() ^= std::byte{1};
  const std::uint64_t before = peer.counters().dropped_checksum;
  peer.card().arrive(frame, 0);
  peer.settle();
  EXPECT_EQ(peer.counters().dropped_checksum, before + 1);
  EXPECT_EQ(peer.record().received, data.size());
  peer.application_sends(5'000);
  drain();
  EXPECT_EQ(received, 5'000U);
}

// Connections of a client with several cores: each has a port whose segments come to its core.
TEST(TcpIpv6Cores, EachCoreConnectsAndIsServed) {
  TwoMachines world({.server = {.cores = 2, .mac = {2, 0, 0, 0, 0, 1}}, .client = {.cores = 2, .mac = {2, 0, 0, 0, 0, 2}}, .ipv6 = true});
  world.listen(7, echoing());
  for (unsigned core = 0; core < 2; ++core) {
    for (int i = 0; i < 4; ++i) {
      const auto record = std::make_shared<Record>();
      const auto acceptor = recording(record, {.check_seed = 9, .send_seed = 9, .send_bytes = 20'000, .expect_bytes = 20'000});
      EXPECT_EQ(world.connect(world.service(7), acceptor, static_cast<int>(world.client_core + core)), std::nullopt);
      EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*record); }));
      EXPECT_EQ(record->received, 20'000U);
      expect_ended_well(*record);
    }
  }
  EXPECT_EQ(world.connect({.address = server_address6, .port = 9}, recording(std::make_shared<Record>())), ErrorCode::closed);
  EXPECT_EQ(world.connect({.address = Address(0x2001'0DB8'0000'0000, 1), .port = 9}, recording(std::make_shared<Record>())),
            ErrorCode::invalid)
      << "there is no route";
  EXPECT_EQ(world.connect(service(7), recording(std::make_shared<Record>())), ErrorCode::invalid) << "there is no IPv4 address";
}

}  // namespace
}  // namespace neap::net::testing
