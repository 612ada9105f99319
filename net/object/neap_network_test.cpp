// SPDX-License-Identifier: BSL-1.0
// The C interface under the sanitizers. tests/packetdrill tests the network by it.
#include "net/object/neap_network.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "net/testing/raw_peer.hpp"

namespace neap::net::object {
namespace {

using namespace testing;

constexpr std::uint64_t ms_ns = 1'000'000;
constexpr Endpoint peer{.address = Ipv4Address{0xC0000201}, .port = 40000}, service{.address = Ipv4Address{0xC0A80001}, .port = 8080};
constexpr MacAddress card{2, 0, 0, 0, 0, 1};

class NeapNetwork : public ::testing::Test {
 protected:
  void make(const char* settings = "") {
    std::array<char, 256> error{};
    ASSERT_EQ(neap_machine_make(settings, error.data(), error.size()), 1) << error.data();
    made_ = true;
  }
  void destroy() {
    if (std::exchange(made_, false)) neap_machine_destroy();
  }
  void TearDown() override { destroy(); }

  static void put(const RawSegment& segment) {
    const Bytes frame = frame_of(segment, card);
    EXPECT_EQ(neap_put_packet(frame.data() + 14, frame.size() - 14), 0);
  }
  static RawSegment take() {
    Bytes frame(2000);
    const long bytes = neap_take_packet(frame.data() + 14, frame.size() - 14, nullptr);
    frame.resize(14 + static_cast<std::size_t>(bytes));
    if (bytes > 0) put_word(frame, 12, 0x0800);
    return segment_in(frame);
  }
  /// Opens a connection to the listener, and returns the machine's first sequence number.
  static std::uint32_t open() {
    put({.from = peer, .to = service, .sequence = 0, .flags = syn_flag});
    const RawSegment answer = take();
    EXPECT_EQ(answer.flags, syn_flag | ack_flag);
    put({.from = peer, .to = service, .sequence = 1, .acknowledged = answer.sequence + 1, .flags = ack_flag});
    return answer.sequence;
  }

 private:
  bool made_ = false;
};

// The kernel's per-core state outlives a machine: a clock that went back would hang the next one, and a lost alarm would stop its timers.
TEST_F(NeapNetwork, TheNextMachineHasALaterClockAndTimers) {
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    make();
    EXPECT_GT(neap_now_ns(), last);
    EXPECT_EQ(neap_connect(peer.address.v4().value, 9), 3);
    EXPECT_EQ(take().flags, syn_flag);
    EXPECT_EQ(neap_advance_to_packet_ns(neap_now_ns() + 2000 * ms_ns), 1);
    EXPECT_EQ(take().flags, syn_flag);
    EXPECT_EQ(neap_listen(service.port), 4);
    open();
    EXPECT_EQ(neap_accept(4, nullptr), 5);
    neap_advance_to_ns(neap_now_ns() + 5000 * ms_ns);
    last = neap_now_ns();
    destroy();  // with an open connection
  }
}

TEST_F(NeapNetwork, WrongSettingsAreRefusedWithTheReason) {
  std::array<char, 256> error{};
  for (const char* words : {"ip=1.2.3.4", "ip=1.2.3.4/33", "ip=1.2.3.4/24,x", "seed=-1", "arp=maybe", "bogus=1", "bogus"}) {
    EXPECT_EQ(neap_machine_make(words, error.data(), error.size()), 0) << words;
    EXPECT_NE(std::string(error.data()), "") << words;
  }
  make("seed=7 ip=192.168.0.1/16,192.168.0.9");
  EXPECT_EQ(neap_machine_make("", error.data(), error.size()), 0);
  EXPECT_NE(std::string(error.data()).find("has a machine"), std::string::npos);
}

TEST_F(NeapNetwork, BytesPassInBothDirections) {
  make();
  const int listener = neap_listen(service.port);
  EXPECT_EQ(neap_listen(service.port), -EADDRINUSE);
  EXPECT_EQ(neap_accept(listener, nullptr), -EAGAIN);
  const std::uint32_t first = open();
  neap_endpoint remote{};
  const int handle = neap_accept(listener, &remote);
  EXPECT_EQ(remote.address, peer.address.v4().value);
  EXPECT_EQ(remote.port, peer.port);
  std::array<char, 16> text{};
  EXPECT_EQ(neap_receive(handle, text.data(), text.size()), -EAGAIN);
  put({.from = peer,
       .to = service,
       .sequence = 1,
       .acknowledged = first + 1,
       .flags = ack_flag | psh_flag,
       .payload = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}}});
  EXPECT_EQ(take().acknowledged, 4U);  // a connection's first segments are acknowledged at once
  EXPECT_EQ(neap_receive(handle, text.data(), 2), 2);
  EXPECT_EQ(neap_receive(handle, text.data() + 2, 5), 1);
  EXPECT_STREQ(text.data(), "abc");
  EXPECT_EQ(neap_send(handle, "hello", 5), 5);
  const RawSegment sent = take();
  EXPECT_EQ(sent.sequence, first + 1);
  EXPECT_EQ(sent.payload.size(), 5U);
  neap_connection_state state{};
  EXPECT_EQ(neap_state(handle, &state, sizeof state), 0);
  EXPECT_EQ(state.unacknowledged_bytes, 5U);
  EXPECT_EQ(state.congestion_window_bytes, 10U * 536);  // RFC 6928, with the default MSS
  EXPECT_EQ(state.timeout_us, 200'000U);                // the round trip takes no time here
  EXPECT_EQ(neap_shutdown(handle), 0);
  EXPECT_EQ(neap_send(handle, "x", 1), -EPIPE);
  EXPECT_EQ(neap_close(handle), 0);
  EXPECT_EQ(neap_close(handle), -EBADF);
}

TEST_F(NeapNetwork, AResetAndATimeOutAreToldApart) {
  make();
  const int listener = neap_listen(service.port);
  const std::uint32_t first = open();
  const int handle = neap_accept(listener, nullptr);
  put({.from = peer, .to = service, .sequence = 1, .acknowledged = first + 1, .flags = rst_flag | ack_flag});
  char byte = 0;
  EXPECT_EQ(neap_receive(handle, &byte, 1), -ECONNRESET);
  EXPECT_EQ(neap_receive(handle, &byte, 1), 0);  // the error is reported once
  const int silent = neap_connect(peer.address.v4().value, 9);
  EXPECT_EQ(neap_connected(silent), 0);
  neap_advance_to_ns(neap_now_ns() + 11'000 * ms_ns);
  EXPECT_EQ(neap_connected(silent), -ETIMEDOUT);
}

TEST_F(NeapNetwork, TimeStopsAtAPacket) {
  make();
  const int handle = neap_connect(peer.address.v4().value, 9);
  EXPECT_EQ(handle, 3);
  EXPECT_EQ(take().flags, syn_flag);
  const std::uint64_t start = neap_now_ns();
  EXPECT_EQ(neap_advance_to_packet_ns(start + 100 * ms_ns), 0);
  EXPECT_EQ(neap_now_ns(), start + 100 * ms_ns);
  EXPECT_EQ(neap_advance_to_packet_ns(start + 9000 * ms_ns), 1);
  EXPECT_LT(neap_now_ns(), start + 2000 * ms_ns);
  EXPECT_EQ(take().flags, syn_flag);
}

TEST_F(NeapNetwork, DatagramsPassInBothDirections) {
  make();
  const int handle = neap_open_datagrams(53);
  EXPECT_EQ(neap_open_datagrams(53), -EADDRINUSE);
  EXPECT_EQ(neap_receive_datagram(handle, nullptr, nullptr, 0), -EAGAIN);
  EXPECT_EQ(neap_send_datagram(handle, {.address = peer.address.v4().value, .port = 99}, "abc", 3), 3);
  Bytes packet(2000);
  EXPECT_EQ(neap_take_packet(packet.data(), packet.size(), nullptr), 20 + 8 + 3);
  EXPECT_EQ(neap_send_datagram(99, {}, "abc", 3), -EBADF);
}

}  // namespace
}  // namespace neap::net::object
