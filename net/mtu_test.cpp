// SPDX-License-Identifier: BSL-1.0
// Interfaces with an MTU of more or less than 1500 bytes. A jumbo frame arrives in several of the card's buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "net/ipv6/packet.hpp"
#include "net/stack.hpp"
#include "net/testing/frames.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

constexpr std::size_t ethernet_bytes = 14, ip_bytes = 20, ipv6_bytes = 40, tcp_bytes = 20, timestamps_bytes = 12;
constexpr std::uint16_t service_port = 7;

/// Two machines whose frames are recorded. The frames of one go to the other unchanged.
class Mtu : public ::testing::Test {
 protected:
  ~Mtu() override { world_.reset(); }  // before the frames that its cards still record
  void make(std::uint16_t server_mtu, std::uint16_t client_mtu, std::uint32_t tso_bytes_max = 0, bool ipv6 = false) {
    world_.reset();
    from_server_.clear();
    from_client_.clear();
    TwoMachinesOptions options;
    options.server.frame_bytes_max = static_cast<std::uint32_t>(server_mtu + ethernet_bytes);
    options.client.frame_bytes_max = static_cast<std::uint32_t>(client_mtu + ethernet_bytes);
    options.server.tso_bytes_max = options.client.tso_bytes_max = tso_bytes_max;
    options.ipv6 = ipv6;
    world_ = std::make_unique<TwoMachines>(options);
    EXPECT_EQ(world_->server->mtu(), server_mtu);
    watch(world_->server_card, 0, from_server_);
    watch(world_->client_card, world_->client_core, from_client_);
  }
  /// Sends `bytes` from the client, which the server echoes.
  void exchange(std::size_t bytes, bool by_reference, std::size_t piece_bytes) {
    world_->listen(service_port, echoing());
    const auto record = std::make_shared<Record>();
    const auto acceptor = recording(record, {.check_seed = 9,
                                             .send_seed = 9,
                                             .send_bytes = bytes,
                                             .piece_bytes = piece_bytes,
                                             .by_reference = by_reference,
                                             .expect_bytes = bytes});
    ASSERT_EQ(world_->connect(world_->service(service_port), acceptor), std::nullopt);
    ASSERT_TRUE(HostMachine::wait_until([&] { return ended(*record); }));
    EXPECT_EQ(record->received, bytes);
    expect_ended_well(*record);
  }
  struct Frames {
    std::vector<std::size_t> payloads;  ///< of segments of TCP, in bytes
    unsigned mss = 0;                   ///< announced in a SYN
    std::size_t longest = 0;            ///< packet of any kind
    unsigned fragments = 0;
  };
  Frames from(const std::vector<Bytes>& frames) {
    const std::lock_guard guard(lock_);
    Frames found;
    for (const Bytes& frame : frames) {
      const bool ipv4 = frame.size() >= ethernet_bytes + ip_bytes && word(frame, 12) == 0x0800;
      if (!ipv4 && (frame.size() < ethernet_bytes + ipv6_bytes || word(frame, 12) != ipv6::ethertype)) continue;
      const std::size_t packet_bytes = ipv4 ? word(frame, 16) : ipv6_bytes + word(frame, 18);
      found.longest = std::max(found.longest, packet_bytes);
      if (ipv4 && (word(frame, 20) & 0x3FFF) != 0) ++found.fragments;
      if (octet(frame, ipv4 ? 23 : 20) != 6) continue;
      const std::size_t header_bytes = ipv4 ? ip_bytes : ipv6_bytes, tcp = ethernet_bytes + header_bytes, options = tcp + tcp_bytes;
      if ((octet(frame, tcp + 13) & 2) != 0) found.mss = octet(frame, options) == 2 ? word(frame, options + 2) : 0;
      const std::size_t payload = packet_bytes - header_bytes - (octet(frame, tcp + 12) >> 4) * 4;
      if (payload != 0) found.payloads.push_back(payload);
    }
    return found;
  }
  Frames from_server() { return from(from_server_); }
  Frames from_client() { return from(from_client_); }

  std::unique_ptr<TwoMachines> world_;

 private:
  /// Watches the frames of a card with one core. With IPv6, the core sends some by itself, so the watch begins on that core.
  void watch(WireCard& card, unsigned core, std::vector<Bytes>& frames) {
    world_->machine.on(core, [&] {
      card.tap([this, &frames](const Bytes& frame) {
        const std::lock_guard guard(lock_);
        frames.push_back(frame);
        return true;
      });
    });
  }

  std::mutex lock_;
  std::vector<Bytes> from_server_, from_client_;
};

std::ptrdiff_t count_of(const std::vector<std::size_t>& payloads, std::size_t bytes) { return std::ranges::count(payloads, bytes); }

// RFC 9293, 3.7.1: the MSS is the MTU without both headers. Timestamps take 12 bytes of each segment.
TEST_F(Mtu, JumboFramesCarryWholeSegments) {
  make(9000, 9000);
  exchange(1'000'000, true, 16'384);
  for (const Frames& frames : {from_client(), from_server()}) {
    EXPECT_EQ(frames.mss, 8960U);
    EXPECT_EQ(frames.longest, 9000U);
    EXPECT_GE(count_of(frames.payloads, 8960 - timestamps_bytes), 50);
    EXPECT_LT(frames.payloads.size(), 250U);
    EXPECT_EQ(frames.fragments, 0U);
  }
}

TEST_F(Mtu, JumboFramesCarryWholeSegmentsOverIpv6) {
  for (const std::uint32_t tso : {0U, 0xFFFFU}) {
    make(9000, 9000, tso, true);
    if (tso != 0) EXPECT_EQ(world_->set_tso("chain"), "");
    exchange(1'000'000, true, 16'384);
    for (const Frames& frames : {from_client(), from_server()}) {
      EXPECT_EQ(frames.mss, 8940U);
      EXPECT_EQ(frames.longest, 9000U);
      EXPECT_GE(count_of(frames.payloads, 8940 - timestamps_bytes), 50);
      EXPECT_LT(frames.payloads.size(), 250U);
    }
    if (tso != 0) EXPECT_EQ(world_->set_tso("off"), "");
    world_.reset();
  }
}

// An application's many short pieces are more than the card takes for a frame, so they are copied into one.
TEST_F(Mtu, JumboFramesOfManyPiecesAreCopied) {
  make(9000, 9000);
  exchange(300'000, true, 100);
  EXPECT_GE(count_of(from_client().payloads, 8960 - timestamps_bytes), 10);
  EXPECT_GT(world_->counters_of(world_->client_core).transmit_copied, 0U);
}

TEST_F(Mtu, TheCardCutsLongSegmentsIntoJumboFrames) {
  for (const char* form : {"chain", "copy"}) {
    make(9000, 9000, 0xFFFF);
    EXPECT_EQ(world_->set_tso(form), "");
    exchange(2'000'000, true, 16'384);
    EXPECT_GT(world_->client_card.frames_segmented(), 0U) << form;
    EXPECT_EQ(from_client().longest, 9000U) << form;
    EXPECT_EQ(world_->set_tso("off"), "");
    world_.reset();
  }
}

TEST_F(Mtu, LostJumboFramesAreSentAgain) {
  make(9000, 9000);
  world_->client_card.set_faults(0.05, 0.02, 0.02);
  world_->server_card.set_faults(0.05, 0.02, 0.02);
  exchange(2'000'000, true, 16'384);
  EXPECT_GT(world_->counters_of(world_->client_core).retransmissions, 0U);
}

// Each side obeys the other's MSS.
TEST_F(Mtu, APeerWithoutJumboFramesGetsNone) {
  make(9000, 1500);
  exchange(500'000, true, 16'384);
  EXPECT_EQ(from_server().mss, 8960U);
  EXPECT_EQ(from_client().mss, 1460U);
  EXPECT_EQ(from_server().longest, 1500U);
  EXPECT_EQ(from_client().longest, 1500U);
}

TEST_F(Mtu, SmallPacketsCarryATransfer) {
  for (const std::uint32_t tso : {0U, 0xFFFFU}) {
    make(576, 576, tso);
    if (tso != 0) EXPECT_EQ(world_->set_tso("chain"), "");
    exchange(200'000, false, 16'384);
    for (const Frames& frames : {from_client(), from_server()}) {
      EXPECT_EQ(frames.mss, 536U);
      EXPECT_EQ(frames.longest, 576U);
      EXPECT_GE(count_of(frames.payloads, 536 - timestamps_bytes), 200);
    }
    if (tso != 0) EXPECT_EQ(world_->set_tso("off"), "");
    world_.reset();
  }
}

// A segment that this side acknowledges at once is longer than the largest one so far, or not the only one (RFC 9293, 3.8.6.3).
TEST_F(Mtu, EverySecondJumboSegmentIsAcknowledged) {
  make(9000, 9000);
  const auto record = std::make_shared<Record>();
  constexpr std::size_t bytes = 4'000'000;
  world_->listen(service_port, recording(std::make_shared<Record>(), {.send_seed = 9, .send_bytes = bytes}));
  ASSERT_EQ(world_->connect(service(service_port), recording(record, {.check_seed = 9, .expect_bytes = bytes})), std::nullopt);
  ASSERT_TRUE(HostMachine::wait_until([&] { return ended(*record); }));
  const std::uint64_t data = world_->server_card.frames_sent(), answers = world_->client_card.frames_sent();
  EXPECT_LT(answers, data * 3 / 4) << data;
}

// Datagrams up to the MTU are one frame; longer ones are sent in fragments of it (RFC 791, 3.2), and put together.
TEST_F(Mtu, DatagramsFillJumboFrames) {
  for (const std::uint16_t mtu : {576, 1500, 9000}) {
    make(mtu, mtu);
    constexpr std::uint16_t port = 9;
    std::mutex lock;
    std::vector<std::size_t> got;
    world_->machine.run(0, [&]() -> task<void> {
      const auto done = co_await world_->server->receive_datagrams(port, [&](Datagram datagram) {
        std::string text(datagram.data.bytes(), '\0');
        datagram.data.peek(std::as_writable_bytes(std::span(text)));
        const std::lock_guard guard(lock);
        got.push_back(text == std::string(text.size(), 'j') ? text.size() : 0);
      });
      EXPECT_TRUE(done.has_value());
    });
    world_->machine.run(world_->client_core, [&]() -> task<void> {
      EXPECT_TRUE((co_await world_->client->receive_datagrams(port, [](Datagram) {})).has_value());
    });
    const auto arrived = [&](std::size_t bytes) {
      const std::string text(bytes, 'j');
      world_->machine.on(world_->client_core, [&] {
        EXPECT_TRUE(world_->client->send_datagram(port, service(port), std::as_bytes(std::span(text))).has_value());
      });
      return HostMachine::wait_until([&] {
        const std::lock_guard guard(lock);
        return std::erase(got, bytes) == 1;
      });
    };
    constexpr std::size_t udp_bytes = 8;
    EXPECT_TRUE(arrived(mtu - ip_bytes - udp_bytes)) << mtu;
    EXPECT_EQ(from_client().longest, mtu);
    EXPECT_EQ(from_client().fragments, 0U) << mtu;
    EXPECT_TRUE(arrived(mtu - ip_bytes - udp_bytes + 1)) << mtu;
    EXPECT_EQ(from_client().fragments, 2U) << mtu;
    EXPECT_TRUE(arrived(20'000)) << mtu;
    EXPECT_LE(from_client().longest, mtu);
    world_.reset();
  }
}

TEST_F(Mtu, ADeviceMustBeOpenedForTheFrames) {
  HostMachine machine(1);
  WireCard card({.frame_bytes_max = 9013});
  machine.run(0, [&]() -> task<void> {
    AddressSetting setting = server_setting;
    setting.mtu = 9000;
    const auto network = co_await bring_up(card, setting, 0, 1);
    EXPECT_EQ(network.error().code, ErrorCode::invalid);
  });
}

}  // namespace
}  // namespace neap::net::testing
