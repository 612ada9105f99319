// SPDX-License-Identifier: BSL-1.0
// The simulated card and frames of IPv6. Checksums are compared with a sum that is computed byte by byte.
#include "net/testing/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "net/testing/frames.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {
namespace {

using host::HostMachine;

constexpr unsigned cores = 3;  // of the receiving card; the sending card has the next core
constexpr std::size_t l4 = 14 + 40;
constexpr unsigned tcp = 6, udp = 17, icmpv6 = 58, hop_by_hop = 0, routing = 43, fragment = 44;
constexpr std::array<std::uint8_t, 16> peer{0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
constexpr std::array<std::uint8_t, 16> own{0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

/// Returns a header of TCP (20 bytes) or UDP, or the start of an ICMPv6 message (4 bytes), and `payload_bytes` bytes.
Bytes message(unsigned protocol, std::size_t payload_bytes, std::uint16_t source_port = 4000, std::uint16_t destination_port = 80) {
  Bytes bytes;
  if (protocol == icmpv6) {
    append(bytes, 0x8000'0000, 4);
  } else {
    append(bytes, source_port, 2);
    append(bytes, destination_port, 2);
  }
  if (protocol == tcp) {
    append(bytes, 0xFFFF'FF00, 4);
    append(bytes, 7, 4);
    append(bytes, 0x5019'1234, 4);  // FIN, PSH, ACK
    append(bytes, 0, 4);
  } else if (protocol == udp) {
    append(bytes, 8 + payload_bytes, 2);
    append(bytes, 0, 2);
  }
  for (std::size_t i = 0; i < payload_bytes; ++i) append(bytes, i * 31 + i / 256, 1);
  return bytes;
}

/// Returns a frame without checksums. `extension`: an extension header of type `next`, or nothing.
Bytes ipv6_frame(unsigned protocol, const Bytes& body, unsigned next = 255, const Bytes& extension = {}) {
  Bytes frame;
  append(frame, MacAddress{2, 0, 0, 0, 0, 1});
  append(frame, neighbour_mac, 6);
  append(frame, 0x86DD'6000'0000, 6);
  append(frame, extension.size() + body.size(), 2);
  append(frame, (extension.empty() ? protocol : next) << 8 | 64, 2);
  for (const auto& address : {peer, own}) {
    for (const std::uint8_t octet : address) append(frame, octet, 1);
  }
  append(frame, extension);
  append(frame, body);
  return frame;
}

/// Sums addresses, length, protocol and everything behind the headers (RFC 8200, 8.1). A right frame gives 0xFFFF.
unsigned sum_of(const Bytes& frame, unsigned protocol, std::size_t begin = l4) {
  std::uint32_t sum = protocol + static_cast<std::uint32_t>(frame.size() - begin);
  const auto add = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) sum += octet(frame, i) << ((i - from) % 2 == 0 ? 8 : 0);
  };
  add(22, 54);
  add(begin, frame.size());
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return sum;
}

/// Writes the sum of the pseudo-header to the checksum field, as a stack does.
void seed(Bytes& frame, unsigned protocol, std::size_t length) {
  const std::uint16_t sum = internet_sum(std::span(frame).subspan(22, 32), protocol + static_cast<std::uint32_t>(length));
  put_word(frame, l4 + (protocol == tcp ? 16 : 6), sum);
}

struct Sink final : FrameReceiver {
  void receive(std::span<const ReceivedFrame> frames) noexcept override {
    for (const ReceivedFrame& received : frames) {
      infos.push_back(received.info);
      received.frame->release();
    }
  }
  void transmitted(std::span<void* const>) noexcept override {}
  void link_changed(bool) noexcept override {}
  std::vector<ReceiveInfo> infos;
};

struct WireTest : ::testing::Test {
  WireTest() {
    card.tap([this](const Bytes& frame) {
      sent.push_back(frame);
      return false;
    });
    for (unsigned core = 0; core < cores; ++core) {
      machine.on(core, [&] { static_cast<void>(receiving.attach(sinks[core])); });
    }
    machine.on(cores, [&] { sender = &card.attach(sinks[cores]); });
  }
  /// Returns the number of frames that have arrived on `core`.
  std::size_t received(unsigned core) {
    return machine.value_on(core, [&] { return sinks.at(core).infos.size(); });
  }
  /// Returns the result for a frame that arrives.
  ReceiveInfo result_of(const Bytes& frame) {
    const std::size_t before = received(0);
    receiving.arrive(frame, 0);
    EXPECT_TRUE(HostMachine::wait_until([&] { return received(0) > before; }));
    return machine.value_on(0, [&] { return sinks[0].infos.at(before); });
  }
  /// Returns the frames that the card sends for `frame`.
  std::vector<Bytes> send(const Bytes& frame, TransmitOffload offload) {
    const TransmitPiece piece{.data = frame.data(), .bytes = static_cast<std::uint32_t>(frame.size())};
    machine.on(cores, [&] {
      sent.clear();
      EXPECT_TRUE(sender->transmit({&piece, 1}, offload, nullptr).has_value());
    });
    EXPECT_TRUE(HostMachine::wait_until([&] { return machine.value_on(cores, [&] { return !sent.empty(); }); }));
    return machine.value_on(cores, [&] { return sent; });
  }

  WireCard receiving{{.cores = cores}};
  WireCard card{{.first_core = cores, .tso_bytes_max = 65'536}};
  std::array<Sink, cores + 1> sinks;
  FrameSender* sender = nullptr;
  std::vector<Bytes> sent;  ///< on the sending card's core
  HostMachine machine{cores + 1};
};

TEST_F(WireTest, ReceivedChecksumsOfIpv6AreChecked) {
  for (const unsigned protocol : {tcp, udp}) {
    for (const std::size_t bytes : {0U, 1U, 2U, 99U, 1400U}) {
      Bytes frame = with_checksums(ipv6_frame(protocol, message(protocol, bytes)));
      ASSERT_EQ(sum_of(frame, protocol), 0xFFFFU) << bytes;
      EXPECT_TRUE(result_of(frame).ipv6_checksum_good());
      EXPECT_FALSE(result_of(frame).ip_checksum_good());
      frame.resize(frame.size() + 9);
      EXPECT_TRUE(result_of(frame).ipv6_checksum_good()) << "padding";
      frame[30] ^= std::byte{1};
      EXPECT_TRUE(result_of(frame).checksum_bad());
    }
  }
  EXPECT_EQ(receiving.bad_checksums(), 10U);
}

TEST_F(WireTest, ExtensionHeadersAreSkippedAndFragmentsAreNotChecked) {
  const auto extension = [](std::initializer_list<unsigned> octets) {
    Bytes bytes;
    for (const unsigned octet : octets) append(bytes, octet, 1);
    return bytes;
  };
  const auto checked = [&](unsigned next, const Bytes& header) {
    const Bytes frame = with_checksums(ipv6_frame(tcp, message(tcp, 100), next, header));
    const ReceiveInfo info = result_of(frame);
    EXPECT_FALSE(info.checksum_bad());
    EXPECT_TRUE(!info.l4_checksum_good() || sum_of(frame, tcp, l4 + header.size()) == 0xFFFF);
    return info.l4_checksum_good();
  };
  EXPECT_TRUE(checked(hop_by_hop, extension({tcp, 0, 5, 2, 0, 0, 1, 0})));
  EXPECT_TRUE(checked(hop_by_hop, extension({tcp, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})));
  EXPECT_TRUE(checked(routing, extension({tcp, 0, 0, 0, 0, 0, 0, 0})));
  EXPECT_FALSE(checked(routing, extension({tcp, 0, 0, 1, 0, 0, 0, 0})));
  EXPECT_FALSE(checked(fragment, extension({tcp, 0, 0, 1, 0, 0, 0, 9})));
  EXPECT_FALSE(checked(51, extension({tcp, 0, 0, 0, 0, 0, 0, 0})));
  EXPECT_FALSE(checked(hop_by_hop, extension({tcp, 255, 0, 0, 0, 0, 0, 0}))) << "longer than the frame";
}

TEST_F(WireTest, FramesWithWrongLengthsAreNotChecked) {
  const Bytes whole = with_checksums(ipv6_frame(udp, message(udp, 20)));
  for (std::size_t bytes = 14; bytes < whole.size(); ++bytes) {
    const ReceiveInfo info = result_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)});
    EXPECT_FALSE(info.l4_checksum_good() || info.checksum_bad()) << bytes;
  }
  Bytes no_checksum = whole;
  put_word(no_checksum, l4 + 6, 0);
  EXPECT_FALSE(result_of(no_checksum).l4_checksum_good() || result_of(no_checksum).checksum_bad());
  EXPECT_EQ(sum_of(with_checksums(ipv6_frame(icmpv6, message(icmpv6, 30))), icmpv6), 0xFFFFU) << "for tests that make ICMPv6";
}

TEST_F(WireTest, SentChecksumsOfIpv6AreFilledIn) {
  for (const unsigned protocol : {tcp, udp}) {
    Bytes frame = ipv6_frame(protocol, message(protocol, 333));
    const Bytes right = with_checksums(frame);
    seed(frame, protocol, frame.size() - l4);
    const TransmitOffload offload{.l3_bytes = 40, .checksums = protocol == tcp ? Checksums::tcp_ipv6 : Checksums::udp_ipv6};
    EXPECT_TRUE(send(frame, offload) == std::vector<Bytes>(1, right)) << protocol;
  }
}

// UDP over IPv6 always has a checksum, so a sum of zero is sent as its other form (RFC 8200, 8.1).
TEST_F(WireTest, ASumOfZeroIsSentAsOnes) {
  Bytes frame = ipv6_frame(udp, message(udp, 2));
  put_word(frame, l4 + 8, 0);
  put_word(frame, l4 + 8, ~sum_of(frame, udp) & 0xFFFF);
  ASSERT_EQ(sum_of(frame, udp), 0xFFFFU);
  EXPECT_EQ(word(with_checksums(frame), l4 + 6), 0xFFFFU);
  seed(frame, udp, 10);
  const auto frames = send(frame, {.l3_bytes = 40, .checksums = Checksums::udp_ipv6});
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(word(frames[0], l4 + 6), 0xFFFFU);
}

TEST_F(WireTest, LongFramesOfIpv6AreSegmented) {
  constexpr std::uint16_t segment_bytes = 1428;
  constexpr std::size_t headers = l4 + 20;
  for (const std::size_t payload : {std::size_t{1}, std::size_t{1428}, std::size_t{1429}, std::size_t{60'001}}) {
    Bytes frame = ipv6_frame(tcp, message(tcp, payload));
    put_word(frame, 18, 0);
    seed(frame, tcp, 0);
    const TransmitOffload offload{.l3_bytes = 40, .l4_bytes = 20, .checksums = Checksums::tcp_ipv6, .segment_bytes = segment_bytes};
    const auto frames = send(frame, offload);
    ASSERT_EQ(frames.size(), frames_sent(static_cast<std::uint32_t>(frame.size()), offload).frames);
    Bytes joined;
    for (const Bytes& segment : frames) {
      const bool last = &segment == &frames.back();
      ASSERT_EQ(segment.size(), headers + (last ? payload - joined.size() : segment_bytes));
      EXPECT_EQ(word(segment, 18), segment.size() - l4);
      EXPECT_EQ(sum_of(segment, tcp), 0xFFFFU);
      EXPECT_EQ(quad(segment, l4 + 4), static_cast<std::uint32_t>(0xFFFF'FF00U + joined.size())) << "modulo 2^32";
      EXPECT_EQ(octet(segment, l4 + 13), last ? 0x19U : 0x10U) << "FIN and PSH";
      EXPECT_TRUE(std::equal(segment.begin() + 20, segment.begin() + l4, frame.begin() + 20)) << "next header, hops, addresses";
      joined.insert(joined.end(), segment.begin() + headers, segment.end());
    }
    EXPECT_TRUE(std::equal(joined.begin(), joined.end(), frame.begin() + headers, frame.end()));
  }
}

TEST_F(WireTest, FlowsOfIpv6ReachTheCoreThatTheCardNames) {
  std::map<unsigned, std::size_t> expected;
  for (std::uint16_t port = 1000; port < 1060; ++port) {
    ++expected[receiving.receiving_core_ipv6(peer, own, port, 80)];
    receiving.arrive(with_checksums(ipv6_frame(port % 2 == 0 ? tcp : udp, message(port % 2 == 0 ? tcp : udp, 10, port, 80))));
  }
  ASSERT_EQ(expected.size(), cores);
  std::set<unsigned> by_address;
  for (std::uint8_t last = 0; last < 60; ++last) {
    auto other = peer;
    other[15] = last;
    by_address.insert(receiving.receiving_core_ipv6(other, own, 1000, 80));
  }
  EXPECT_EQ(by_address.size(), cores);
  for (unsigned core = 0; core < cores; ++core) {
    EXPECT_TRUE(HostMachine::wait_until([&] { return received(core) == expected[core]; })) << core;
  }
}

}  // namespace
}  // namespace neap::net::testing
