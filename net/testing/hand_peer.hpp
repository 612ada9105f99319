// SPDX-License-Identifier: BSL-1.0
// A TCP peer whose segments are all made by the test, over IPv4 or IPv6. The machine has one core, and only the test advances the clock.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "net/bring_up.hpp"
#include "net/testing/handlers.hpp"
#include "net/testing/ipv6_world.hpp"
#include "net/testing/raw_peer.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {

namespace tcp {
constexpr std::uint8_t fin = 1, syn = 2, rst = 4, ack = 16;
}  // namespace tcp

/// A TCP segment in host byte order.
struct Segment {
  std::uint32_t seq = 0, acknowledged = 0;
  std::uint8_t flags = tcp::ack;
  std::uint16_t window = 0xFFFF;
  Bytes payload{}, options{};
  // Over IPv6.
  std::uint8_t hops = 64;
  std::uint32_t flow = 0;  ///< traffic class and flow label
};

class HandPeer {
 public:
  static constexpr Ipv4Address machine_address{0x0A000001}, peer_address{0x0A000002};
  static constexpr std::uint16_t service_port = 7;
  static constexpr Address machine_address6{0xFE80'0000'0000'0000, 0x0000'00FF'FE00'0001}, peer_address6{0xFE80'0000'0000'0000, 0xFE};

  /// The machine serves `service_port` by a RecordingHandler (handlers.hpp) with `behaviour`.
  explicit HandPeer(RecordingHandler::Behaviour behaviour = {.close_when_sent = false}, bool ipv6 = false, CardOptions card = {})
      : ipv6_(ipv6), card_(card), machine_(1) {
    card_.tap([this](const Bytes& frame) {
      take(frame);
      return true;
    });
    machine_.run(0, [this]() -> task<void> {
      AddressSetting setting{.dhcp = false, .address = machine_address, .netmask = {0xFFFFFF00}, .gateway = {}};
      if (ipv6_) setting.ipv6.mode = Ipv6Setting::Mode::automatic;
      network_ = std::move(*co_await bring_up(card_, setting, 0, 1));
    });
    machine_.run(0, [this, behaviour]() -> task<void> {
      const Result<void> listening = co_await network_->listen(service_port, [this, behaviour](Connection& connection) {
        connection_ = &connection;
        record_ = std::make_shared<Record>();
        return std::make_unique<RecordingHandler>(record_, behaviour);
      });
      EXPECT_TRUE(listening.has_value());
    });
    if (ipv6_) advance(std::chrono::seconds(3));  // duplicate address detection
    introduce();
  }
  HandPeer& operator=(HandPeer&&) = delete;
  ~HandPeer() {
    card_.cut();
    const host::ClockRunner runner(clock_);
    machine_.run(0, [this] { return network_->take_down(); });
    EXPECT_EQ(card_.buffers_out(), 0);
  }

  /// Opens a connection from `port`; the peer's window is `window`, its SYN has `options`.
  void open(std::uint16_t port = 40000, std::uint16_t window = 0xFFFF, const Bytes& options = {}) {
    begin_open(port, window, options);
    send({.seq = seq, .acknowledged = acknowledged, .window = window});
    ASSERT_NE(connection_, nullptr);
    take_segments();
  }
  /// As `open`, without the ACK that opens the connection.
  void begin_open(std::uint16_t port = 40000, std::uint16_t window = 0xFFFF, const Bytes& options = {}) {
    port_ = port;
    seq = 0xFFFFF000;  // sequence numbers wrap soon
    send({.seq = seq++, .flags = tcp::syn, .window = window, .options = options});
    Segment answer;
    take_syn_answer(answer);
  }
  /// As `begin_open`, with the SYN-ACK.
  void begin_open_with_answer(std::uint16_t port, std::uint16_t window, const Bytes& options, Segment& answer) {
    port_ = port;
    seq = 0xFFFFF000;
    send({.seq = seq++, .flags = tcp::syn, .window = window, .options = options});
    take_syn_answer(answer);
  }
  /// From now on, segments to this port of the peer are taken.
  void watch_port(std::uint16_t port) { port_ = port; }
  void send(const Segment& segment) {
    card_.arrive(frame_of(segment), 0);
    settle();
  }
  /// Sends segments that one event of the machine's core handles together.
  void send_together(const std::vector<Segment>& segments) {
    std::vector<Bytes> frames;
    for (const Segment& segment : segments) frames.push_back(frame_of(segment));
    card_.arrive_together(std::move(frames), 0);
    settle();
  }
  /// Sends in-order data from the peer with valid numbers.
  void send_data(const Bytes& payload, std::uint16_t window = 0xFFFF) {
    send({.seq = seq, .acknowledged = acknowledged, .window = window, .payload = payload});
    seq += static_cast<std::uint32_t>(payload.size());
  }
  /// Sends the peer's ACK of all bytes received in order.
  void acknowledge(std::uint16_t window = 0xFFFF) { send({.seq = seq, .acknowledged = acknowledged, .window = window}); }
  /// Makes the machine's application send `bytes` bytes of the pattern with seed 5.
  void application_sends(std::size_t bytes) {
    machine_.on(0, [&] {
      std::vector<std::byte> data(bytes);
      for (std::size_t i = 0; i < bytes; ++i) data[i] = pattern(application_sent_ + i, 5);
      application_sent_ += bytes;
      EXPECT_TRUE(connection_->send(Buffer::copy(data)).has_value());
    });
    settle();
  }
  void close_by_application() {
    machine_.on(0, [this] { connection_->close(); });
    settle();
  }
  std::vector<Segment> take_segments() {
    const std::lock_guard lock(lock_);
    return std::exchange(segments_, {});
  }
  void advance(std::chrono::milliseconds by) {
    for (auto passed = std::chrono::milliseconds(0); passed < by; passed += std::chrono::milliseconds(50)) {
      clock_.advance(std::chrono::milliseconds(50));
      settle();
    }
  }
  void settle() {
    for (int i = 0; i < 4; ++i) machine_.on(0, [] {});
  }
  Counters counters() {
    return machine_.value_on(0, [] { return net::counters(0); });
  }
  Waits waits() {
    return machine_.value_on(0, [] { return net::waits(); });
  }
  [[nodiscard]] Address peer() const { return ipv6_ ? peer_address6 : Address(peer_address); }
  [[nodiscard]] Address own() const { return ipv6_ ? machine_address6 : Address(machine_address); }
  Connection* connection() { return connection_; }
  Record& record() { return *record_; }
  WireCard& card() { return card_; }
  host::HostMachine& machine() { return machine_; }
  NetworkControl& network() { return *network_; }

  /// Makes an IPv4 frame from the peer to the machine, with checksums.
  static Bytes ipv4_frame(std::uint8_t protocol, const Bytes& payload, std::uint16_t identification = 1, std::uint16_t fragment = 0) {
    const Ipv4Header header{
        .from = peer_address, .to = machine_address, .protocol = protocol, .identification = identification, .fragment_field = fragment};
    return with_checksums(net::testing::ipv4_frame(header, payload));
  }

  /// A packet of IPv6 from the peer's MAC address.
  void arrive_ipv6(const Bytes& packet) {
    card_.arrive(frame_of_packet(packet), 0);
    settle();
  }
  /// Without answers, the machine finds out that the neighbour has gone.
  void answer_solicitations(bool answers) { answers_solicitations_ = answers; }

  std::uint32_t seq = 0;           ///< sequence number of the next byte that the peer sends
  std::uint32_t acknowledged = 0;  ///< sequence number of the next byte that the peer expects

 private:
  [[nodiscard]] Bytes frame_of(const Segment& segment) const {
    return net::testing::frame_of({.from = {.address = peer(), .port = port_},
                                   .to = {.address = own(), .port = service_port},
                                   .sequence = segment.seq,
                                   .acknowledged = segment.acknowledged,
                                   .flags = segment.flags,
                                   .window = segment.window,
                                   .options = segment.options,
                                   .payload = segment.payload,
                                   .hops = segment.hops,
                                   .flow = segment.flow},
                                  card_.mac());
  }
  void take_syn_answer(Segment& answer) {
    const std::vector<Segment> answers = take_segments();
    ASSERT_EQ(answers.size(), 1U);
    ASSERT_EQ(answers[0].flags, tcp::syn | tcp::ack);
    answer = answers[0];
    acknowledged = answer.seq + 1;
  }
  /// Sends an ARP request of the peer, or a neighbour solicitation, so that the machine learns its address.
  void introduce() {
    if (ipv6_) {
      const MacAddress mac = neighbour();
      arrive_ipv6(ipv6::testing::solicitation(peer_address6, machine_address6, machine_address6, &mac));
      return;
    }
    card_.arrive(arp_answer(peer_address, machine_address, card_.mac(), 1), 0);
    settle();
  }
  void take(const Bytes& frame) {
    if (ipv6_ && answers_solicitations_) answer_solicitation(frame);
    const bool ipv4_segment = frame.size() >= 54 && word(frame, 12) == 0x0800 && octet(frame, 23) == 6 && word(frame, 36) == port_;
    const bool ipv6_segment = frame.size() >= 74 && word(frame, 12) == 0x86DD && octet(frame, 20) == 6 && word(frame, 56) == port_;
    if (!ipv4_segment && !ipv6_segment) return;
    RawSegment segment = segment_in(frame);
    ASSERT_NE(segment.flags, 0U) << "a segment with a wrong length";
    EXPECT_TRUE(segment.from.address == own() && segment.to.address == peer());
    const std::lock_guard lock(lock_);
    segments_.push_back({.seq = segment.sequence,
                         .acknowledged = segment.acknowledged,
                         .flags = static_cast<std::uint8_t>(segment.flags),
                         .window = segment.window,
                         .payload = std::move(segment.payload),
                         .options = std::move(segment.options),
                         .hops = segment.hops,
                         .flow = segment.flow});
  }
  void answer_solicitation(const Bytes& frame) {
    constexpr std::size_t icmp_at = 54;
    if (frame.size() < icmp_at + 24 || word(frame, 12) != 0x86DD || octet(frame, 20) != 58 || octet(frame, icmp_at) != 135) return;
    if (!(Address::read(frame.data() + icmp_at + 8) == peer_address6)) return;
    const MacAddress mac = neighbour();
    card_.arrive(frame_of_packet(ipv6::testing::advertisement(peer_address6, machine_address6, &mac)), 0);
  }
  static MacAddress neighbour() {
    MacAddress mac;
    for (std::size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<std::uint8_t>(neighbour_mac >> (40 - 8 * i));
    return mac;
  }
  [[nodiscard]] Bytes frame_of_packet(const Bytes& packet) const {
    Bytes frame;
    append(frame, card_.mac());
    append(frame, neighbour_mac, 6);
    append(frame, 0x86DD, 2);
    append(frame, packet);
    return frame;
  }

  const bool ipv6_;
  std::atomic<bool> answers_solicitations_{true};
  host::ManualClock clock_{1'000'000'000};
  WireCard card_;
  host::HostMachine machine_;
  std::unique_ptr<NetworkControl> network_;
  std::uint16_t port_ = 0;
  Connection* connection_ = nullptr;
  std::shared_ptr<Record> record_;
  std::size_t application_sent_ = 0;
  std::mutex lock_;
  std::vector<Segment> segments_;
};

}  // namespace neap::net::testing
